"""What decides a reply: outputs change only on purpose, and any edit of the code that makes them
changes the server's digest, on which resuming a run and moving an episode to a replica depend.

tests/env_server/behaviour.py lists what is recorded.
"""

import json
import shutil

import pytest

from env_server.questions import QuestionBank
from env_server.rules import CODE
from env_server.service import describe
from env_server.settings import Settings
from env_server.sql import SqlLimits
from shared import code_digest
from tests.env_server import behaviour
from tests.test_imports import ROOT


def test_outputs_change_only_on_purpose():
    recorded = json.loads(behaviour.PATH.read_text())
    current = behaviour.record(QuestionBank.load(behaviour.ROOT / "data"))
    if current["sqlite"] != recorded["sqlite"]:
        pytest.skip(f"recorded with SQLite {recorded['sqlite']}; this is {current['sqlite']}")
    assert behaviour.comparable(recorded, current), f"the data changed: run {behaviour.RECORD}"
    assert not list(behaviour.changes(recorded, current))


def test_the_digest_covers_data_limits_sqlite_budget_and_standard(tiny_data, monkeypatch):
    bank = QuestionBank.load(tiny_data)
    digests = [
        describe(bank, Settings()).digest,
        describe(bank, Settings(step_budget=3)).digest,
        describe(bank, Settings(standard="spider")).digest,
        describe(QuestionBank.load(tiny_data, SqlLimits(max_vm_steps=7)), Settings()).digest,
    ]
    assert describe(bank, Settings(port=9, capacity=7)).digest == digests[0]
    for attribute in ("data_digest", "sqlite_version"):
        with monkeypatch.context() as patched:
            patched.setattr(bank, attribute, "other")
            digests.append(describe(bank, Settings()).digest)
    assert len(set(digests)) == len(digests) == 6


@pytest.mark.parametrize(
    ("file", "part"),
    [
        ("env_server/rewards.py", "rewards"),
        ("env_server/verifier/layouts.py", "verdicts"),
        ("shared/answers/cells.py", "verdicts"),
        ("shared/answers/numbers.py", "verdicts"),
        ("env_server/render.py", "observations"),
        ("env_server/sql/empty_results.py", "observations"),
        ("env_server/sql/remedies.py", "observations"),
        ("shared/actions.py", "observations"),
    ],
)
def test_an_edit_of_an_amount_a_form_or_a_text_is_another_digest(
    tiny_data, tmp_path, monkeypatch, file, part
):
    bank = QuestionBank.load(tiny_data)
    before = describe(bank, Settings())
    for name in ("env_server", "shared"):
        shutil.copytree(ROOT / name, tmp_path / name)
    monkeypatch.setattr(code_digest, "ROOT", tmp_path)
    code_digest.code_digest.cache_clear()
    assert describe(bank, Settings()) == before, "the folder does not count"
    with (tmp_path / file).open("a") as source:
        source.write("X = 1\n")
    code_digest.code_digest.cache_clear()
    after = describe(bank, Settings())
    code_digest.code_digest.cache_clear()
    assert after.digest != before.digest
    assert {name for name in CODE if after.rules[name] != before.rules[name]} == {part}


def test_every_file_of_the_rules_exists():
    assert all((ROOT / name).exists() for names in CODE.values() for name in names)
