"""A worker process: one thread with one `SqlRunner` and one socket to the parent, a `SqlPool`.

    python -m env_server.sql.worker SOCKET_FD MARKER_FD LIMITS_JSON

It reports that it is ready with an empty frame, and exits when the socket closes.
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
from typing import BinaryIO

from env_server.sql import jobs
from env_server.sql.limits import SqlLimits
from env_server.sql.run import SqlRunner

FLUSH_AFTER_S = 0.005  # results wait no longer for later jobs of their frame, except for one


def main() -> None:
    socket_fd, marker_fd, limits_json = sys.argv[1:]
    limits = SqlLimits(**json.loads(limits_json))
    for stop in (signal.SIGINT, signal.SIGTERM):  # the parent handles them, and closes the socket
        signal.signal(stop, signal.SIG_IGN)
    marker = jobs.Marker(int(marker_fd))
    os.close(int(marker_fd))
    _set_resource_limits(limits)

    def asked_to_stop() -> bool:
        return marker.get(jobs.STOP_AT) == marker.get(0)

    with (
        socket.socket(fileno=int(socket_fd)) as channel,
        SqlRunner(limits, asked_to_stop) as runner,
    ):
        serve(channel, marker, runner)


def serve(channel: socket.socket, marker: jobs.Marker, runner: SqlRunner) -> None:
    """Answer frames until the parent closes its end."""
    try:
        channel.sendall(jobs.LENGTH.pack(0))
        stream = channel.makefile("rb")
        while body := _read_frame(stream):
            results: list[tuple[int, jobs.SqlResult]] = []
            flushed = time.monotonic()
            for number, job in jobs.decode_jobs(body):
                if number <= marker.get(jobs.REASSIGNED_AT):
                    continue
                now = time.monotonic()
                if results and now - flushed > FLUSH_AFTER_S:
                    channel.sendall(jobs.encode_results(results))
                    results, flushed = [], now
                marker.begin(number, now, time.process_time())
                try:
                    result = runner.run(job)
                except Exception as error:  # a fault of this package, not of the agent
                    message = f"{type(error).__name__}: {error}"
                    result = jobs.SqlResult(error=message, error_code="internal")
                results.append((number, result))
            marker.begin(0)
            channel.sendall(jobs.encode_results(results))
    except (BrokenPipeError, ConnectionResetError):
        pass  # the parent is gone


def _read_frame(stream: BinaryIO) -> bytes:
    """Return a frame's body, or b"" at the end of the stream."""
    head = stream.read(jobs.LENGTH.size)
    size = jobs.LENGTH.unpack(head)[0] if len(head) == jobs.LENGTH.size else 0
    body = stream.read(size)
    return body if len(body) == size else b""


def _set_resource_limits(limits: SqlLimits) -> None:
    try:
        used_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE
    except OSError:  # a system without /proc: no limit
        used_bytes = 2**40
    for kind, maximum in (
        (resource.RLIMIT_AS, used_bytes + limits.max_address_space_growth_bytes),
        (resource.RLIMIT_NOFILE, limits.max_open_files),
        (resource.RLIMIT_FSIZE, limits.max_file_bytes),
        (resource.RLIMIT_CORE, limits.max_core_bytes),
    ):
        hard = resource.getrlimit(kind)[1]
        value = maximum if hard == resource.RLIM_INFINITY else min(maximum, hard)
        resource.setrlimit(kind, (value, value))


if __name__ == "__main__":
    main()
