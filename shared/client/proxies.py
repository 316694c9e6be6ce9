"""Which proxy a request goes through: the environment's, but none to this machine.

Hosts obey HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY, in upper or lower case. Requests to this
machine never use a proxy, whatever NO_PROXY says: a proxy elsewhere could not reach it.
"""

import os
import socket
from ipaddress import ip_address
from urllib.request import getproxies, proxy_bypass

import httpx

from shared.errors import WrongAddress

# Shorter than any server's, so that no request meets a connection that is about to be closed.
KEEPALIVE_S = 4.0


def proxy_of(url: str | httpx.URL) -> str | None:
    """Return the URL of the proxy to `url`, or None; `WrongAddress` if it can't be used."""
    parsed = httpx.URL(url)
    proxies = getproxies()
    name = parsed.scheme if parsed.scheme in proxies else "all"
    proxy = proxies.get(name)
    if not proxy or is_this_machine(parsed.host) or proxy_bypass(parsed.host):
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    try:
        httpx.HTTPTransport(proxy=proxy, verify=False)
        if not httpx.URL(proxy).host:
            raise ValueError("it names no host")
    except (ValueError, ImportError, httpx.InvalidURL) as error:
        raise WrongAddress(
            f"the proxy of {name.upper()}_PROXY can't be used ({error}): correct it, or list"
            f" {parsed.host} in NO_PROXY",
            url=str(url),
        ) from error
    return proxy


def is_this_machine(host: str) -> bool:
    """Return whether a URL's host is a name of this machine or a loopback address."""
    name = host.lower().strip("[]").rstrip(".")
    try:
        address = ip_address(name)
    except ValueError:
        own = ("localhost", socket.gethostname().lower())
        return name in own or name.endswith(".localhost")
    return address.is_loopback or address.is_unspecified


def through_proxy(url: str) -> str:
    """Return " through the proxy URL", without its password, for an error; "" without a proxy."""
    try:
        proxy = proxy_of(url)
    except (WrongAddress, httpx.InvalidURL):
        return ""
    return f" through the proxy {httpx.URL(proxy).copy_with(userinfo=b'')}" if proxy else ""


class ProxyTransport(httpx.AsyncBaseTransport):
    """Sends each request directly or through the proxy of the name in its Host header: one to an
    address that a name stands for follows the rule of the name."""

    def __init__(self) -> None:
        self._transports: dict[str, httpx.AsyncHTTPTransport] = {}  # by scheme and host

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        host = f"{request.url.scheme}://{request.headers['Host']}"
        if host not in self._transports:
            limits = httpx.Limits(keepalive_expiry=KEEPALIVE_S)  # and as many as are needed
            proxy = proxy_of(host)
            try:
                transport = httpx.AsyncHTTPTransport(limits=limits, proxy=proxy)
            except OSError as error:
                name = f"the certificates of SSL_CERT_FILE={os.environ.get('SSL_CERT_FILE')}"
                raise WrongAddress(f"{name} can't be read: {error}", url=host) from error
            self._transports[host] = transport
        return await self._transports[host].handle_async_request(request)

    async def aclose(self) -> None:
        for transport in self._transports.values():
            await transport.aclose()
