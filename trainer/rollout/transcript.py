"""Token-exact transcripts: the ids that a model read and sampled, never tokenized again.

A context that would outgrow the window is cut to the prompt and its last pairs of a turn and the
observation that followed. The row ends there: later ids depend on another context than the row's.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

KEPT_PAIRS = 3  # of a turn and its observation, in a context that was cut


def pairs_kept(prompt: int, pairs: Sequence[int], window: int, turn: int) -> int:
    """Return how many of the newest pairs the next turn's context keeps: all if `turn` tokens fit
    behind them, else as many of the last `KEPT_PAIRS` as leave room for them, or for a single token
    behind the newest. All arguments are lengths in tokens; `pairs` is oldest first."""
    kept: int
    for kept in (len(pairs), *range(min(KEPT_PAIRS, len(pairs) - 1), 0, -1)):
        if prompt + sum(pairs[-kept:]) + turn <= window:
            return kept
    return 1 if prompt + pairs[-1] < window else 0


@dataclass(slots=True)
class Sample:
    """One turn of one episode. `ids` are the sampled token ids with the EOS, if any; `logprobs` has
    the same length, in nats, of the temperature-scaled distribution that each id was drawn from.
    """

    ids: list[int]
    logprobs: list[float]


@dataclass(slots=True)
class Transcript:
    """One episode as ids. env_mask is 1 for ids that the policy sampled, else 0, where logprobs are
    0.0. `completion_ids` and these have one length, C; they stop growing when the context,
    `prompt_ids` and all of `pairs`, is first cut."""

    prompt_ids: list[int]
    completion_ids: list[int] = field(default_factory=list)
    env_mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    # each turn's ids in the context, with the ids that followed it
    pairs: list[list[int]] = field(default_factory=list)
    truncations: int = 0  # times that the context was cut

    def add_sample(self, sample: Sample) -> None:
        assert len(sample.ids) == len(sample.logprobs)
        self.pairs.append(list(sample.ids))
        if not self.truncations:
            self.completion_ids += sample.ids
            self.env_mask += [1] * len(sample.ids)
            self.logprobs += sample.logprobs

    def add_environment(self, ids: Sequence[int]) -> None:
        self.pairs[-1] += ids
        if not self.truncations:
            self._mask(ids)

    def truncate(self, kept: int, ids: Sequence[int]) -> list[int]:
        """Add the environment's `ids`, cut the context to its `kept` newest pairs, and return
        these."""
        self.truncations += 1
        self.pairs[-1] += ids
        self.pairs = self.pairs[-kept:]
        return [token for pair in self.pairs for token in pair]

    def kept_with(self, ids: Sequence[int], window: int, turn: int) -> int:
        lengths = [len(pair) for pair in self.pairs]
        lengths[-1] += len(ids)
        return pairs_kept(len(self.prompt_ids), lengths, window, turn)

    def _mask(self, ids: Sequence[int]) -> None:
        self.completion_ids += ids
        self.env_mask += [0] * len(ids)
        self.logprobs += [0.0] * len(ids)

    def close(self, eos_id: int, pad_id: int) -> None:
        """End the row with an EOS or a pad, masked: TRL takes any other end for a truncation."""
        if not self.completion_ids or self.completion_ids[-1] not in (eos_id, pad_id):
            self._mask([eos_id])
        assert len(self.completion_ids) == len(self.env_mask) == len(self.logprobs)
