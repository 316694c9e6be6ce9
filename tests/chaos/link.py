"""A TCP link between a client and one server that can be cut, fall silent or lose replies."""

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import suppress
from enum import StrEnum
from typing import Any, TypeVar

T = TypeVar("T")
HOST = "127.0.0.1"
CHUNK_BYTES = 64 * 1024


class State(StrEnum):
    OPEN = "open"
    CUT = "cut"  # connections are reset, and new ones are not answered
    # data arrives once the link is open again, as on a network that drops and retransmits packets
    SILENT = "silent"


class Link:
    """Listens on `port` and passes everything to `target_port`, in a thread. Use it in `with`."""

    def __init__(self, target_port: int) -> None:
        self.target_port, self.port = target_port, 0
        self._state, self._opened = State.OPEN, asyncio.Event()
        self._opened.set()
        self._replies_to_lose = 0
        self._connections: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="link", daemon=True)

    def __enter__(self) -> "Link":
        self._thread.start()
        self._server = self._call(asyncio.start_server(self._connected, HOST, 0))
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *error: object) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def set(self, state: State) -> None:
        """Change the state at once, for connections that are open too."""
        self._call(self._set(state))

    def lose_replies(self, count: int) -> None:
        """Drop the next `count` replies with their connections; the server has done its work."""
        self._replies_to_lose = count

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _close(self) -> None:
        self._server.close()
        await self._set(State.CUT)
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _set(self, state: State) -> None:
        self._state = state
        if state is State.SILENT:
            self._opened.clear()
        else:
            self._opened.set()
        if state is State.CUT:
            for writer in self._connections:
                writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers, pumps = {writer}, list[asyncio.Task[None]]()
        try:
            if self._state is State.CUT:
                return
            self._connections |= writers
            await self._opened.wait()
            server_reader, server_writer = await asyncio.open_connection(HOST, self.target_port)
            writers.add(server_writer)
            self._connections |= writers
            pumps = [
                asyncio.create_task(self._pump(reader, server_writer, replies=False)),
                asyncio.create_task(self._pump(server_reader, writer, replies=True)),
            ]
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        except OSError:  # the server is down
            return
        finally:
            for pump in pumps:
                pump.cancel()
            self._connections -= writers
            for each in writers:
                each.transport.abort()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, replies: bool
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                await self._opened.wait()
                if replies and self._replies_to_lose > 0:
                    self._replies_to_lose -= 1
                    return
                writer.write(data)
                await writer.drain()
