"""Jobs and results survive the pipe."""

import struct
from pathlib import Path
from typing import Any

import apsw
import pytest

from env_server.sql import jobs as module
from env_server.sql.jobs import Marker
from env_server.sql.limits import SqlLimits
from shared.actions import ACTIONS, ActionType
from shared.agents.tools import SQLEnvTools


def test_the_sqlite_version_is_pinned():
    """Steps, plans and messages depend on it."""
    root, pin = Path(__file__).parents[3], f"apsw=={apsw.apsw_version()}"
    assert f'"{pin}"' in (root / "pyproject.toml").read_text()
    assert pin in (root / "constraints.txt").read_text().splitlines()
    assert apsw.apsw_version().startswith(apsw.sqlite_lib_version())


def test_what_agents_are_told_states_the_limits_of_rows():
    mcp_tools = pytest.importorskip("env_server.http.mcp_tools")
    limits = SqlLimits()
    assert f"shows {limits.sample_rows} of its rows" in ACTIONS[ActionType.SAMPLE]
    assert f"up to {limits.shown_rows} rows" in ACTIONS[ActionType.QUERY]
    for tools in (SQLEnvTools, mcp_tools):
        assert f"Show {limits.sample_rows} rows" in str(tools.sample.__doc__)
        assert f"up to {limits.shown_rows} rows" in str(tools.query.__doc__)


def test_the_digest_covers_the_limits_that_decide_results():
    assert SqlLimits().digest() == SqlLimits(kill_after_s=1.0, open_connections=2).digest()
    assert SqlLimits().digest() != SqlLimits(max_vm_steps=1).digest()
    assert SqlLimits().digest() != SqlLimits(functions=("abs",)).digest()
    assert "random" not in SqlLimits().functions


def test_a_marker_never_shows_a_job_with_the_times_of_another(monkeypatch):
    """Wherever the other process is interrupted: by a reader here, then by a writer."""
    marker, seen = Marker(-1), []

    class Watched(struct.Struct):
        def pack_into(self, *arguments: Any) -> None:
            super().pack_into(*arguments)
            seen.append(marker.running())

    with monkeypatch.context() as patch:
        patch.setattr(module, "NUMBER", Watched("@Q"))
        patch.setattr(module, "TIMES", Watched("@dd"))
        for number in (1, 2, 0, 3):
            marker.begin(number, 10.0 * number, 100.0 * number)
    assert {number for number, *_ in seen} == {0, 1, 2, 3}
    assert all(times == [10.0 * number, 100.0 * number] for number, *times in seen if number)

    class Late(struct.Struct):
        def unpack_from(self, *arguments: Any) -> tuple[Any, ...]:
            number, _, _ = super().unpack_from(*arguments)
            if number == 3:
                marker.begin(4, 40.0, 400.0)
            return (number, *super().unpack_from(*arguments)[1:])

    monkeypatch.setattr(module, "MARKER", Late("@Qdd"))
    assert marker.running() == (4, 40.0, 400.0)
