"""The players of peers, as child processes whose CPU time can be read."""

import contextlib
import json
import os
import selectors
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.environments import NotMeasured, reason
from benchmarks.peers.player import MODULE
from shared.server_process import child_environment, session_cpu_s

ANSWER_TIMEOUT_S = 300.0  # of a wave, and of the start of a player, which may import torch


class PlayerProcess:
    """A player in a session of its own, with the workers that it starts. Use `with`."""

    def __init__(
        self,
        python: Path,
        player: str,
        workload: Path,
        url: str,
        packages: Sequence[str],
        log: Path,
    ) -> None:
        self._log = log
        command = [str(python), "-m", MODULE, player, str(workload), url, *packages]
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                command,
                env=child_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )

    def __enter__(self) -> "PlayerProcess":
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it has ended
            self._process.stdin.close()
        try:
            self._process.wait(10.0)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def kill(self) -> None:
        """Kill the player and the processes that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def cpu_s(self) -> float:
        """Return the CPU-seconds of the player and of the processes that it started."""
        return session_cpu_s(self._process.pid)

    def play(self) -> float:
        """Play a wave and return the sum of its rewards. Raises `NotMeasured` if that fails."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # `answer` says why
            self._process.stdin.write(b"\n")
            self._process.stdin.flush()
        return float(self.answer())

    def answer(self) -> Any:
        """Return the next line that the player writes. Raises `NotMeasured` without one."""
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(ANSWER_TIMEOUT_S):
                raise NotMeasured(f"its player did not answer within {ANSWER_TIMEOUT_S:.0f} s")
        if line := self._process.stdout.readline():
            return json.loads(line)
        raise NotMeasured(f"its player ended: {reason(self._log.read_text(errors='replace'))}")
