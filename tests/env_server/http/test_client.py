from typing import Any

from fastapi import Request

from env_server.http.client import client_of


def a_request(**scope: Any) -> Request:
    return Request({"type": "http", "headers": [], **scope})


def test_a_client_is_its_connection_without_keys_and_its_key_with_them() -> None:
    peer = ("127.0.0.1", 4711)
    assert client_of(a_request(client=peer)) == "127.0.0.1:4711"
    assert client_of(a_request(client=peer, state={"key_name": "agent 1"})) == "agent 1"
    assert client_of(a_request(client=None)) == "unknown"
