"""One process at a time writes to a folder, on which it holds a lock.

A process that ends, also by SIGKILL, holds it no longer. Some file systems have no locks.
"""

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainer.errors import RunError

log = logging.getLogger(__name__)


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold a folder in the block; `RunError` if another process holds it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            message = f"another process uses {path}: wait for its end, or stop it"
            raise RunError(message) from error
        except OSError as error:
            log.info("can't hold %s: %s", path, error.strerror)
        yield
    finally:
        os.close(descriptor)
