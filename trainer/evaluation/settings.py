"""The settings of `python -m trainer evaluate`, checked before anything is read or played."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared.dataset import OPEN
from shared.models import ServerMetadata
from shared.run_stats import Mode
from shared.seeds import EVAL_SEED
from trainer.config import ApiName, GRPOConfig, PolicyName
from trainer.errors import ConfigError
from trainer.evaluation.inputs import Inputs
from trainer.evaluation.measure import EVAL_TEMPERATURE
from trainer.presets import MODEL_SETTINGS


@dataclass(frozen=True, kw_only=True)
class EvaluationSettings:
    """One evaluation. `config` has the prompt, budget, lengths, difficulties and model name."""

    config: GRPOConfig
    policy: PolicyName = "model"
    base_url: str = ""  # of the model server, for openai
    api: ApiName = "chat"
    tokenizer: str | None = None  # for completions; None: that of the model's name
    split: str = "eval"
    databases: tuple[str, ...] = ()  # empty: all
    limit: int = 0  # questions; 0: all
    question_ids: tuple[str, ...] = ()  # empty: all
    samples: int = 1  # episodes per question
    temperature: float | None = EVAL_TEMPERATURE  # None: greedy
    seed: int = EVAL_SEED
    servers: tuple[str, ...] = ()  # empty: start one
    out: Path | None = None
    against: Path | None = None
    concurrency: int = 32

    def __post_init__(self) -> None:
        if self.policy == "openai" and not self.base_url:
            raise ConfigError(
                "the openai policy needs the model server's address: --base-url http://host:8000/v1"
            )
        if self.policy != "openai" and (self.base_url or self.api != "chat"):
            raise ConfigError(f"--base-url and --api are for --policy openai, not {self.policy}")
        if self.split == OPEN and (self.policy == "oracle" or self.against):
            named = "--policy oracle" if self.policy == "oracle" else "--against"
            raise ConfigError(f"open questions have no gold: leave out {named}")
        if self.tokenizer is not None and self.api != "completions":
            raise ConfigError("--tokenizer is for --api completions: a server's chat needs none")
        # a model server may be non-deterministic even when greedy
        if self.samples > 1 and self.mode == "greedy" and self.policy != "openai":
            remedy = "leave out --samples" + (" or --greedy" if self.policy == "model" else "")
            raise ConfigError(f"{self.samples} samples of a deterministic policy: {remedy}")

    @property
    def has_model(self) -> bool:
        return self.policy in ("model", "openai")

    @property
    def mode(self) -> Mode:
        """Return how the episodes are played, as in a line of episodes.jsonl."""
        greedy = self.policy == "oracle" or (self.has_model and self.temperature is None)
        return "greedy" if greedy else "sampled"

    @property
    def pass_ks(self) -> list[int]:
        """Return the k of pass@k: powers of 2 below `samples`, and `samples`."""
        return [2**n for n in range((self.samples - 1).bit_length())] + [self.samples]

    @property
    def label(self) -> str:
        """Return a readable name of the policy."""
        if not self.has_model:
            return self.policy
        how = "greedy" if self.temperature is None else f"at temperature {self.temperature:g}"
        return f"{self.config.model_name} {how}"

    def identity(self, inputs: Inputs, metadata: ServerMetadata, questions: int) -> dict[str, Any]:
        """Return what decides the episodes, as JSON values, and a resumed evaluation must keep.

        A local model is identified by its digest, a model behind a server by its name.
        """
        named = ("policy", "api", "mode", "split", "limit", "samples", "seed", "temperature")
        of_config, config = ("step_budget", "standard", *MODEL_SETTINGS), self.config
        return {
            **{name: getattr(self, name) for name in named},
            **{name: getattr(config, name) for name in of_config},
            "model": config.model_name if self.policy == "openai" else None,
            "difficulty": sorted(config.difficulty_filter),
            "databases": sorted(self.databases),
            "question_ids": list(self.question_ids),
            "questions": questions,
            "data_digest": inputs.data_digest,
            "server_digest": metadata.digest,
            "model_digest": inputs.model_digest,
        }
