"""The processes of one run, started by `accelerate launch`: their ranks and how they stay in step.

What they exchange besides gradients goes through a gloo group of its own, so that a long wait for
another process's episodes doesn't exceed the time limit of a GPU collective. What can fail or be
interrupted runs in `together`, `each` or `first`: there all raise the same error, so that none
waits for one that has stopped. Where a process is killed, the others raise `RankLost`.
"""

import atexit
import os
import re
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from typing import Any, NoReturn, TypeVar

from shared.errors import SQLEnvError
from trainer.config.settings import ConfigError, GRPOConfig
from trainer.errors import RankLost
from trainer.runtime.interrupt import EXIT_CODE, Interrupted, Interrupts

T = TypeVar("T")

# set by a launcher
LAUNCHER = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR")
SHARDING = ("ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED")  # a launcher's own
# for which the others wait for a process's episodes, besides its waits for lost servers
LONGEST_SHARE_S = 3600.0
SERVER_WAITS = 3  # of `config.server_wait_s` each
CONNECTION = re.compile(r"gloo|nccl|connection (closed|reset)|broken pipe", re.IGNORECASE)
SOURCE = re.compile(r"\[\S+\.(cc|cpp):\d+\] ")  # torch's source location in a message


@dataclass(eq=False)
class Ranks:
    """This process's `index` among the `count` of the run, `local_count` of them on this machine.
    Without arguments it is the only process, and no method communicates."""

    interrupts: Interrupts = field(default_factory=Interrupts)
    _: KW_ONLY
    index: int = 0
    count: int = 1
    local_count: int = 1
    group: Any = None

    @property
    def main(self) -> bool:
        return self.index == 0

    def deferred(self) -> AbstractContextManager[None]:
        """Defer signals for a whole job of several processes, which stop together in `together`."""
        return nullcontext() if self.count == 1 else self.interrupts.deferred()

    def interruptible(self) -> AbstractContextManager[None]:
        """Let signals interrupt the block of a single process; several use `together` instead."""
        return self.interrupts.interruptible() if self.count == 1 else nullcontext()

    def gather(self, value: T) -> list[T]:
        if self.count == 1:
            return [value]
        from torch.distributed import all_gather_object

        values: list[Any] = [None] * self.count
        try:
            all_gather_object(values, value, group=self.group)
        except RuntimeError as error:
            if (lost := rank_lost(error)) is None:
                raise
            raise lost from error
        return values

    def anywhere(self, flag: bool) -> bool:
        return any(self.gather(flag))

    def together(self, work: Callable[[], T]) -> T:
        """Do `work` on every process and return this one's result, or raise one's error in all."""
        own: SQLEnvError | Interrupted | None = None
        try:
            with self.interrupts.interruptible():
                result = work()
        except (SQLEnvError, Interrupted) as error:
            own = error
        errors = self.gather(None if own is None else _portable(own, self.index))
        failed = [(index, one) for index, one in enumerate(errors) if one is not None]
        if not failed:
            return result
        # an interruption takes precedence
        index, cause = min(failed, key=lambda one: not isinstance(one[1], Interrupted))
        raise own if own is not None and index == self.index else cause

    def each(self, work: Callable[[], T]) -> list[T]:
        return self.gather(self.together(work))

    def first(self, work: Callable[[], T]) -> T:
        result = self.each(lambda: work() if self.main else None)[0]
        return result  # type: ignore[return-value]


@contextmanager
def joined(config: GRPOConfig, interrupts: Interrupts) -> Iterator[Ranks]:
    """Connect with the processes that a launcher started, if any, for the block. Where the job ends
    early, process 0 raises the error and the others exit with its exit code."""
    import torch
    from accelerate import PartialState
    from torch import distributed

    if not launched():
        check_one_gpu(config, torch.cuda.device_count())
        yield Ranks(interrupts)
        return

    count, local_count = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_WORLD_SIZE"])
    try:
        device = check_settings(config, count, local_count, torch.cuda.device_count())
    except ConfigError as error:
        if os.environ["LOCAL_RANK"] == "0":  # print it once per machine
            raise
        raise SystemExit(1) from error
    os.environ.pop("ACCELERATE_MIXED_PRECISION", None)  # of the launcher: the dtype decides
    limit = timedelta(seconds=LONGEST_SHARE_S + SERVER_WAITS * config.server_wait_s)
    PartialState(cpu=device == "cpu")
    group = distributed.new_group(backend="gloo", timeout=limit)
    ranks = Ranks(
        interrupts, index=distributed.get_rank(), count=count, local_count=local_count, group=group
    )
    try:
        yield ranks
    except (SQLEnvError, Interrupted) as error:
        if ranks.main or isinstance(error, RankLost):
            raise
        raise SystemExit(EXIT_CODE if isinstance(error, Interrupted) else 1) from error
    distributed.destroy_process_group()  # not after an error: it could wait for a dead process


