"""What `python -m trainer evaluate` is asked to measure, checked before anything is read or played."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from shared.models import ServerMetadata
from trainer.config import GRPOConfig
from trainer.errors import ConfigError
from trainer.evaluation.inputs import Inputs
from trainer.evaluation.measure import EVAL_SEED, EVAL_TEMPERATURE

PolicyName = Literal["random", "oracle", "model", "openai"]
Part = Literal["all", "seen", "unseen"]


@dataclass(frozen=True, kw_only=True)
class EvaluationSettings:
    """One measurement. `config` has the prompt, the budget, the lengths, the difficulties and, for
    `model`, its name.

    `temperature` None is greedy. `databases` empty: all. `limit` 0: all. `ks` empty: 1 and
    `samples`.
    """

    config: GRPOConfig
    policy: PolicyName = "model"
    base_url: str = ""
    split: str = "eval"
    databases: tuple[str, ...] = ()
    part: Part = "all"
    limit: int = 0
    samples: int = 1
    ks: tuple[int, ...] = ()
    temperature: float | None = EVAL_TEMPERATURE
    seed: int = EVAL_SEED
    servers: tuple[str, ...] = ()
    out: Path | None = None
    against: Path | None = None
    concurrency: int = 32
    timeout_s: float = 120.0

    def __post_init__(self) -> None:
        if self.policy not in get_args(PolicyName):
            raise ConfigError(
                f"no policy {self.policy!r}: use one of {', '.join(get_args(PolicyName))}"
            )
        if self.part not in get_args(Part):
            raise ConfigError(f"no part {self.part!r}: use one of {', '.join(get_args(Part))}")
        if self.policy == "openai" and not self.base_url:
            raise ConfigError(
                "the openai policy needs the model server's address: --base-url http://host:8000/v1"
            )
        if self.policy != "openai" and self.base_url:
            raise ConfigError(f"--base-url is for --policy openai, not for {self.policy}")
        if self.samples < 1:
            raise ConfigError(f"samples is {self.samples}: use 1 or more")
        if self.samples > 1 and (
            self.policy == "oracle" or (self.policy == "model" and self.temperature is None)
        ):
            raise ConfigError(
                f"{self.samples} samples of a policy that plays every question the same: leave --samples out"
                + (", or --greedy" if self.policy == "model" else "")
            )
        if self.temperature is not None and self.temperature <= 0:
            raise ConfigError(
                f"temperature is {self.temperature:g}: use a number above 0, or --greedy"
            )
        if bad := [k for k in self.ks if not 1 <= k <= self.samples]:
            raise ConfigError(
                f"pass@{bad[0]} can't be estimated from {self.samples} samples a question: k is 1 to --samples"
            )

    @property
    def mode(self) -> Literal["greedy", "sampled"]:
        """How the episodes were played, as a line of episodes.jsonl says it."""
        greedy = self.policy == "oracle" or (
            self.policy in ("model", "openai") and self.temperature is None
        )
        return "greedy" if greedy else "sampled"

    @property
    def pass_ks(self) -> tuple[int, ...]:
        return tuple(sorted({*(self.ks or (1, self.samples))}))

    @property
    def label(self) -> str:
        """The policy, for people."""
        if self.policy not in ("model", "openai"):
            return self.policy
        name = (
            Path(self.config.model_name).name if self.policy == "model" else self.config.model_name
        )
        return f"{name} {'greedy' if self.temperature is None else f'at temperature {self.temperature:g}'}"

    def playing(self) -> GRPOConfig:
        """The configuration to play with."""
        return (
            self.config
            if self.temperature is None
            else replace(self.config, temperature=self.temperature)
        )

    def identity(
        self, inputs: Inputs, metadata: ServerMetadata, questions: Sequence[str]
    ) -> dict[str, Any]:
        """All that decides what an episode comes to: what must stay the same for an evaluation to
        go on. JSON values.

        A local model is what its digest says, wherever it lies; a model behind a server what it is
        called.
        """
        found: dict[str, Any] = {
            "policy": self.policy,
            "mode": self.mode,
            "split": self.split,
            "difficulty": sorted(self.config.difficulty_filter),
            "databases": sorted(self.databases),
            "part": self.part,
            "limit": self.limit,
            "questions": len(questions),
            "samples": self.samples,
            "seed": self.seed,
            "step_budget": self.config.step_budget,
            "data_digest": inputs.data_digest,
            "server_digest": metadata.digest,
        }
        if self.policy == "model":
            found["model_digest"] = inputs.model_digest
        if self.policy == "openai":
            found["model"] = self.config.model_name
        if self.policy in ("model", "openai"):
            found["temperature"] = self.temperature
            for name in ("system_prompt", "max_new_tokens", "max_context_tokens"):
                found[name] = getattr(self.config, name)
        return found
