"""The environment server: episodes of SQL exploration over HTTP. `env_server.episode` works
without the service."""

from importlib.util import find_spec

from shared.shipped import NEEDS_UNIX

if find_spec("resource") is None:  # before an import of it fails, whatever is imported
    raise SystemExit(f"error: {NEEDS_UNIX}")
