"""`--processes N`: several trainer processes on this machine, run by accelerate's launcher."""

import logging
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

from shared.server_process import child_environment
from trainer.runtime.cpu_budget import usable_cores
from trainer.runtime.interrupt import EXIT_CODE

# Named explicitly, as accelerate would otherwise read the user's own default file.
ONE_MACHINE = Path(__file__).parent / "accelerate" / "gpus.yaml"
# After Ctrl-C: time for the current update and a checkpoint. torch's default is 30 s.
STOP_S = 300
SECOND_STOP_S = 10.0


def launch(processes: int, arguments: Sequence[str], report: Callable[[str], None] = print) -> int:
    """Run `python -m trainer` with `arguments` in `processes` processes; return the exit code.

    The processes print their own errors; `report` gets the error of one that was killed.
    """
    import psutil
    import torch.distributed.run  # noqa: F401  creates the loggers that are silenced below
    from accelerate.commands.launch import launch_command, launch_command_parser
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    os.environ.update(child_environment())
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, usable_cores() // processes)))
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(STOP_S))
    for name in list(logging.root.manager.loggerDict):
        # they would repeat at length what the processes printed
        if name.startswith("torch.distributed.elastic"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
    options = ["--config_file", str(ONE_MACHINE), "--num_processes", str(processes)]
    options += ["-m", "trainer", *arguments]
    try:
        launch_command(launch_command_parser().parse_args(options))
    except ChildFailedError as error:
        index, failure = error.get_first_failure()
        if failure.exitcode >= 0:
            return int(failure.exitcode)
        name = signal.Signals(-failure.exitcode).name
        hint = ": was there enough memory?" if name == "SIGKILL" else ""
        report(f"error: process {index} of {processes} was ended by {name}{hint}")
        return 128 - failure.exitcode
    except SignalException:
        # a second signal: the launcher no longer waits for its processes
        for stop in (signal.SIGTERM, signal.SIGKILL):
            children = psutil.Process().children()
            for child in children:
                child.send_signal(stop)
            psutil.wait_procs(children, timeout=SECOND_STOP_S)
        return EXIT_CODE
    return 0
