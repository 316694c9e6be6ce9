"""One episode while it is played, which fills its `RolloutRow`."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from shared.errors import SQLEnvError
from shared.models import SQLObservation, StepResult
from shared.run_files import observation_digest
from trainer.rollout.chat_codec import ChatCodec
from trainer.rollout.dataset import Prompt, question_id_of
from trainer.rollout.parsing import ParsedAction
from trainer.rollout.prompts import format_observation
from trainer.rollout.row import RolloutRow
from trainer.rollout.transcript import Transcript


class EpisodeObserver:
    """Sees the episodes of a batch while they are played. An exception that it raises ends them."""

    def on_start(self, episode: "Episode") -> None: ...

    def on_step(self, episode: "Episode", parsed: ParsedAction, reply: StepResult) -> None: ...

    def on_lost(self, episode: "Episode", error: SQLEnvError) -> None: ...

    def on_tokens(self, read: int, written: int, turns: int) -> None:
        """See how many more tokens were read and written, and how many more turns have ended."""

    def on_end(self, rows: Sequence[RolloutRow]) -> None:
        """See the rows of episodes that have ended, those that infrastructure lost too."""


@dataclass(slots=True)
class Episode:
    """One episode under way, which fills its `row`; `done` is set at its end."""

    row: RolloutRow
    rng: np.random.Generator  # the episode's own stream
    observations: list[SQLObservation] = field(default_factory=list)
    index: int = 0  # in the batch
    prompt: Prompt = field(default_factory=list)
    stream: tuple[int, ...] = ()
    transcript: Transcript = field(default_factory=lambda: Transcript([]))
    episode_id: str = ""
    latest: StepResult | None = None
    done: bool = False
    seen: bool = False  # by `EpisodeObserver.on_end`

    def show(self, reply: StepResult, kind: str) -> None:
        observation, row = reply.observation, self.row
        self.latest = reply
        self.observations.append(observation)
        row.observations.append(observation_digest(observation))
        row.steps, row.actions = observation.step_count, observation.action_history
        if not reply.done or observation.result or observation.error:
            text = format_observation(observation, kind)
            row.transcript.append({"role": "user", "content": text})

    def finished(self, codec: ChatCodec | None) -> RolloutRow:
        """Return the whole row. Of a lost episode it has only the prompt's ids and a masked EOS:
        no part of it may be trained on."""
        row, transcript = self.row, self.transcript
        row.context_truncations = transcript.truncations
        if self.latest and row.lost is None:
            ledger = self.latest.ledger
            row.correctness, row.progress = ledger.correctness, ledger.potential
            row.operational, row.reward = ledger.operational, ledger.total
        if codec is not None:
            if row.lost is not None:  # perhaps before its first observation
                transcript = Transcript(transcript.prompt_ids or codec.prompt(self.prompt))
            transcript.close(codec.eos_id, codec.pad_id)
            row.prompt_ids, row.completion_ids = transcript.prompt_ids, transcript.completion_ids
            row.env_mask, row.logprobs = transcript.env_mask, transcript.logprobs
        return row


def start_episodes(
    prompts: Sequence[Prompt], seed: int, repeats: Sequence[int] | None = None
) -> list[Episode]:
    """Return the episodes of a batch. The random stream of each is (seed, question, repeat), its
    number among those of its question, by default that in `prompts`."""
    names = [question_id_of(prompt) for prompt in prompts]
    episodes = []
    for index, (name, repeat) in enumerate(zip(names, repeats or occurrences(names), strict=True)):
        question = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest())
        stream = (seed, question, repeat)
        row, rng = RolloutRow(name, repeat), np.random.default_rng(stream)
        prompt = list(prompts[index])
        episodes.append(Episode(row, rng, index=index, prompt=prompt, stream=stream))
    return episodes


def occurrences(names: Sequence[str]) -> list[int]:
    """Return how often each name came before its place."""
    seen: Counter[str] = Counter()
    counts = []
    for name in names:
        counts.append(seen[name])
        seen[name] += 1
    return counts
