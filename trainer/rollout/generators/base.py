"""What plays an episode: a `Generator` samples token ids; a `Policy` writes action texts.

Both take the turns of all unfinished episodes together. Their asynchronous forms take one turn at a
time, so that no episode waits for another's.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

from shared.errors import SQLEnvError
from trainer.rollout.episode import Episode
from trainer.rollout.transcript import Sample

T = TypeVar("T")


class Generator(Protocol):
    """Samples the turns of a batch's unfinished episodes, its rows, and keeps their contexts."""

    def start(self, streams: Sequence[tuple[int, ...]]) -> None: ...

    def room(self, row: int) -> int: ...

    def restart(self, row: int, kept: int) -> None:
        """Forget a row's context behind its first `kept` ids. Its random stream stays."""

    def sample(
        self, appended: Mapping[int, Sequence[int]]
    ) -> Mapping[int, Sample | SQLEnvError | None]:
        """Append ids to rows (first their whole prompts), start a turn for each, and return those
        that have ended: all of them, or at least one while the others continue in the next call.

        A row that is absent and has no turn under way is finished. An error in place of a turn
        means that infrastructure failed, and the episode is lost; None ends the episode without an
        answer.
        """


class Loop(Protocol):
    def run_all(self, calls: Sequence[Callable[[], Coroutine[Any, Any, T]]]) -> list[T]:
        """Return the results of `calls`, run together; the first that raises cancels the others."""


@runtime_checkable
class AsyncGenerator(Generator, Loop, Protocol):
    async def sample_one(self, index: int, appended: Sequence[int]) -> Sample | SQLEnvError: ...


class Policy(Protocol):
    """Plays by text. None ends the episode without an answer; an error in place of a text means
    that infrastructure failed, and the episode is lost."""

    def act(self, episodes: Sequence[Episode]) -> Sequence[str | SQLEnvError | None]: ...


@runtime_checkable
class AsyncPolicy(Loop, Protocol):
    """A `Policy` that writes the texts of a batch's episodes apart from each other."""

    async def act_one(self, episode: Episode) -> str | SQLEnvError | None: ...


AnyPolicy = Policy | AsyncPolicy