def launched(environment: Mapping[str, str] = os.environ) -> bool:
    return all(name in environment for name in LAUNCHER) and int(environment["WORLD_SIZE"]) > 1


def check_not_launched(command: str) -> None:
    if launched():
        raise ConfigError(f"{command} runs in one process: start it without a launcher")


def run_and_exit(work: Callable[[], Any]) -> NoReturn:
    """Do `work` and end the process with its exit code, before the interpreter is torn down: gloo's
    threads may still free Python objects then, which aborts one process in five
    (https://github.com/pytorch/pytorch/issues/190489)."""
    code = 1
    try:
        try:
            work()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        atexit._run_exitfuncs()
        sys.stderr.flush()
        sys.stdout.flush()
    finally:  # also where the reader of a stream is gone
        os._exit(code)


def average_gradients(model: Any, processes: int) -> None:
    from torch import distributed

    for parameter in model.parameters():
        if parameter.grad is not None:
            distributed.all_reduce(parameter.grad)
            parameter.grad /= processes


def check_settings(config: GRPOConfig, count: int, local_count: int, gpus: int) -> str:
    """Return the device for `count` processes, `local_count` of them on this machine's `gpus`
    GPUs."""
    from trainer.runtime.precision import precision

    if any(os.environ.get(name, "false").lower() == "true" for name in SHARDING):
        raise ConfigError(
            f"{' or '.join(SHARDING)} is set, but every process holds the whole model: launch with "
            "distributed_type MULTI_GPU (see trainer/runtime/accelerate/)"
        )
    config.accumulation_steps(count)
    device, _ = precision(config.device, config.dtype)
    if device != "cpu" and (":" in config.device or local_count > gpus):
        raise ConfigError(
            f"device is {config.device}, and this machine has {gpus} GPUs: each of its "
            f"{local_count} processes needs one of its own, with device=cuda; or use device=cpu"
        )
    return device


def check_one_gpu(config: GRPOConfig, gpus: int, *, training: bool = True) -> None:
    """Raise `ConfigError` where a single process sees several GPUs, which TRL refuses too late.
    Without `training`, the device's index may choose one."""
    from trainer.runtime.precision import precision

    device, _ = precision(config.device, config.dtype)
    _, chosen, index = device.partition(":")
    if device == "cpu" or gpus < 2 or (chosen and not training):
        return
    remedy = f"set CUDA_VISIBLE_DEVICES={index or 0} and device=cuda"
    remedy += f", or start 'train' with --processes {gpus}" if training else ", or device=cuda:0"
    raise ConfigError(f"a process uses one GPU, but sees {gpus}: {remedy}")


def check_shared_server(servers: Sequence[str], ranks: Ranks) -> None:
    if not servers and ranks.count > ranks.local_count:
        raise ConfigError(
            "processes on several machines need an environment server that all can reach: start "
            "one with 'python -m env_server --host 0.0.0.0' and pass --server http://ITS-NAME:8000"
        )


def check_same_settings(settings: Mapping[str, Any], ranks: Ranks) -> None:
    found = ranks.gather(dict(settings))
    if names := [name for name in settings if any(one[name] != found[0][name] for one in found)]:
        raise ConfigError(
            f"the processes have different settings ({', '.join(names)}): start the run with the "
            "same options on every machine"
        )


def rank_lost(error: BaseException) -> RankLost | None:
    from torch.distributed import DistError

    broken = isinstance(error, RuntimeError) and CONNECTION.search(str(error))
    if not broken and not isinstance(error, DistError):
        return None
    reason = SOURCE.sub("", str(error)).strip().partition("\n")[0]
    return RankLost(
        "another process of this run ended or no longer answers: see its last output. Resume the "
        "run with --resume: from the last complete step if process 0 could still write a "
        f"checkpoint, else from the previous checkpoint (torch: {reason[:160]})"
    )


def _portable(error: SQLEnvError | Interrupted, index: int) -> SQLEnvError | Interrupted:
    """Return a copy of the error that can be pickled and names the process where it happened."""
    if isinstance(error, Interrupted):
        return Interrupted(error.clean)
    place = f"process {index} on {socket.gethostname()}: " if index else ""
    return type(error)(f"{place}{error.message}")
