"""The processes of one run, started by `accelerate launch`: which one this is, and how they agree.

Every process trains the same weights on its share of the episodes. What they tell each other beside
gradients goes through a gloo group of its own, so that a long wait for another's episodes never
meets a GPU collective's time limit.

All that can fail or be interrupted happens in `together`, `each` or `first`: there the processes
learn of each other's errors and raise the same one, so that none waits for another that has gone. A
process that dies without a word breaks the group's connections, which the others see as `RankLost`.
"""

import logging
import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import Any, TypeVar

from shared.errors import SQLEnvError
from trainer.config import GRPOConfig
from trainer.errors import ConfigError, RankLost
from trainer.runtime.interrupt import EXIT_CODE, Interrupted, Interrupts

T = TypeVar("T")
log = logging.getLogger(__name__)

# what a launcher tells
LAUNCHER = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR")
SHARDING = ("ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED")
MIXED_PRECISION = "ACCELERATE_MIXED_PRECISION"
# that a process may play while the others wait for it, beside its waits for lost servers
LONGEST_SHARE_S = 3600.0
SERVER_WAITS = 3  # for `config.server_wait_s` each
CONNECTION = re.compile(r"gloo|nccl|connection (closed|reset)|broken pipe", re.IGNORECASE)
SOURCE = re.compile(r"\[\S+\.(cc|cpp):\d+\] ")  # where in torch it happened
PLAIN = (str, int, float, bool, type(None))


class Ranks:
    """This process's place among the run's `count`: `index` from 0, `local_count` of them on this
    machine.

    Without arguments it is the only one, and every method does its work at once.
    """

    def __init__(
        self,
        interrupts: Interrupts | None = None,
        *,
        index: int = 0,
        count: int = 1,
        local_count: int = 1,
        group: Any = None,
    ) -> None:
        self.interrupts = interrupts or Interrupts()
        self.index, self.count, self.local_count, self._group = index, count, local_count, group

    @property
    def main(self) -> bool:
        """Whether this process writes the run's files, starts its server and speaks."""
        return self.index == 0

    def deferred(self) -> AbstractContextManager[None]:
        """Around a whole job: several processes stop only together, where they wait for each other
        anyway."""
        return nullcontext() if self.count == 1 else self.interrupts.deferred()

    def interruptible(self) -> AbstractContextManager[None]:
        """A part that the only process may break off anywhere; of several, what it does in
        `together` may be."""
        return self.interrupts.interruptible() if self.count == 1 else nullcontext()

    def gather(self, value: T) -> list[T]:
        """What every process calls this with, in their order. `RankLost` where one is gone."""
        if self.count == 1:
            return [value]
        from torch.distributed import all_gather_object

        found: list[Any] = [None] * self.count
        try:
            all_gather_object(found, value, group=self._group)
        except RuntimeError as error:
            if (lost := rank_lost(error)) is None:
                raise
            raise lost from error
        return found

    def anywhere(self, flag: bool) -> bool:
        """Whether it is set on any process."""
        return any(self.gather(flag))

    def together(self, work: Callable[[], T]) -> T:
        """Do `work` on every process; this one's result. Where one fails or is interrupted, all
        raise its error."""
        if self.count == 1:
            with self.interrupts.interruptible():
                return work()
        own: SQLEnvError | Interrupted | None = None
        try:
            with self.interrupts.interruptible():
                result = work()
        except (SQLEnvError, Interrupted) as error:
            own = error
        errors = self.gather(None if own is None else _told(own, self.index))
        cause = _cause(errors)
        if cause is None:
            return result
        raised = own if cause == self.index else errors[cause]
        assert raised is not None
        log.info("process %d stops, as process %d does: %r", self.index, cause, raised)
        raise raised

    def each(self, work: Callable[[], T]) -> list[T]:
        """Do `work` on every process; all results, in the processes' order."""
        return self.gather(self.together(work))

    def first(self, work: Callable[[], T]) -> T:
        """Do `work` on process 0; its result, on all."""
        result = self.each(lambda: work() if self.main else None)[0]
        return result  # type: ignore[return-value]

    def deal(self, items: Sequence[T]) -> Sequence[T]:
        """This process's share of `items`: every `count`-th, from its own index on."""
        return items[self.index :: self.count]

    def collect(self, shares: Sequence[Sequence[T]]) -> list[T]:
        """The items in their order, from the processes' shares of them."""
        found: list[Any] = [None] * sum(map(len, shares))
        for index, share in enumerate(shares):
            found[index :: self.count] = share
        return found


