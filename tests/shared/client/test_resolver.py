"""From a service's name to its replicas."""

import asyncio
import socket
from typing import Any

import pytest

from shared.client.resolver import Address, addresses_of, system_addresses


def answer(*addresses: str) -> Any:
    async def getaddrinfo(host: str, port: int, **options: Any) -> list[Any]:
        families = {True: socket.AF_INET6, False: socket.AF_INET}
        return [(families[":" in one], socket.SOCK_STREAM, 6, "", (one, port)) for one in addresses]

    return getaddrinfo


@pytest.mark.parametrize(
    ("answered", "taken"),
    [
        (["10.0.0.3", "10.0.0.2", "10.0.0.3"], ["10.0.0.2", "10.0.0.3"]),
        # each replica has both
        (["fd00::2", "10.0.0.2", "fd00::3", "10.0.0.3"], ["10.0.0.2", "10.0.0.3"]),
        (["fd00::3", "fd00::2"], ["fd00::2", "fd00::3"]),
        ([], []),
    ],
)
def test_each_replica_counts_once(answered: list[str], taken: list[str]) -> None:
    async def main() -> list[str]:
        asyncio.get_running_loop().getaddrinfo = answer(*answered)  # type: ignore[method-assign]
        return await system_addresses("env-server", 8000)

    assert asyncio.run(main()) == taken


def test_a_replicas_url_is_its_services_with_the_address() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        assert (host, port) == ("env-server", 80)
        return ["10.0.0.2", "fd00::2"]

    first, second = asyncio.run(addresses_of("http://env-server/sql/", resolve))
    assert first == Address("http://10.0.0.2:80/sql", "env-server")
    assert second == Address("http://[fd00::2]:80/sql", "env-server")
    assert str(first) == "http://10.0.0.2:80/sql (of env-server)"
