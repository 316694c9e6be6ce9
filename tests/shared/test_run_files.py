"""The format of a run's files: changed lines are detected."""

import hashlib
import json
import subprocess
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.models import SQLObservation
from shared.run_files import (
    CHECKSUMS,
    LineError,
    check_seal,
    checksums,
    observation_digest,
    read_checksums,
    read_episode,
    render_checksums,
    sealed,
)

ROW: dict[str, Any] = {
    "phase": "train",
    "mode": "sampled",
    "step": 1,
    "question_id": "q",
    "database": "shop",
    "difficulty": "easy",
    "part": "seen",
    "outcome": "wrong",
    "steps": 1,
    "correctness": 0.0,
    "progress": 0.0,
    "operational": 0.02,
    "reward": 0.02,
    "parse_failures": 0,
    "inferred_actions": 0,
    "env_errors": 0,
    "context_overflow": False,
    "too_large": False,
    "context_truncations": 2,
    "actions": ["ANSWER: Zoë"],
    "texts": [None],
    "rewards": [0.0],
    "observations": ["0" * 16, "1" * 16],
    "parts": [{"exec_ok": 0.02}],
}


def line_of(row: dict[str, Any]) -> bytes:
    return json.dumps(sealed(row), ensure_ascii=False).encode() + b"\n"


def test_a_sealed_line_is_read_back():
    line = line_of(ROW)
    check_seal(line)
    assert read_episode(line).model_dump(mode="json") == ROW | {"sample": 0}
    # the seal is that of the line without it, so that other tools can check it
    bare = json.dumps(ROW, ensure_ascii=False).encode()
    assert json.loads(line)["sha256"] == hashlib.sha256(bare).hexdigest()


@given(st.integers(0, len(line_of(ROW)) - 1), st.integers(1, 255))
def test_no_byte_of_a_line_can_change(place, change):
    line = bytearray(line_of(ROW))
    line[place] ^= change
    with pytest.raises(LineError):
        check_seal(bytes(line))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"steps": "1"}, "steps"),
        ({"outcome": "won"}, "outcome"),
        ({"rewards": None}, "rewards"),
        ({}, "actions"),
    ],
)
def test_a_malformed_field_is_named(change, named):
    row = {**ROW, **change}
    if not change:
        del row["actions"]
    with pytest.raises(LineError, match=named):
        read_episode(line_of(row))
    with pytest.raises(LineError, match="Invalid JSON"):
        read_episode(b"{\n")


def test_a_line_without_a_digest_or_an_end_is_refused():
    with pytest.raises(LineError, match="sha256"):
        check_seal(json.dumps(ROW).encode() + b"\n")
    with pytest.raises(LineError, match="cut short"):
        check_seal(line_of(ROW)[:-1])


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
def test_an_observations_digest_covers_every_field():
    seen = SQLObservation(
        question="q",
        schema_info="Tables: t",
        result="1",
        step_count=1,
        budget_remaining=2,
        done=False,
        reward=0.01,
        action_history=["SAMPLE: t"],
    )
    changes = [{name: "x"} for name in SQLObservation.model_fields]
    digests = {observation_digest(seen.model_copy(update=change)) for change in ({}, *changes)}
    assert len(digests) == len(changes) + 1


def test_checksums_match_sha256sum(tmp_path):
    summed = ("summary.json", "model/model.safetensors")
    for name in (*summed, "checkpoints/x", "server.log", "wall.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    sums = checksums(tmp_path)
    assert sorted(summed) == list(sums)
    (tmp_path / CHECKSUMS).write_text(render_checksums(sums))
    assert read_checksums((tmp_path / CHECKSUMS).read_bytes()) == sums == checksums(tmp_path)
    command = ["sha256sum", "--check", "--strict", "--quiet", CHECKSUMS]
    subprocess.run(command, cwd=tmp_path, check=True)


def test_no_byte_of_the_checksums_can_change():
    sums = {
        name: hashlib.sha256(name.encode()).hexdigest() for name in ("config.json", "model/é.bin")
    }
    content = render_checksums(sums).encode()
    assert read_checksums(content) == sums
    for place in range(len(content)):
        for byte in set(range(256)) - {content[place]}:
            try:
                found = read_checksums(content[:place] + bytes([byte]) + content[place + 1 :])
            except LineError:
                continue
            assert found != sums, (place, byte)


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("{0}  a\n{0} b\n", "line 2 is not"),
        ("{0}  a\n{0}  a\n", "line 2 names a again"),
        ("{0}  a", "cut short"),
        ("", "cut short"),
        ("\n", "line 1"),
        ("{0}  a\r\n{0}  \n", "line 2"),
    ],
)
def test_malformed_checksums_are_named(content, named):
    with pytest.raises(LineError, match=named):
        read_checksums(content.format("0" * 64).encode())