@contextmanager
def joined(config: GRPOConfig, interrupts: Interrupts) -> Iterator[Ranks]:
    """The place among the processes that a launcher started, connected with them, or the only one.

    Where the job ends early, process 0 alone raises what all of them know; the others exit as it
    does. `ConfigError` where the settings can't serve several processes.
    """
    if not launched():
        yield Ranks(interrupts)
        return
    import torch
    from accelerate import PartialState
    from torch import distributed

    count, local_count = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_WORLD_SIZE"])
    try:
        device = check_settings(config, count, local_count, torch.cuda.device_count())
    except ConfigError as error:
        if os.environ["LOCAL_RANK"] == "0":  # one of those on this machine says it
            raise
        raise SystemExit(1) from error
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
    distributed.destroy_process_group()  # after an error it could wait for one that has gone


def launched(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this process is one of several that a launcher started."""
    return all(name in environment for name in LAUNCHER) and int(environment["WORLD_SIZE"]) > 1


def check_settings(config: GRPOConfig, count: int, local_count: int, gpus: int) -> str:
    """The device of `count` processes, `local_count` of them on this machine with its `gpus`; or
    `ConfigError`."""
    from trainer.runtime.precision import precision

    for name in SHARDING:
        if os.environ.get(name, "false").lower() == "true":
            raise ConfigError(
                f"{name} is set, but every process must hold the whole model: it samples from it. Launch with "
                "distributed_type MULTI_GPU (trainer/runtime/accelerate/ has such files)"
            )
    config.accumulation_steps(count)
    device, plan = precision(config.device, config.dtype)
    decided = "bf16" if plan.trl_bf16 else "fp16" if plan.trl_fp16 else "no"
    if (mixed := os.environ.get(MIXED_PRECISION, "no")) not in ("no", decided):
        raise ConfigError(
            f"the launcher's mixed_precision is {mixed}, but dtype ({config.dtype}) decides, for sampling too: launch "
            "with mixed_precision no",
            field="dtype",
        )
    if ":" in config.device:
        raise ConfigError(
            f"device is {config.device}, but each of the {count} processes takes a GPU of its own: use device=cuda",
            field="device",
        )
    if device != "cpu" and local_count > gpus:
        raise ConfigError(
            f"{local_count} processes on this machine, which has {gpus} GPUs: launch {gpus} of them, or use device=cpu",
            field="device",
        )
    return device


def check_one_gpu(config: GRPOConfig, gpus: int) -> None:
    """`ConfigError` where a single process sees several GPUs: TRL refuses it, but not before all
    else is measured."""
    from trainer.runtime.precision import precision

    device, _ = precision(config.device, config.dtype)
    if device != "cpu" and gpus > 1:
        index = device.partition(":")[2] or "0"
        raise ConfigError(
            f"a process trains on one GPU, and this one sees {gpus}: add --processes {gpus}, or set "
            f"CUDA_VISIBLE_DEVICES={index} and device=cuda to use one",
            field="device",
        )


def check_same_settings(settings: Mapping[str, Any], ranks: Ranks) -> None:
    """`ConfigError` where a process was started with other settings: every machine has a command
    line of its own."""
    given = ranks.gather(dict(settings))
    for index, (name, value) in (
        (index, item) for index, one in enumerate(given) for item in one.items()
    ):
        if value != given[0].get(name):
            raise ConfigError(
                f"{name} is {given[0].get(name)!r} in process 0, but {value!r} in process {index}: "
                "start the run with the same options on every machine",
                field=name,
            )


def rank_lost(error: BaseException) -> RankLost | None:
    """The `RankLost` of an error that torch raises when a process no longer answers; None of any
    other."""
    from torch.distributed import DistError

    if not (
        isinstance(error, DistError)
        or (isinstance(error, RuntimeError) and CONNECTION.search(str(error)))
    ):
        return None
    said = SOURCE.sub("", str(error)).strip().splitlines() or [type(error).__name__]
    return RankLost(
        "another process of this run ended, or no longer answers: see what it said last. Go on with --resume, from "
        "the last whole step where process 0 could still write a checkpoint, else from the checkpoint before it "
        f"(torch: {said[0][:160]})"
    )


def _cause(errors: Sequence[SQLEnvError | Interrupted | None]) -> int | None:
    """Whose error all raise: an interruption first, as it is somebody's wish; else the first
    process's."""
    found = [index for index, error in enumerate(errors) if error is not None]
    return min(
        found, key=lambda index: (not isinstance(errors[index], Interrupted), index), default=None
    )


def _told(error: SQLEnvError | Interrupted, index: int) -> SQLEnvError | Interrupted:
    """The error as the other processes raise it: a copy that says where it happened, and can be
    sent."""
    if isinstance(error, Interrupted):
        return Interrupted(error.clean)
    details = {
        name: value if isinstance(value, PLAIN) else str(value)
        for name, value in error.details.items()
    }
    place = f"process {index} on {socket.gethostname()}: " if index else ""
    return type(error)(f"{place}{error.message}", **details)
