"""The model's prompts, byte by byte: the offline model was trained on them."""

from typing import Any

import pytest

from shared.actions import ActionType, parse_action
from shared.models import ResetResult
from tests.trainer.conftest import FakeClient, observation
from trainer.errors import ConfigError
from trainer.rollout.prompts import format_observation, get_system_prompt


def test_first_observation_is_the_question_and_the_tables() -> None:
    assert format_observation(observation(0, 15)) == (
        "Question: How many orders are there?\nTables: orders, customers\nSteps left: 15"
    )


def test_later_ones_are_the_result_alone() -> None:
    assert format_observation(observation(1, 14, result="total\n12")) == "total\n12\nSteps left: 14"


def test_an_error_is_marked() -> None:
    assert (
        format_observation(observation(2, 3, error="no such column: nam"))
        == "Error: no such column: nam\nSteps left: 3"
    )


def test_rewards_are_never_shown() -> None:
    assert "0.7531" not in format_observation(observation(1, 2, result="a", reward=0.7531))


def test_a_whole_reply_is_shown_as_its_observation() -> None:
    [reply] = FakeClient().reset_many([{"question_id": "a", "step_budget": 4}])
    assert isinstance(reply, ResetResult)
    assert format_observation(reply) == format_observation(reply.observation)


@pytest.mark.parametrize("other", [{"question": "?"}, None, "Question: ?"])
def test_anything_else_is_refused(other: Any) -> None:
    with pytest.raises(TypeError, match=r"takes an SQLObservation or a StepResult, not a \w+: for"):
        format_observation(other)


def test_the_short_prompt_is_one_short_line() -> None:
    prompt = get_system_prompt("short")
    assert "\n" not in prompt
    assert len(prompt) < 80
    assert all(kind in prompt for kind in ActionType)


def test_the_full_prompt_shows_every_action_by_a_valid_example() -> None:
    examples = [part.removesuffix(".") for part in get_system_prompt("full").split("Example: ")[1:]]
    shown = {
        parse_action(example.split("\n")[0].removesuffix(".")).action_type for example in examples
    }
    assert shown == set(ActionType)


def test_an_unknown_kind() -> None:
    with pytest.raises(ConfigError, match="full, short"):
        get_system_prompt("medium")  # type: ignore[arg-type]
