"""One process at a time writes to a folder, on which it holds a lock.

A process that ends, also by SIGKILL, holds it no longer. Some file systems have no locks.
"""

import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainer.errors import RunError

if sys.platform != "win32":
    import fcntl

log = logging.getLogger(__name__)
RETRY_S = 0.2  # after which a lock that `is_held` took is free again


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold a folder in the block; `RunError` if another process holds it."""
    with _locked(path) as got:
        if got:
            yield
            return
    time.sleep(RETRY_S)
    with _locked(path) as got:
        if not got:
            raise RunError(f"another process uses {path}: wait for its end, or stop it")
        yield


def is_held(path: Path) -> bool:
    """Return whether another process, or another block of this one, holds a run's folder."""
    try:
        with _locked(path, shared=True) as got:
            return not got
    except OSError:  # it is gone, or not readable
        return False


@contextmanager
def _locked(path: Path, *, shared: bool = False) -> Iterator[bool]:
    """Lock a folder in the block, unless another lock excludes that; yield whether it does not."""
    if sys.platform == "win32":
        yield True
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        got = True
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            got = False
        except OSError as error:
            log.info("can't hold %s: %s", path, error.strerror)
        yield got
    finally:
        os.close(descriptor)
