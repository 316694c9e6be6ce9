"""`SqlLimits` agrees with what agents are promised."""

from env_server.sql import SqlLimits
from shared.actions import ACTIONS, ActionType


def test_the_action_texts_state_the_limits_of_rows() -> None:
    limits = SqlLimits()
    assert f"shows {limits.sample_rows} of its rows" in ACTIONS[ActionType.SAMPLE]
    assert f"up to {limits.shown_rows} rows" in ACTIONS[ActionType.QUERY]
