"""How connections end."""

import asyncio

import pytest

from env_server.http.connections import abort_unless_read


class Transport:
    def __init__(self, *unread: int) -> None:
        self.unread, self.aborted = [*unread], False

    def get_write_buffer_size(self) -> int:
        return self.unread.pop(0)

    def abort(self) -> None:
        self.aborted = True


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("unread", "aborted"), [((0,), False), ((9, 5, 0), False), ((9, 5, 5), True)]
)
async def test_an_ending_connection_is_aborted_once_its_peer_reads_no_more(
    monkeypatch, unread, aborted
):
    monkeypatch.setattr("env_server.http.connections.UNREAD_S", 0)
    transport = Transport(*unread)
    abort_unless_read(transport)
    for _ in range(10):
        await asyncio.sleep(0)
    assert (transport.unread, transport.aborted) == ([], aborted)
