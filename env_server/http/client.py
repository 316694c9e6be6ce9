"""Who sends a request: what fairness, queue bounds and quotas count by."""

from starlette.requests import HTTPConnection


def client_of(request: HTTPConnection) -> str:
    """Return the name of the request's API key, or its connection's `host:port` without keys.

    The middleware that checks keys leaves the name in `scope["state"]["key_name"]`.
    """
    if (name := request.scope.get("state", {}).get("key_name")) is not None:
        return str(name)
    return f"{request.client.host}:{request.client.port}" if request.client else "unknown"
