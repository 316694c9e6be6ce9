"""Name resolution: the replicas that a URL's host name stands for.

The name servers of Docker and of Kubernetes (headless services) answer with one address per
replica. Each becomes a URL of its own, so that an episode can stay on one of them. Other URLs stand
for themselves: with an address, `localhost` or https (a certificate is for the name), and those
that are reached through a proxy, which resolves them.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from ipaddress import ip_address

import httpx

from shared.client.proxies import is_this_machine, proxy_of

Resolve = Callable[[str, int], Awaitable[list[str]]]  # host, port -> addresses; raises OSError


@dataclass(frozen=True)
class Address:
    """One replica: `url` is where it answers, `host` its Host header if not the URL's host."""

    url: str
    host: str | None = None

    def __str__(self) -> str:
        return self.url if self.host is None else f"{self.url} (of {self.host})"


async def system_addresses(host: str, port: int) -> list[str]:
    """Return all addresses of one family, IPv4 if there is one: a replica that has both must not
    count twice."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    ipv4 = {str(address[0]) for family, *_, address in found if family == socket.AF_INET}
    return sorted(ipv4 or {str(address[0]) for *_, address in found})


def is_name(url: str) -> bool:
    """Return whether the URL's host is a name that may stand for several replicas."""
    parsed = httpx.URL(url)
    if parsed.scheme != "http" or is_this_machine(parsed.host):
        return False
    try:
        ip_address(parsed.host)
    except ValueError:
        return proxy_of(parsed) is None
    return False


async def addresses_of(url: str, resolve: Resolve) -> list[Address]:
    """Return the replicas that the URL's name stands for; `OSError` if it can't be resolved."""
    parsed = httpx.URL(url)
    port, path, name = parsed.port or 80, parsed.path.rstrip("/"), parsed.netloc.decode()
    addresses = await resolve(parsed.host, port)
    hosts = [f"[{address}]" if ":" in address else address for address in addresses]
    return [Address(f"http://{host}:{port}{path}", name) for host in hosts]
