"""TRL trains on the rows of `rollout_func`, and calls the reward functions with their fields."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from datasets import Dataset
from trl import GRPOTrainer

from tests.trainer.conftest import AFTER, FakeClient, prompts_for
from tests.trainer.small_job import trainer_of
from trainer.grpo.build_trainer import trl_config
from trainer.rollout.adapters import rollout_func
from trainer.rollout.loop import RolloutStats
from trainer.rollout.rewards import (
    REWARD_FUNCTIONS,
    both_verdicts,
    reward_correctness,
    reward_operational,
    reward_progress,
)
from trainer.rollout.row import RolloutRow
from trainer.runtime.ranks import Ranks

pytestmark = [
    pytest.mark.filterwarnings("ignore:You are using 'rollout_func'"),
    # TRL asks by the old name
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning"),
]


@pytest.mark.parametrize(("dtype", "bound"), [("float32", 1e-4), ("bfloat16", 0.1)])
def test_rollout_func(model, tokenizer, config, tmp_path, dtype, bound):
    """TRL trains on the rows: real GRPOTrainer steps, in which the policy's log-probabilities are
    the sampled ones."""
    config = config.override(dtype=dtype)
    seen: list[RolloutRow] = []
    differences: list[float] = []
    stats = RolloutStats()
    lenient = config.override(max_lost_fraction=0.5, learning_rate=1e-3)

    class Checked(GRPOTrainer):  # type: ignore[misc]
        def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
            ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
            mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
            own, *_ = self._get_per_token_logps_and_entropies(
                model, ids, mask, inputs["completion_ids"].shape[1]
            )
            trained = (inputs["completion_mask"] * inputs["tool_mask"]).bool()
            differences.extend((own - inputs["sampling_per_token_logps"])[trained].abs().tolist())
            return super()._compute_loss(model, inputs)

    before = {name: value.clone() for name, value in model.named_parameters()}
    trainer = Checked(
        model=model,
        processing_class=tokenizer,
        reward_funcs=list(REWARD_FUNCTIONS),
        args=trl_config(
            lenient, output_dir=str(tmp_path), max_steps=2, logging_steps=1, disable_tqdm=True
        ),
        train_dataset=Dataset.from_list(
            [{"prompt": prompt} for prompt in prompts_for(config, "a", "b", "c", "d")]
        ),
        rollout_func=partial(
            rollout_func,
            config=lenient,
            client=FakeClient(after=AFTER, failing={"b": 1}),
            stats=stats,
            on_rows=lambda rows, trainer: seen.extend(rows),
        ),
    )
    trainer.train()
    assert stats.episodes == len(seen) == 2 * config.rollouts_per_step
    assert model.training  # TRL's own mode is given back after each rollout
    groups = [
        [row.question_id for row in seen[start : start + 4]] for start in range(0, len(seen), 4)
    ]
    assert all(len(set(group)) == 1 for group in groups)
    # each draws its own
    assert len({tuple(row.completion_ids) for row in seen if row.question_id != "b"}) > 8
    logged = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert len(logged) == 2
    assert {
        f"rewards/reward_{name}/mean" for name in ("correctness", "progress", "operational")
    } <= set(logged[0])
    rewards = [row.reward for row in seen[: config.rollouts_per_step] if row.reward is not None]
    assert logged[0]["reward"] == pytest.approx(sum(rewards) / len(rewards), abs=1e-5)
    assert len(differences) == sum(sum(row.env_mask) for row in seen)
    assert max(differences) < bound
    assert any(not torch.equal(before[name], value) for name, value in model.named_parameters())


class SecondOfTwo(Ranks):
    """The second process; the first one's episodes are of the same questions, with q0 right."""

    def __init__(self) -> None:
        super().__init__(index=1, count=2)

    def gather(self, value: Any) -> list[Any]:
        if not isinstance(value, list) or not isinstance(value[0], RolloutRow):
            return [value, value]
        return [[replace(row, correctness=float(row.question_id == "q0")) for row in value], value]


def test_the_verdicts_of_a_group_are_those_of_all_processes(model, tokenizer, config, tmp_path):
    trainer = trainer_of(model, tokenizer, config)
    seen: list[RolloutRow] = []
    options = {"config": config, "client": FakeClient(), "ranks": SecondOfTwo()}
    options |= {"on_rows": lambda rows, _: seen.extend(rows)}
    columns = rollout_func(prompts_for(config, "q0", "q1"), trainer, **options)
    assert [row.repeat for row in seen[2:]] == [1, 1], "the first process has those before"
    assert columns["correctness"] == [0.0, 0.0]
    assert columns["both_verdicts"] == [True, False]


def test_a_group_has_both_verdicts_whatever_was_lost():
    groups = {"a": [1, 1], "b": [0, 0], "c": [1, None, 0], "d": [1, None], "e": [None, None]}
    episodes = [(name, correct) for name, verdicts in groups.items() for correct in verdicts]
    assert both_verdicts(episodes) == {"c"}


FIELDS: dict[str, Any] = {
    "prompts": [[], [], []],
    "completions": [[], [], []],
    "completion_ids": [[1], [1], [1]],
    "correctness": [1.0, 0.0, None],
    "progress": [1, 0.25, None],
    "operational": [-0.04, 0.01, None],
    "trainer_state": None,
}
TEXTS = ["ANSWER: 42", "ANSWER: 7", ""]
METADATA = [
    {"correct": True, "progress": 1.0, "operational": -0.04, "outcome": "correct"},
    {"correct": False, "progress": 0.25, "operational": 0.01, "outcome": "wrong"},
    {"correct": None, "progress": None, "operational": None, "outcome": "infra_failed"},
]


@pytest.mark.parametrize("given", [FIELDS, {"completions": TEXTS, "metadata": METADATA}])
def test_reward_correctness(given):
    assert reward_correctness(**given) == [1.0, 0.0, None]
    assert reward_progress(**given) == [1.0, 0.25, None]
    assert reward_operational(**given) == [-0.04, 0.01, None]
    assert reward_correctness(TEXTS, correct=[True, False, None]) == [1.0, 0.0, None]


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"prompts": TEXTS}, "needs correctness or correct .* metadata .* got only prompts"),
        ({"correct": [True]}, "1 values"),
        ({"metadata": METADATA[:2]}, "2 values"),
        ({"metadata": [{}, {}, {}]}, "needs correctness or correct"),
    ],
)
def test_missing_results_are_named(kwargs, message):
    with pytest.raises(ValueError, match=message):
        reward_correctness(TEXTS, **kwargs)
