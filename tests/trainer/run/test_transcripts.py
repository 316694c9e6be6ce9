import re

import pytest

from tests.trainer.conftest import record
from trainer.run.records import EpisodeRecord
from trainer.run.transcripts import COUNT, pick, transcripts


def episode(
    question_id: str,
    outcome: str = "wrong",
    turns: tuple[tuple[str, str], ...] = (("ANSWER: 1", ""),),
) -> EpisodeRecord:
    return record(question_id=question_id, outcome=outcome, turns=turns)


def many(
    learned: int, wrong: int, unlearned: int, right: int
) -> tuple[dict[str, EpisodeRecord], dict[str, EpisodeRecord]]:
    pairs = [("wrong", "correct")] * learned + [("budget", "wrong")] * wrong
    pairs += [("correct", "wrong")] * unlearned + [("correct", "correct")] * right
    before = {f"q{index}": episode(f"q{index}", first) for index, (first, _) in enumerate(pairs)}
    after = {f"q{index}": episode(f"q{index}", second) for index, (_, second) in enumerate(pairs)}
    return before, after


@pytest.mark.parametrize(
    ("counts", "shown"),
    [
        ((50, 50, 50, 50), [4, 2, 1, 1]),
        ((50, 0, 0, 50), [7, 0, 0, 1]),
        ((0, 50, 3, 0), [0, 7, 1, 0]),
        ((2, 1, 0, 0), [2, 1, 0, 0]),
    ],
)
def test_failures_keep_their_quota(counts, shown):
    before, after = many(*counts)
    chosen = pick(before, after)
    kinds = [kind.split(":")[0] for _, kind in chosen]
    assert [
        kinds.count(kind)
        for kind in ("learned", "still wrong", "unlearned", "right before and after")
    ] == shown
    assert len(chosen) == len({key for key, _ in chosen}) <= COUNT


def test_lost_episodes_are_not_shown():
    before = {"a": episode("a", "infra_failed"), "b": episode("b")}
    assert [key for key, _ in pick(before, {"a": episode("a"), "b": episode("b")})] == ["b"]


def test_the_page_shows_all_three_side_by_side():
    failed = (("QUERY: SELECT `x|y` FROM *a*_b", "Error: no such column: `x|y`"),)
    turns = (("DESCRIBE: orders", "id | total\n1 | 2.5\nSteps left: 9"), ("ANSWER: 42", ""))
    ended = [("a", "budget"), ("a", "wrong", failed), ("a", "correct", turns)]
    played = [{"a": episode(*one)} for one in ended]
    page = transcripts({"a": "How many <b>orders</b>?"}, *played, heading="Run")
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    body = rows[rows.index("| step | random | before | after |") + 1 :]
    cells = [
        [cell.strip() for cell in line.replace("\\|", "\0").strip("|").split("|")] for line in body
    ]
    assert all(len(row) == 4 for row in cells)  # no text broke out of its cell
    assert "How many &lt;b&gt;orders&lt;/b&gt;?" in page
    assert cells[0][3].startswith("**`DESCRIBE: orders`**<br>`id \0 total`<br>`1 \0 2.5`")
    assert "SELECT `x\0y` FROM *a*_b" in cells[0][2]
    assert cells[-1][0] == "end"
    assert "no answer" in cells[-1][1]
    assert "wrong" in cells[-1][2]
    assert "correct" in cells[-1][3]
    assert set(re.findall(r"<\w+", page)) == {"<br"}
