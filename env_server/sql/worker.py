"""A worker process: one thread, one `SqlRunner`, one socket to the parent. `SqlPool` starts it;
nobody else does.

    python -m env_server.sql.worker SOCKET_FD MARKER_FD POLICY_JSON

It says hello with an empty frame and ends when the socket does. Frames and the marker are those of
`jobs.py`.
"""

import json
import mmap
import os
import resource
import signal
import socket
import sys
import time
from pathlib import Path

from env_server.sql.jobs import (
    LEFT_OUT,
    LEFT_OUT_AT,
    LENGTH,
    MARKER,
    MARKER_BYTES,
    SqlResult,
    decode_jobs,
    encode_results,
)
from env_server.sql.limits import SqlPolicy
from env_server.sql.runner import SqlRunner

# results do not wait longer than this for slower ones of their frame, one job aside
FLUSH_AFTER_S = 0.005


def main() -> None:
    socket_fd, marker_fd, policy_json = sys.argv[1:]
    fields = json.loads(policy_json)
    policy = SqlPolicy(**{**fields, "functions": tuple(fields["functions"])})
    # Ctrl-C is for the parent, which closes the socket
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    marker = mmap.mmap(int(marker_fd), MARKER_BYTES)
    os.close(int(marker_fd))
    _limit(policy)
    with socket.socket(fileno=int(socket_fd)) as channel, SqlRunner(policy) as runner:
        serve(channel, marker, runner)


def serve(channel: socket.socket, marker: mmap.mmap, runner: SqlRunner) -> None:
    """Answer frames until the parent closes its end."""
    try:
        channel.sendall(LENGTH.pack(0))
        while body := _read_frame(channel):
            results: list[tuple[int, SqlResult]] = []
            flushed = time.monotonic()
            for number, job in decode_jobs(body):
                if number <= LEFT_OUT.unpack_from(marker, LEFT_OUT_AT)[0]:
                    continue
                now = time.monotonic()
                if results and now - flushed > FLUSH_AFTER_S:
                    channel.sendall(encode_results(results))
                    results, flushed = [], now
                MARKER.pack_into(marker, 0, number, now, time.process_time())
                try:
                    result = runner.run(job)
                # a fault of this package, which must not look like the agent's
                except Exception as error:
                    result = SqlResult(
                        error=f"{type(error).__name__}: {error}", error_code="internal"
                    )
                results.append((number, result))
            MARKER.pack_into(marker, 0, 0, 0.0, 0.0)
            channel.sendall(encode_results(results))
    except (BrokenPipeError, ConnectionResetError):
        pass  # the parent is gone


def _read_frame(channel: socket.socket) -> bytes:
    """A frame's body, or b"" at the end of the stream."""
    head = _read(channel, LENGTH.size)
    return _read(channel, LENGTH.unpack(head)[0]) if head else b""


def _read(channel: socket.socket, size: int) -> bytes:
    data = channel.recv(size)
    if 0 < len(data) < size:
        parts = [data]
        missing = size - len(data)
        while missing and (data := channel.recv(missing)):
            parts.append(data)
            missing -= len(data)
        data = b"" if missing else b"".join(parts)
    return data


def _limit(policy: SqlPolicy) -> None:
    for what, most in (
        (resource.RLIMIT_AS, _address_space_bytes() + policy.max_address_space_growth_bytes),
        (resource.RLIMIT_NOFILE, policy.max_open_files),
        (resource.RLIMIT_FSIZE, policy.max_file_bytes),
        (resource.RLIMIT_CORE, policy.max_core_bytes),
    ):
        hard = resource.getrlimit(what)[1]
        limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (limit, limit))


def _address_space_bytes() -> int:
    """What this process holds. A terabyte, so no limit, where the system has no /proc."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:
        return 2**40
    return pages * mmap.PAGESIZE


if __name__ == "__main__":
    main()
