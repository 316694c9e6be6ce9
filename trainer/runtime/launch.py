"""`--processes N`: several trainer processes on this machine, started and watched by accelerate's
own launcher."""

import logging
import os
import signal
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from trainer.runtime.cpu_budget import usable_cores
from trainer.runtime.interrupt import EXIT_CODE

# a file, lest the user's own default one is read
ONE_MACHINE = Path(__file__).parent / "accelerate" / "gpus.yaml"
# for the update under way and a checkpoint, after Ctrl-C; torch's own 30 s may cut them short
STOP_S = 300
SECOND_STOP_S = 10.0


def launch(processes: int, arguments: Sequence[str], say: Any = print) -> int:
    """Run `python -m trainer` with `arguments` in `processes` processes, and wait. The exit code.

    They say themselves what goes wrong; `say` hears of one that could not.
    """
    import torch.distributed.run  # noqa: F401  its loggers are quietened below
    from accelerate.commands.launch import launch_command, launch_command_parser
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, usable_cores() // processes)))
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(STOP_S))
    for name in list(logging.root.manager.loggerDict):
        # long reports of what the processes said themselves
        if name.startswith("torch.distributed.elastic"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
    options = [
        "--config_file",
        str(ONE_MACHINE),
        "--num_processes",
        str(processes),
        "-m",
        "trainer",
        *arguments,
    ]
    try:
        launch_command(launch_command_parser().parse_args(options))
    except ChildFailedError as error:
        index, failure = error.get_first_failure()
        if failure.exitcode < 0:
            name = signal.Signals(-failure.exitcode).name
            memory = ": was there enough memory?" if name == "SIGKILL" else ""
            say(f"error: process {index} of {processes} was ended by {name}{memory}")
            return 128 - failure.exitcode
        return int(failure.exitcode)
    except SignalException:
        _end_children()
        return EXIT_CODE
    return 0


def _end_children() -> None:
    """End the processes that a second signal kept the launcher from waiting for."""
    import psutil

    for stop in (signal.SIGTERM, signal.SIGKILL):
        children: Iterable[Any] = psutil.Process().children()
        for child in children:
            child.send_signal(stop)
        psutil.wait_procs(children, timeout=SECOND_STOP_S)
