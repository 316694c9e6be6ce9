"""`SqlLimits` agrees with what agents are promised."""

import pytest

from env_server.sql import SqlLimits
from shared.actions import ACTIONS, ActionType
from shared.agents.tools import SQLEnvTools


def test_the_action_texts_state_the_limits_of_rows() -> None:
    limits = SqlLimits()
    assert f"shows {limits.sample_rows} of its rows" in ACTIONS[ActionType.SAMPLE]
    assert f"up to {limits.shown_rows} rows" in ACTIONS[ActionType.QUERY]
    assert f"Show {limits.sample_rows} rows" in str(SQLEnvTools.sample.__doc__)
    assert f"up to {limits.shown_rows} rows" in str(SQLEnvTools.query.__doc__)


def test_the_tools_of_mcp_state_the_limits_of_rows() -> None:
    pytest.importorskip("mcp")
    from env_server.http import mcp_tools

    limits = SqlLimits()
    assert f"Show {limits.sample_rows} rows" in str(mcp_tools.sample.__doc__)
    assert f"up to {limits.shown_rows} rows" in str(mcp_tools.query.__doc__)
