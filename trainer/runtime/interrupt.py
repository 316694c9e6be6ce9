"""Ctrl-C and SIGTERM in a training run: stop where a checkpoint can be written.

By default a signal raises `Interrupted` at once. Inside `deferred()`, which surrounds training, the
first one only sets `requested`, except in blocks marked `interruptible()` (a rollout, a small
evaluation), which don't change the model. A second signal always raises at once.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

EXIT_CODE = 130  # what a shell reports for a program ended by SIGINT


class Interrupted(KeyboardInterrupt):
    """A signal asked the run to stop. `clean` is False where it interrupted an update."""

    def __init__(self, clean: bool = True) -> None:
        super().__init__("interrupted")
        self.clean = clean


class Interrupts:
    """Handles SIGINT and SIGTERM in its block, in the main thread; elsewhere it does nothing."""

    def __init__(self) -> None:
        self.requested = False
        self._deferred = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        second, self.requested = self.requested, True
        if second or not self._deferred:
            raise Interrupted(clean=not self._deferred)

    @contextmanager
    def deferred(self, deferred: bool = True) -> Iterator[None]:
        """Defer signals in the block: the caller checks `requested` where it can stop."""
        before, self._deferred = self._deferred, deferred
        try:
            yield
        finally:
            self._deferred = before

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Let signals interrupt the block, also inside `deferred()`."""
        with self.deferred(False):
            if self.requested:
                raise Interrupted
            yield
