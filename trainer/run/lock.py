"""One process at a time trains a run: it holds a lock on the run's folder.

A process that ends, also by SIGKILL, holds it no longer. Some file systems have no locks.
"""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainer.errors import RunError

if sys.platform != "win32":
    import fcntl

log = logging.getLogger(__name__)


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold a run's folder in the block; `RunError` if another process holds it."""
    with _attempt(path) as got:
        if not got:
            raise RunError(f"another process trains {path}: wait for its end, or stop it")
        yield


def is_held(path: Path) -> bool:
    """Return whether another process, or another block of this one, holds a run's folder."""
    with _attempt(path) as got:
        return not got


@contextmanager
def _attempt(path: Path) -> Iterator[bool]:
    """Hold a folder in the block, unless another does; yield whether it is free."""
    if sys.platform == "win32":
        yield True
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        free = True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            free = False
        except OSError as error:
            log.info("can't hold %s: %s", path, error.strerror)
        yield free
    finally:
        os.close(descriptor)
