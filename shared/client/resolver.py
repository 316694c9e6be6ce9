"""Where a service's replicas are: a URL's host name, asked for all its addresses.

Docker's and Kubernetes' (headless service) name servers answer with one address a replica. Each
becomes a URL of its own, so that an episode can be kept on one of them. A URL whose host is an
address, `localhost` or that speaks HTTPS (its certificate is for the name) stands for itself, and
so does a name that can't be resolved.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from ipaddress import ip_address

import httpx

Resolve = Callable[[str, int], Awaitable[list[str]]]  # host, port -> addresses; raises OSError


@dataclass(frozen=True)
class Address:
    """One replica: `url` is where it answers, `host` what its Host header says where that isn't the
    URL's own."""

    url: str
    host: str | None = None

    def __str__(self) -> str:
        return self.url if self.host is None else f"{self.url} (of {self.host})"


async def system_addresses(host: str, port: int) -> list[str]:
    """All addresses of one family, IPv4 where there is one: a replica that has both must not count
    twice."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for family in (socket.AF_INET, socket.AF_INET6):
        addresses = {str(address[0]) for kind, _, _, _, address in found if kind == family}
        if addresses:
            return sorted(addresses)
    return []


def is_name(url: str) -> bool:
    """Whether the URL's host is a name that may stand for several replicas."""
    parsed = httpx.URL(url)
    if parsed.scheme != "http" or parsed.host == "localhost":
        return False
    try:
        ip_address(parsed.host)
    except ValueError:
        return True
    return False


async def addresses_of(url: str, resolve: Resolve) -> list[Address]:
    """The replicas that the URL's name stands for. `OSError` where it can't be resolved, empty
    where it has none."""
    parsed = httpx.URL(url)
    port = parsed.port or 80
    found = []
    for address in await resolve(parsed.host, port):
        host = f"[{address}]" if ":" in address else address
        found.append(
            Address(f"http://{host}:{port}{parsed.path.rstrip('/')}", parsed.netloc.decode())
        )
    return found
