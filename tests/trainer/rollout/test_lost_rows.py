"""A lost episode has no effect on training: its group learns as if it had not been played."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM
from trl import GRPOTrainer

from shared.actions import SQLAction
from shared.errors import ServerUnreachable, SQLEnvError
from shared.models import StepResult
from tests.trainer.conftest import FakeClient, prompts, short_training
from trainer.config.settings import GRPOConfig
from trainer.errors import RolloutError
from trainer.grpo.build_trainer import build_trainer, trl_config
from trainer.rollout.adapters import rollout_func
from trainer.rollout.rewards import REWARD_FUNCTIONS
from trainer.runtime.training import run_training_with_metrics


class LosesSome(FakeClient):
    """Lose the given episodes, by order of reset (0 is the first), from their second step on."""

    def __init__(self, lost: Iterable[int]) -> None:
        super().__init__()
        self.lost = set(lost)

    def _step(self, episode_id: str, action: SQLAction | str) -> StepResult | SQLEnvError:
        number = list(self.episodes).index(episode_id)
        if number in self.lost and self.episodes[episode_id][2]:
            return ServerUnreachable("gone")
        return super()._step(episode_id, action)


@pytest.fixture
def settings(config: GRPOConfig, tmp_path: Path) -> GRPOConfig:
    return short_training(config, tmp_path, step_budget=3)


def one_step(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    config: GRPOConfig,
    client: FakeClient,
) -> tuple[list[dict[str, Any]], dict[tuple[int, ...], float], dict[str, Any]]:
    """Return the rows, each one's advantage by its completion's ids, and trl's log."""
    rows: list[dict[str, Any]] = []
    advantages: dict[tuple[int, ...], float] = {}

    class Watched(GRPOTrainer):  # type: ignore[misc]
        def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
            for ids, mask, advantage in zip(
                inputs["completion_ids"],
                inputs["completion_mask"],
                inputs["advantages"],
                strict=True,
            ):
                advantages[tuple(ids[mask.bool()].tolist())] = float(advantage)
            return super()._compute_loss(model, inputs)

    def rollout(prompts: Any, trainer: Any) -> dict[str, list[Any]]:
        return rollout_func(
            prompts, trainer, config=config, client=client, on_rows=lambda got, _: rows.extend(got)
        )

    trainer = Watched(
        model=model,
        processing_class=tokenizer,
        reward_funcs=list(REWARD_FUNCTIONS),
        args=trl_config(config, disable_tqdm=True, scale_rewards="none"),
        train_dataset=Dataset.from_list(prompts(config, 2)),
        rollout_func=rollout,
    )
    trainer.train()
    return rows, advantages, next(row for row in trainer.state.log_history if "reward" in row)


def test_a_lost_episode_leaves_its_groups_baseline_and_is_not_trained(model, tokenizer, settings):
    settings = settings.override(max_lost_fraction=0.5)
    rows, advantages, logged = one_step(model, tokenizer, settings, LosesSome({1, 6}))
    assert [row.outcome == "infra_failed" for row in rows] == [
        number in (1, 6) for number in range(8)
    ]
    for number in (1, 6):
        row = rows[number]
        assert row.completion_ids == [tokenizer.eos_token_id]
        assert (row.env_mask, row.logprobs) == ([0], [0.0])
        assert row.correctness is row.progress is row.operational is None
    for group in (rows[:4], rows[4:]):
        kept = [row for row in group if row.lost is None]
        mean = sum(row.reward for row in kept) / len(kept)
        for row in kept:
            assert advantages[tuple(row.completion_ids)] == pytest.approx(
                row.reward - mean, abs=1e-5
            )
    assert advantages[(tokenizer.eos_token_id,)] == 0.0
    rewards = [row.reward for row in rows if row.lost is None]
    assert logged["reward"] == pytest.approx(sum(rewards) / 6, abs=1e-5)


def test_too_many_lost_stop_with_a_checkpoint(model, tokenizer, settings):
    settings = settings.override(max_steps=2)
    client = LosesSome({11})  # the fourth of the second batch: more than 5 % of 8
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    trainer = build_trainer(model, tokenizer, settings, prompts(settings, 2), client=client)
    with pytest.raises(
        RolloutError, match=r"1 of 8 episodes were lost .* resume from the last checkpoint.*gone"
    ):
        run_training_with_metrics(trainer)
    assert (Path(settings.output_dir) / "checkpoint-1" / "trainer_state.json").is_file()
    assert any(
        not torch.equal(weights[name], tensor) for name, tensor in model.state_dict().items()
    )
