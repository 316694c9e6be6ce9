"""Records of played episodes: as lines of episodes.jsonl, and read back."""

import json

from shared.run_files import check_seal, read_episode
from tests.trainer.records import record
from trainer.run.folder import to_json
from trainer.run.records import EpisodeRecord, Turn

RECORD = record(
    operational=0.01,
    reward=1.01,
    turns=(Turn("describe orders", "id, price"), Turn("ANSWER: 1", "")),
    actions=("DESCRIBE: orders", "ANSWER: 1"),
    rewards=(0.01, 1.0),
    observations=("0" * 16, "1" * 16, "2" * 16),
    parts=({"step_cost": -0.02, "exec_ok": 0.02, "new_info": 0.01}, {"correctness": 1.0}),
)


def test_a_line_has_what_an_audit_compares() -> None:
    line = to_json(RECORD.as_line("train", "sampled", 3)).encode() + b"\n"
    check_seal(line)
    episode = read_episode(line)
    assert (episode.phase, episode.mode, episode.step) == ("train", "sampled", 3)
    assert episode.texts == ["describe orders", None]  # only where it is not the canonical text
    assert episode.parts == RECORD.parts
    assert [round(sum(parts.values()), 6) for parts in RECORD.parts] == episode.rewards
    assert (episode.correct, episode.finished) == (True, True)


def test_a_record_is_read_back() -> None:
    assert EpisodeRecord.model_validate(json.loads(to_json(RECORD.model_dump()))) == RECORD
