"""Ctrl-C and SIGTERM in a training run: stop where a checkpoint can be written, not in the middle
of an update.

`Interrupts` is a context manager around the whole job. Most of the time a signal raises
`Interrupted` at once. Inside `deferred()`, which the job puts around training, the first signal
only sets `requested`, unless a part marked `interruptible()` (a rollout, a small evaluation) is
under way: nothing of the model changes there. A second signal raises at once everywhere.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

EXIT_CODE = 130  # what a shell reports for a program that SIGINT ended


class Interrupted(KeyboardInterrupt):
    """The user, or the machine, asked the run to stop. `clean` is False where it broke into an
    update."""

    def __init__(self, clean: bool = True) -> None:
        super().__init__("interrupted")
        self.clean = clean


class Interrupts:
    """Takes over SIGINT and SIGTERM while it is entered; does nothing outside the main thread,
    where Python can't."""

    def __init__(self) -> None:
        self.requested = False
        self._updating = False  # inside deferred() and outside interruptible()
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        again, self.requested = self.requested, True
        if not self._updating:
            raise Interrupted
        if again:
            raise Interrupted(clean=False)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Signals wait inside: the caller looks at `requested` at its own safe points."""
        before, self._updating = self._updating, True
        try:
            yield
        finally:
            self._updating = before

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """A part inside `deferred()` that may be broken off anywhere."""
        before, self._updating = self._updating, False
        try:
            if self.requested:
                raise Interrupted
            yield
        finally:
            self._updating = before
