"""Groups of rollouts: their advantages against TRL's, and which steps are shown."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from trl.trainer.utils import nanstd

from tests.trainer.conftest import FakeClient
from tests.trainer.small_job import begin
from trainer.config import GRPOConfig
from trainer.grpo.length_sorting import LengthSortedGRPOTrainer
from trainer.report.groups import advantages, chosen_steps, groups
from trainer.report.run_reader import training_lines


@pytest.mark.parametrize(
    ("scale", "skip"),
    [("batch", False), ("batch", True), pytest.param("group", False, marks=pytest.mark.slow)],
)
def test_advantages_are_those_that_trl_trained_with(
    small: GRPOConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scale: str, skip: bool
) -> None:
    """Of a job of three steps on a server that loses the episodes of a question: trl's own against
    the page's."""
    seen: list[list[float]] = []
    original = LengthSortedGRPOTrainer._generate_and_score_completions

    def listen(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        seen.append(result["advantages"].tolist())
        return result

    monkeypatch.setattr(LengthSortedGRPOTrainer, "_generate_and_score_completions", listen)
    config = small.override(
        scale_rewards=scale, max_lost_fraction=0.5, skip_one_verdict_groups=skip
    )
    job = begin(config, tmp_path, FakeClient(failing={"train-shop-0": 1}), eval_limit=2)
    job.run()
    run = job.folder
    lines = training_lines(run, {1, 2, 3})
    uneven = False
    for step, trained in enumerate(seen, start=1):
        found = groups(step, lines[step], config.num_generations, scale, skip)
        assert len(found) == len(lines[step]) // config.num_generations
        flat = [advantage for group in found for advantage in group.advantages]
        assert flat == pytest.approx(trained, abs=1e-3)
        uneven = uneven or any(abs(one) > 0.1 for one in trained)
    assert len(seen) == 3
    assert any(row["reward"] is None for rows in lines.values() for row in rows)
    assert uneven is not skip  # else zeros would be compared with zeros; no episode is right


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
@settings(max_examples=40)
@given(
    rewards=st.lists(
        st.one_of(st.none(), st.floats(-1, 2).map(lambda x: round(x, 3))), min_size=8, max_size=8
    )
)
def test_advantages_follow_trls_formula_also_with_lost_episodes(
    scale: str, rewards: list[float | None]
) -> None:
    tensor = torch.tensor(
        [float("nan") if one is None else one for one in rewards], dtype=torch.float64
    )
    grouped = tensor.view(2, 4)
    wanted = tensor - torch.nanmean(grouped, dim=1).repeat_interleave(4)
    if scale == "group":
        wanted = wanted / (nanstd(grouped, dim=1).repeat_interleave(4) + 1e-4)
    elif scale == "batch":
        wanted = wanted / (nanstd(tensor) + 1e-4)
    found = advantages(rewards, [range(4), range(4, 8)], scale)
    assert found == pytest.approx(torch.nan_to_num(wanted, nan=0.0).tolist(), abs=1e-6)


def test_a_question_that_comes_twice_in_a_batch_is_two_groups() -> None:
    rows = [{"question_id": "a", "reward": float(number)} for number in range(8)]
    found = groups(1, rows, 4, "none")
    assert [group.mean for group in found] == [1.5, 5.5]
    assert [group.advantages for group in found] == [[-1.5, -0.5, 0.5, 1.5]] * 2


@given(st.sets(st.integers(1, 500), max_size=60), st.integers(2, 20))
def test_the_chosen_steps_hold_both_ends(steps: set[int], count: int) -> None:
    chosen = chosen_steps(sorted(steps), count)
    assert len(set(chosen)) == len(chosen) == min(count, len(steps))
    assert set(chosen) <= steps
    if steps:
        assert {min(steps), max(steps)} <= set(chosen)
