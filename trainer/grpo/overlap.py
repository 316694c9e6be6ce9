"""Rollouts one step off policy: each batch is sampled while the weights learn from the one before.

    step k:   take batch k  ->  start batch k+1 with the present weights  ->  update on batch k

Batch k+1 therefore has the weights from before update k. Its questions and random streams are those
of a synchronous run. A checkpoint holds no batch: the one under way is sampled again when the run
resumes. Only a model server can sample: in this process, the update changes the weights.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

from trainer.config import GRPOConfig
from trainer.errors import ConfigError
from trainer.rollout.adapters import TRL_COLUMNS, OnRows, Sampler, step_seed
from trainer.rollout.batch import EpisodeClient
from trainer.rollout.dataset import Prompt, as_prompts, question_id_of
from trainer.rollout.generators.base import AsyncGenerator
from trainer.rollout.loop import BackgroundEpisodes, check_lost_rows
from trainer.rollout.row import RolloutRow, RolloutStats
from trainer.runtime.ranks import Ranks

log = logging.getLogger(__name__)


@dataclass
class _Batch:
    """A generation batch under way."""

    questions: list[str]
    episodes: BackgroundEpisodes
    sampler_step: int | None  # training steps of the weights that sample it
    started_s: float


class OverlappedRollouts:
    """A TRL `rollout_func` that samples the next batch during the update; the arguments are those
    of `rollout_func`. As a context manager it ends the batch under way."""

    def __init__(
        self,
        config: GRPOConfig,
        sampler: Sampler | None,
        client: EpisodeClient | None,
        stats: RolloutStats | None,
        on_rows: OnRows | None,
        ranks: Ranks,
    ) -> None:
        if sampler is None or client is None:
            raise ConfigError(
                "overlap_rollouts needs a sampler on a model server, and an open client of the "
                "environment: pass both to build_trainer, or set overlap_rollouts=false",
                field="overlap_rollouts",
            )
        self._config, self._sampler, self._client = config, sampler, client
        self._stats, self._on_rows, self._ranks = stats or RolloutStats(), on_rows, ranks
        self._ahead: _Batch | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._ahead is not None:
            self._ahead.episodes.cancel()
            self._ahead = None

    def __call__(self, prompts: Sequence[Prompt], trainer: Any) -> dict[str, list[Any]]:
        """Return the batch of this step and start that of the next."""
        step = trainer.state.global_step
        batch = self._take(prompts) or self._start(prompts, step, trainer)
        rows = self._rows(batch, trainer)
        check_lost_rows(rows, self._config)
        following = trainer.next_prompts()
        if following is not None:
            self._ahead = self._start(following, step + 1, trainer)
        trainer.sampler_step = batch.sampler_step
        if self._on_rows is not None:
            self._on_rows(rows, trainer)
        return {name: [getattr(row, name) for row in rows] for name in TRL_COLUMNS}

    def wait(self) -> None:
        """Wait for the batch under way, so that nothing else is measured beside it."""
        if self._ahead is not None:
            self._ahead.episodes.wait()

    def _take(self, prompts: Sequence[Prompt]) -> _Batch | None:
        """Return the batch under way, None in a run's first step and its first after a resume."""
        batch, self._ahead = self._ahead, None
        if batch is None or batch.questions == [question_id_of(chat) for chat in prompts]:
            return batch
        log.warning("the batch sampled ahead has other questions than this step: it is dropped")
        batch.episodes.cancel()
        return None

    def _start(self, prompts: Sequence[Prompt], step: int, trainer: Any) -> _Batch:
        chats = as_prompts(prompts, self._config)
        generator = self._sampler(trainer)
        if not isinstance(generator, AsyncGenerator):
            raise TypeError("overlap_rollouts needs a generator that samples on its own loop")
        start = time.perf_counter()
        episodes = self._ranks.together(
            lambda: BackgroundEpisodes(
                chats,
                trainer.processing_class,
                self._config,
                generator,
                client=self._client,
                seed=step_seed(self._config, step),
            )
        )
        started = time.perf_counter()
        self._stats.add(RolloutStats(rollout_s=started - start, env_wait_s=started - start))
        questions = [question_id_of(chat) for chat in chats]
        return _Batch(questions, episodes, trainer.sampler_step, started)

    def _rows(self, batch: _Batch, trainer: Any) -> list[RolloutRow]:
        """Wait for a batch, and count it: of its seconds, those that this process waited."""
        start = time.perf_counter()
        rows = self._ranks.together(batch.episodes.rows)
        waited, own = time.perf_counter() - start, batch.episodes.stats
        self._stats.add(replace(own, rollout_s=waited, generate_s=waited, env_wait_s=0.0))
        overlap = max(0.0, batch.episodes.overlap_end_s - batch.started_s)
        trainer._metrics["train"]["sampling/overlap_s"].append(overlap)
        return rows
