"""One episode while it is played, and its record as a `RolloutRow`."""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from shared.errors import SQLEnvError
from shared.models import Outcome, StepResult
from trainer.rollout.dataset import Prompt, question_id_of
from trainer.rollout.generators.base import EpisodeView
from trainer.rollout.parsing import ParsedAction
from trainer.rollout.row import RolloutRow
from trainer.rollout.tokens import Transcript


class EpisodeObserver:
    """Sees the episodes of a batch while they are played. An exception that it raises ends them."""

    def on_start(self, view: EpisodeView) -> None:
        """See an episode after its first observation."""

    def on_step(
        self, view: EpisodeView, parsed: ParsedAction, reply: StepResult, env_s: float
    ) -> None:
        """See an answered step, for which the episode waited `env_s` seconds."""

    def on_lost(self, view: EpisodeView, error: SQLEnvError) -> None:
        """See the error of an episode that infrastructure lost."""


@dataclass(slots=True)
class Episode:
    """One episode under way; `outcome` is set at its end."""

    index: int  # in the batch
    prompt: Prompt
    view: EpisodeView
    stream: tuple[int, ...]
    transcript: Transcript = field(default_factory=lambda: Transcript([]))
    episode_id: str = ""
    messages: list[dict[str, str]] = field(default_factory=list)
    latest: StepResult | None = None
    rewards: list[float] = field(default_factory=list)  # of the answered steps
    parts: list[dict[str, float]] = field(default_factory=list)  # of each of these rewards
    digests: list[str] = field(default_factory=list)  # of every observation
    outcome: Outcome | None = None
    parse_failures: int = 0
    inferred_actions: int = 0
    env_errors: list[str] = field(default_factory=list)
    context_overflow: bool = False
    too_large: bool = False
    lost: SQLEnvError | None = None


def start_episodes(
    prompts: Sequence[Prompt], seed: int, before: Mapping[str, int]
) -> list[Episode]:
    """Return the episodes of a batch, each with its own random stream.

    The stream is (seed, question, occurrence of the question); `before` counts the occurrences in
    the parts of the batch that other processes play.
    """
    seen = Counter(before)
    episodes = []
    for index, prompt in enumerate(prompts):
        question_id = question_id_of(prompt)
        question = int.from_bytes(hashlib.blake2b(question_id.encode(), digest_size=8).digest())
        stream = (seed, question, seen[question_id])
        view = EpisodeView(question_id, seen[question_id], np.random.default_rng(stream))
        episodes.append(Episode(index, list(prompt), view, stream))
        seen[question_id] += 1
    return episodes


def row_of(episode: Episode, transcript: Transcript) -> RolloutRow:
    """Return the record of a finished episode, whose closed ids are `transcript`."""
    ledger = episode.latest.ledger if episode.latest and not episode.lost else None
    observation = episode.latest.observation if episode.latest else None
    view = episode.view
    assert episode.outcome is not None
    return RolloutRow(
        question_id=view.question_id,
        outcome=episode.outcome,
        prompt_ids=transcript.prompt_ids,
        completion_ids=transcript.completion_ids,
        env_mask=transcript.env_mask,
        logprobs=transcript.logprobs,
        correctness=ledger.correctness if ledger else None,
        progress=ledger.potential if ledger else None,
        operational=ledger.operational if ledger else None,
        reward=ledger.total if ledger else None,
        steps=observation.step_count if observation else 0,
        parse_failures=episode.parse_failures,
        inferred_actions=episode.inferred_actions,
        env_errors=episode.env_errors,
        context_overflow=episode.context_overflow,
        too_large=episode.too_large,
        context_truncations=episode.transcript.truncations,
        prompt_tokens=view.prompt_tokens,
        sampled_tokens=view.sampled_tokens,
        actions=observation.action_history if observation else [],
        rewards=episode.rewards,
        parts=episode.parts,
        observations=episode.digests,
        texts=view.actions,
        transcript=episode.messages,
        lost=episode.lost.message if episode.lost else None,
    )
