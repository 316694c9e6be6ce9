"""Hostile and wrong SQL before environments."""

import json
from collections import Counter

import pytest

from benchmarks.peers import trust
from benchmarks.peers.trust import BLOCK_BYTES, Copy, bytes_written, main
from tests.conformance import corpus


def test_a_spoiled_copy_is_noticed_and_restored(tiny_data, tmp_path):
    copy = Copy(tiny_data, tmp_path / "copy")
    assert copy.restore() == 0
    [database, *_] = sorted((copy.folder / "databases").rglob("*.sqlite"))
    whole = database.read_bytes()
    database.chmod(0o644)
    database.write_bytes(b"")
    (database.parent / "made").write_bytes(b"x" * 5000)
    assert copy.restore() == len(whole) + 5000
    assert not (database.parent / "made").exists()
    assert database.read_bytes() == whole


def test_bytes_written_are_those_of_the_blocks_that_differ():
    before = bytes(3 * BLOCK_BYTES)
    assert bytes_written(before, before) == 0
    assert bytes_written(before, b"x" + before[1:]) == BLOCK_BYTES
    assert bytes_written(before, before + b"x") == 1
    assert bytes_written(before, b"") == len(before)


@pytest.mark.slow
def test_hostile_sql_harms_nothing_here_and_earns_nothing(tiny_data, tmp_path, monkeypatch):
    names = {"insert", "attach a file", "endless recursion", "pragma hard_heap_limit"}
    some = [query for query in corpus.load() if query.name in names]
    monkeypatch.setattr(trust.corpus, "load", lambda: some)
    result = tmp_path / "trust.json"
    main(tiny_data, ["sqlenv"], json_path=result)
    found = json.loads(result.read_text())["sqlenv"]
    assert found["statements"] == len(names)
    assert found["written"] == {}
    for kind in ("read", "files", "slow"):
        assert found[kind] == []
    assert found["earned"]["DELETE FROM T"] == 0.0 < found["peak_mib"]
    assert found["wrong"] > 40
    assert not +Counter(found["accepted"])
