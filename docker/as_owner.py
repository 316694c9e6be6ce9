"""Entry point of the trainer's image: `as_owner DIR COMMAND...` runs COMMAND as the owner of DIR.

Docker creates missing bind mounts as root, and files that a program writes as root are hard to
remove on the host. So compose.yaml starts this as root, with the checkout's compose.yaml mounted at
/run/checkout: DIR is given to the owner of that file (to the image's user if that is root), and
COMMAND runs as DIR's owner, unprivileged. Started as another user, it only runs COMMAND.
"""

import errno
import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

CHECKOUT = Path("/run/checkout")
IMAGE_USER = (10001, 10001)  # uid and gid of sqlenv in the Dockerfile


def owner_of(directory: Path, checkout: Path, fallback: tuple[int, int]) -> tuple[int, int]:
    """Return `(uid, gid)` of the first of `directory` and `checkout` that root doesn't own.

    If root owns both, return `fallback`.
    """
    for path in (directory, checkout):
        if path.exists() and (status := path.stat()).st_uid != 0:
            return status.st_uid, status.st_gid
    return fallback


def main(arguments: list[str]) -> None:
    """Change the owner of the directory if needed, drop privileges and run the command."""
    if len(arguments) < 2:
        sys.exit("usage: as_owner DIR COMMAND...")
    directory, command = Path(arguments[0]), arguments[1:]
    if os.getuid() == 0:
        uid, gid = owner_of(directory, CHECKOUT, IMAGE_USER)
        if directory.stat().st_uid != uid:
            with suppress(OSError):  # on a read-only file system; see below
                os.chown(directory, uid, gid)
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    try:
        tempfile.TemporaryFile(dir=directory).close()
    except OSError as error:
        remedy = {
            errno.EROFS: "mount it for writing",
            errno.ENOSPC: "free some space there",
            errno.EDQUOT: "free some space there",
        }.get(error.errno or 0, "change its owner on the host")
        sys.exit(
            f"error: user {os.getuid()} can't write to {directory}: {error.strerror}; {remedy}"
        )
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
