"""Several trainer processes on this machine: how many, and their start by accelerate's launcher."""

import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from shared.console import failure
from shared.server_process import child_environment
from trainer.config.settings import ConfigError, GRPOConfig
from trainer.runtime.cpu_budget import usable_cores
from trainer.runtime.interrupt import EXIT_CODE
from trainer.runtime.memory import GIB, machine_memory
from trainer.runtime.precision import precision
from trainer.runtime.ranks import LAUNCHER, launched

# Named explicitly, as accelerate would otherwise read the user's own default file.
ONE_MACHINE = Path(__file__).parent / "accelerate" / "gpus.yaml"
# After Ctrl-C: time for the current update and a checkpoint. torch's default is 30 s.
STOP_S = 300
MOST_PROCESSES = 4
PROCESS_MEMORY = 2 * GIB  # of a process with a small model, and its share of the server


def default_processes(
    config: GRPOConfig,
    preset: str,
    kept: int | None = None,
    environment: Mapping[str, str] = os.environ,
) -> int:
    """Return how many processes train where the user gives no number.

    A resumed run takes the `kept` number that it had. A new run takes one per CPU core, up to
    `MOST_PROCESSES` and within the memory, if it trains a small model, of the preset offline, which
    more threads don't make faster. It is reduced until the processes can share a step.
    """
    if environment.keys() >= set(LAUNCHER):
        return 1
    device, _ = precision(config.device, config.dtype)
    most = 1
    if kept is not None:
        most = kept if device == "cpu" else min(kept, torch.cuda.device_count())
    elif (
        device == "cpu"
        and sys.platform == "linux"
        and "OMP_NUM_THREADS" not in environment
        and preset == "offline"
    ):
        most = min(usable_cores(), MOST_PROCESSES, machine_memory() // PROCESS_MEMORY)
    for processes in range(most, 1, -1):
        try:
            config.accumulation_steps(processes)
        except ConfigError:
            continue
        return processes
    return 1


def run_in_several(
    processes: int | None,
    config: GRPOConfig,
    preset: str,
    kept: int | None,
    arguments: Sequence[str],
) -> int | None:
    """Run `python -m trainer` with `arguments` in several `processes` and return the exit code;
    None if this process does the work: it is the only one, or one that a launcher started."""
    if launched():
        count = int(os.environ["WORLD_SIZE"])
        if processes not in (None, count):
            raise ConfigError(
                f"--processes is {processes}, but a launcher started {count}: leave it out"
            )
        return None
    if processes is None:
        processes = default_processes(config, preset, kept)
    config.accumulation_steps(processes)  # refuse a bad number once, not in each process
    return launch(processes, arguments) if processes > 1 else None


def launch(processes: int, arguments: Sequence[str]) -> int:
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
    try:
        with TemporaryDirectory() as logs:  # empty, but torch would leave its own in /tmp
            options += ["--log_dir", logs, "-m", "trainer", *arguments]
            launch_command(launch_command_parser().parse_args(options))
    except ChildFailedError as error:
        index, first = error.get_first_failure()
        if first.exitcode >= 0:
            return int(first.exitcode)
        name = signal.Signals(-first.exitcode).name
        hint = ": was there enough memory?" if name == "SIGKILL" else ""
        message = f"process {index} of {processes} was ended by {name}{hint}"
        return failure(message, 128 - first.exitcode).exit_code
    except SignalException:  # the processes have it too, and end by themselves
        return EXIT_CODE
    return 0
