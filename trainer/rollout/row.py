"""What `play_episodes` returns: a `RolloutRow` per episode, and `RolloutStats` over all of them."""

from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import compress
from math import fsum

from shared.models import Outcome


@dataclass(slots=True)
class RolloutRow:
    """One played episode. P and C are the lengths of its prompt and completion in tokens. The
    rewards are None in an episode that infrastructure lost, whose completion is one EOS with mask
    0. An episode played without a tokenizer has no token ids."""

    question_id: str
    repeat: int = 0  # its number among the episodes of this question
    _: KW_ONLY
    outcome: Outcome = Outcome.ABANDONED
    prompt_ids: list[int] = field(default_factory=list)  # [P]
    completion_ids: list[int] = field(default_factory=list)  # [C]; ends where context is first cut
    env_mask: list[int] = field(default_factory=list)  # [C]; 1: sampled, 0: all others
    logprobs: list[float] = field(default_factory=list)  # [C]; 0.0 where env_mask is 0
    correctness: float | None = None
    progress: float | None = None  # the ledger's final `potential`, in [0, 1]
    operational: float | None = None
    reward: float | None = None  # total of the server's ledger
    steps: int = 0
    parse_failures: int = 0  # texts that were no action and were sent as a QUERY
    inferred_actions: int = 0  # texts of SQL alone or a tool call, read as the action they mean
    env_errors: list[str] = field(default_factory=list)  # error codes of the environment
    context_overflow: bool = False  # the episode ended for lack of room in the context window
    too_large: bool = False  # the episode ended as its actions reached the server's limit on bytes
    context_truncations: int = 0  # times the context was cut to the prompt and the last turns
    prompt_tokens: int = 0  # read by the model
    sampled_tokens: int = 0  # written by the model
    actions: list[str] = field(default_factory=list)  # canonical texts of the answered steps
    rewards: list[float] = field(default_factory=list)  # of the answered steps
    # of each of these rewards, its named parts
    parts: list[dict[str, float]] = field(default_factory=list)
    observations: list[str] = field(default_factory=list)  # digests; the first is the reset's
    texts: list[str] = field(default_factory=list)  # the policy's texts, unparsed
    transcript: list[dict[str, str]] = field(default_factory=list)  # chat messages
    lost: str | None = None  # the error that lost the episode

    @property
    def ids(self) -> list[int]:
        return self.prompt_ids + self.completion_ids

    @property
    def learn_mask(self) -> list[int]:
        """1 for every id of the policy, 0 for all others, [P + C]."""
        return [0] * len(self.prompt_ids) + self.env_mask

    @property
    def read(self) -> list[str]:
        return [one["content"] for one in self.transcript if one["role"] == "user"]

    @property
    def mean_logprob(self) -> float | None:
        """Mean log-probability of the sampled ids; None if nothing sampled them."""
        sampled = list(compress(self.logprobs, self.env_mask))
        return fsum(sampled) / len(sampled) if sampled and self.sampled_tokens else None

    def without_ids(self) -> "RolloutRow":
        return replace(self, prompt_ids=[], completion_ids=[], env_mask=[], logprobs=[])


@dataclass(slots=True)
class RolloutStats:
    """Counts and seconds over any number of `play_episodes` calls that share the object."""

    episodes: int = 0
    episodes_lost: int = 0  # to infrastructure: never a reward
    steps: int = 0
    parse_failures: int = 0
    rebuilds: int = 0  # times an episode was rebuilt by replay after its server lost it
    rollout_s: float = 0.0  # total
    generate_s: float = 0.0  # sampling, or a policy's work
    env_wait_s: float = 0.0  # waiting for the servers, while nothing is sampled
    rank_wait_s: float = 0.0  # waiting for the other processes' episodes
