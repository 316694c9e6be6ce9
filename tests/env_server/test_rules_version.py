"""Rules change only with their version: `env_server.service.VERSIONS` is part of the server's
digest, on which resuming a run and moving an episode to another replica depend.

tests/env_server/behaviour.py lists what is recorded. A changed comment passes; a changed
observation, reward or verdict fails here, with the version to raise.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from env_server import service
from env_server.questions import QuestionBank
from env_server.service import describe
from env_server.settings import Settings
from env_server.sql import SqlLimits
from tests.env_server import behaviour


@pytest.fixture(scope="module")
def shipped() -> QuestionBank:
    return QuestionBank.load(behaviour.ROOT / "data")


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    return json.loads(behaviour.PATH.read_text())


def test_outputs_change_only_with_their_version(
    shipped: QuestionBank, recorded: dict[str, Any]
) -> None:
    current = behaviour.record(shipped)
    if current["sqlite"] != recorded["sqlite"]:
        pytest.skip(f"recorded with SQLite {recorded['sqlite']}; this is {current['sqlite']}")
    assert behaviour.comparable(recorded, current), (
        f"the shipped data changed: run {behaviour.RECORD} on a tree without other changes"
    )
    assert not list(behaviour.changes(recorded, current))


def test_the_digest_covers_data_versions_limits_sqlite_budget_and_standard(
    tiny_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank = QuestionBank.load(tiny_data)
    digests = [
        describe(bank, Settings()).digest,
        describe(bank, Settings(step_budget=3)).digest,
        describe(bank, Settings(standard="spider")).digest,
        describe(QuestionBank.load(tiny_data, SqlLimits(max_vm_steps=7)), Settings()).digest,
    ]
    assert describe(bank, Settings(port=9, capacity=7)).digest == digests[0]
    for name in service.VERSIONS:
        with monkeypatch.context() as patched:
            patched.setitem(service.VERSIONS, name, "next")
            digests.append(describe(bank, Settings()).digest)
    for attribute in ("data_digest", "sqlite_version"):
        with monkeypatch.context() as patched:
            patched.setattr(bank, attribute, "other")
            digests.append(describe(bank, Settings()).digest)
    assert len(set(digests)) == len(digests) == 10
