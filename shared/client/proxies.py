"""Which proxy a request goes through: the environment's, but none to this machine.

Hosts obey HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY, in upper or lower case. Requests to this
machine never use a proxy, whatever NO_PROXY says: a proxy elsewhere could not reach it.
"""

import socket
from functools import cache
from importlib.util import find_spec
from ipaddress import ip_address
from urllib.request import getproxies, proxy_bypass

import httpx

from shared.errors import ServerUnreachable

# Shorter than any server's, so that no request meets a connection that is about to be closed.
KEEPALIVE_S = 4.0


def proxy_of(url: str | httpx.URL) -> str | None:
    """Return the URL of the proxy to `url`, or None.

    Raises `ServerUnreachable` if the environment names a proxy that can't be used.
    """
    parsed = httpx.URL(url)
    proxies = getproxies()
    proxy = proxies.get(parsed.scheme) or proxies.get("all")
    if not proxy or is_this_machine(parsed.host) or proxy_bypass(parsed.host):
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    if problem := _problem(proxy):
        name = f"{parsed.scheme if proxies.get(parsed.scheme) else 'all'}_proxy".upper()
        remedy = f"correct {name}, or list {parsed.host} in NO_PROXY"
        message = f"the proxy of {name} can't be used ({problem}): {remedy}"
        raise ServerUnreachable(message, url=str(url))
    return proxy


def _problem(proxy: str) -> str | None:
    try:
        url = httpx.Proxy(proxy).url
    except (ValueError, httpx.InvalidURL) as error:
        return str(error)
    if url.scheme.startswith("socks") and find_spec("socksio") is None:
        return "SOCKS needs 'pip install socksio'"
    return None if url.host else "it names no host"


@cache
def is_this_machine(host: str) -> bool:
    """Return whether a URL's host is a name or an address of this machine."""
    name = host.lower().strip("[]").rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        address = ip_address(name)
    except ValueError:
        own = socket.gethostname().lower()
        return name in (own, own.partition(".")[0])
    if address.is_loopback or address.is_unspecified:
        return True
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((name, 0))  # only an address of this machine can be bound to
        except OSError:
            return False
    return True


def through_proxy(url: str) -> str:
    """Return " through the proxy URL" for the text of an error, or nothing without a proxy.

    The URL is shown without its password.
    """
    try:
        proxy = proxy_of(url)
    except (ServerUnreachable, httpx.InvalidURL):
        return ""
    return f" through the proxy {httpx.URL(proxy).copy_with(userinfo=b'')}" if proxy else ""


class ProxyTransport(httpx.AsyncBaseTransport):
    """Sends each request directly or through the proxy of the name in its Host header.

    So a request to one of the addresses that a name stands for follows the rule of the name.
    """

    def __init__(self) -> None:
        self._transports: dict[str | None, httpx.AsyncHTTPTransport] = {}  # by proxy
        self._proxies: dict[str, str | None] = {}  # by host

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        host = f"{request.url.scheme}://{request.headers['Host']}"
        if host not in self._proxies:
            self._proxies[host] = proxy_of(host)
        proxy = self._proxies[host]
        if proxy not in self._transports:
            limits = httpx.Limits(keepalive_expiry=KEEPALIVE_S)  # and as many as are needed
            self._transports[proxy] = httpx.AsyncHTTPTransport(limits=limits, proxy=proxy)
        return await self._transports[proxy].handle_async_request(request)

    async def aclose(self) -> None:
        for transport in self._transports.values():
            await transport.aclose()
