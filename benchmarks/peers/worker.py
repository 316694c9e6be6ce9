"""A process in a peer's environment that answers each line that it reads with another, in JSON.

    python -m benchmarks.peers.worker MODULE:FUNCTION PACKAGES [ARGUMENT]...

FUNCTION, of a module in this folder, takes the arguments and returns an async context manager of
what turns a request into its reply. The first line has the versions of PACKAGES, which commas
separate. This module imports only the standard library.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from importlib.metadata import version
from typing import Any

MODULE = "benchmarks.peers.worker"
Answer = Callable[[Any], Awaitable[Any]]
Opened = AbstractAsyncContextManager[Answer]


def find(name: str) -> Callable[..., Opened]:
    module, _, function = name.partition(":")
    found: Callable[..., Opened] = getattr(import_module(f"benchmarks.peers.{module}"), function)
    return found


async def serve(opened: Opened, packages: str, reply: Callable[[Any], None]) -> None:
    """Answer the lines of stdin until it ends."""
    async with opened as answer:
        reply({name: version(name) for name in packages.split(",") if name})
        # in a thread, so that open connections answer pings meanwhile
        while line := await asyncio.to_thread(sys.stdin.readline):
            reply(await answer(json.loads(line)))


def main(name: str, packages: str, *arguments: str) -> None:
    """Serve; what a package prints goes to stderr."""
    replies, sys.stdout = sys.stdout, sys.stderr

    def reply(value: Any) -> None:
        print(json.dumps(value), file=replies, flush=True)

    asyncio.run(serve(find(name)(*arguments), packages, reply))


if __name__ == "__main__":
    main(*sys.argv[1:])
