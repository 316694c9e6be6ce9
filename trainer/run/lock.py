"""One process at a time writes to a folder, on which it holds a lock.

A process that ends, also by SIGKILL, holds it no longer. Some file systems have no locks.
"""

import fcntl
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainer.errors import RunError

log = logging.getLogger(__name__)
RETRY_S = 0.2  # after which a lock that `is_held` took is free again


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold a folder in the block; `RunError` if another process holds it."""
    descriptor = _locked(path)
    if descriptor is None:
        time.sleep(RETRY_S)
        descriptor = _locked(path)
    if descriptor is None:
        raise RunError(f"another process uses {path}: wait for its end, or stop it")
    try:
        yield
    finally:
        os.close(descriptor)


def is_held(path: Path) -> bool:
    """Return whether another process, or another block of this one, holds a run's folder."""
    descriptor = _locked(path, shared=True) if path.is_dir() else -1
    if descriptor is None:
        return True
    if descriptor >= 0:
        os.close(descriptor)
    return False


def _locked(path: Path, *, shared: bool = False) -> int | None:
    """Return the descriptor of a folder, locked until it is closed; None if another lock is on."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError as error:
        log.info("can't hold %s: %s", path, error.strerror)
    return descriptor
