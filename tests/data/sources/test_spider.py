"""Spider's layout becomes a data directory; unusable rows are counted and named."""

import json
import os
import shutil
from pathlib import Path

import pytest

from data.audit import audit
from data.golds.check_gold import KEEP
from data.golds.hardness import difficulty_of
from env_server.questions import QuestionBank
from env_server.sql.run import SqlRunner
from shared.dataset import check_databases, load_splits
from shared.errors import DataError
from tests.data.sources.importing import (
    DEV,
    TRAIN,
    files_of,
    import_spider,
    imported,
    make_spider,
    make_spider_database,
    row,
    run_import,
    write_json,
)
from tests.env_server.in_process import LocalEnvironment

SPIDER_DIR = os.environ.get("SPIDER_DIR")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_spider(tmp_path / "spider")


def test_usable_questions_are_written_in_our_format(source, tmp_path):
    out = tmp_path / "out"
    import_spider(source, out)
    splits = load_splits(out)
    check_databases(out, [question for split in splits.values() for question in split])
    assert {split: [q.question_id for q in questions] for split, questions in splits.items()} == {
        # two wordings of one query are both kept
        "train": ["spider-train-0000", "spider-train-0001"],
        "eval": ["spider-dev-0000", "spider-dev-0003"],
    }
    joined = splits["eval"][0]
    assert joined.gold_answer == ["Léo", "Mia"]
    assert (joined.answer_type, joined.difficulty) == ("list", "medium")
    assert joined.tables_involved == ["Animal", "Cage"]  # spelt as in the database
    assert joined.gold_sql.endswith("'north'")  # without the semicolon
    assert joined.database_name == "zoo"


def test_text_that_utf8_or_sqlite_cannot_hold_is_a_bad_row(source, tmp_path):
    odd = [
        row("zoo", "Half a pair \ud800?", "SELECT count(*) FROM tick"),
        row("zoo", "How many?", "SELECT count(*) FROM tick\0"),
        row("zo\udc80", "How many?", "SELECT 1"),
        row("z" * 300, "How many?", "SELECT 1"),
        row("zoo", "Animal 3?", "SELECT name FROM animal WHERE id = 3"),
    ]
    write_json(source / "dev.json", [*DEV, *odd])
    status, printed = run_import("spider", source, "--out", tmp_path / "out")
    assert status == 0
    assert "dev.json row 4: 'question' holds a NUL or half a surrogate pair" in printed
    report = json.loads((tmp_path / "out" / "import_report.json").read_text())
    dropped = report["splits"]["eval"]["dropped"]
    assert (dropped["bad row"], dropped["unusable database"], dropped["unstable"]) == (3, 1, 1)
    assert report["splits"]["eval"]["kept"] == 2


def test_dropped_questions_are_counted_by_reason_and_split(source, tmp_path):
    text = imported("spider", source, "--out", tmp_path / "out")
    lines = [line.replace("│", " ").split() for line in text.splitlines()]
    for line in ("rows read 4 4", "dropped: tied 1 -", "kept 2 2"):
        assert line.split() in lines
    assert "not kept: spider-train-0002: tied: rows 1 to 2 differ and are equal in the sort" in text
    assert "tied: name more columns in ORDER BY, or pass --keep ties" in text
    written = json.loads((tmp_path / "out" / "import_report.json").read_text())
    assert {name: split["dropped"] for name, split in written["splits"].items()} == {
        "train": {"tied": 1, "empty": 1},
        "eval": {"oversize": 1, "null": 1},
    }
    assert {(one["question_id"], one["reason"]) for one in written["dropped"]} == {
        ("spider-train-0002", "tied"),
        ("spider-train-0003", "empty"),
        ("spider-dev-0001", "oversize"),
        ("spider-dev-0002", "null"),
    }


def test_broken_files_are_named_and_the_rest_is_imported(source, tmp_path):
    make_spider_database(source, "bad", "CREATE TABLE t (x)").write_bytes(b"garbage" * 500)
    torn = make_spider_database(
        source, "torn", "CREATE TABLE t (x); INSERT INTO t VALUES (zeroblob(40000))"
    )
    torn.write_bytes(torn.read_bytes()[:9000])
    rows = [
        *TRAIN,
        row("bad", "?", "SELECT 1"),
        row("torn", "?", "SELECT count(*) FROM t"),
        row("absent", "?", "SELECT 1"),
        row("../shop", "?", "SELECT 1"),
        {"db_id": "shop", "question": "no query"},
        row("shop", None, "SELECT 1"),
        "not an object",
    ]
    write_json(source / "train_spider.json", rows)
    write_json(source / "train_others.json", TRAIN[:1])
    report = import_spider(source, tmp_path / "out")
    assert report.splits["train"].kept == 3
    assert report.splits["train"].dropped["unusable database"] == 3
    assert report.splits["train"].dropped["bad row"] == 4
    named = "\n".join([*report.problems, *(one.detail for one in report.dropped)])
    for part in ("bad.sqlite", "torn.sqlite", "absent.sqlite", "row 7: '../shop'", "row 10"):
        assert part in named
    assert not (tmp_path / "out" / "databases" / "bad").exists()
    ids = [question.question_id for question in load_splits(tmp_path / "out")["train"]]
    assert ids[-1] == "spider-others-0000"


def test_a_missing_file_leaves_the_other_split_and_a_broken_one_is_an_error(source, tmp_path):
    (source / "train_spider.json").unlink()
    report = import_spider(source, tmp_path / "out")
    assert set(load_splits(tmp_path / "out")) == {"eval"}
    assert report.problems == [f"{source / 'train_spider.json'} is missing"]
    (source / "train_spider.json").write_text("[{]")
    with pytest.raises(DataError, match=r"train_spider\.json is not JSON"):
        import_spider(source, tmp_path / "out")


def test_nothing_usable_exits_nonzero_and_writes_nothing(source, tmp_path):
    write_json(source / "train_spider.json", TRAIN[3:])
    (source / "dev.json").unlink()
    status, text = run_import("spider", source, "--out", tmp_path / "out")
    assert status == 1
    assert "spider-train-0000: empty: no rows" in text
    assert "dev.json is missing" in text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["spider"]


def test_only_an_unchanged_import_is_replaced_without_force(source, tmp_path):
    out = tmp_path / "out"
    import_spider(source, out)
    write_json(source / "train_spider.json", TRAIN[:1])
    import_spider(source, out)
    assert len(load_splits(out)["train"]) == 1
    for change in ("questions/questions_eval.json", "notes.txt"):
        with (out / change).open("a") as file:
            file.write(" ")
        before = files_of(out)
        with pytest.raises(DataError, match=r"was changed since it was written.*--force"):
            import_spider(source, out)
        assert files_of(out) == before
        import_spider(source, out, force=True)
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("precious")
    with pytest.raises(DataError, match="--force"):
        import_spider(source, other)
    assert (other / "thesis.txt").read_text() == "precious"
    import_spider(source, other, force=True)
    assert not (other / "thesis.txt").exists()
    assert load_splits(other)


def test_out_and_source_must_not_overlap(source):
    for out in (source, source / "out", source.parent):
        with pytest.raises(DataError, match="overlap"):
            import_spider(source, out, force=True)
    assert (source / "dev.json").is_file()


def test_a_failed_write_leaves_the_earlier_import(source, tmp_path, monkeypatch):
    out = tmp_path / "out"
    import_spider(source, out)
    before = files_of(out)

    def full(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(OSError, match="No space"):
        import_spider(source, out)
    assert files_of(out) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "spider"]


def outcomes(data_dir: Path, question_id: str, answers: list[str]) -> list[str]:
    """Return the outcome of each answer to a question, played in process."""
    env = LocalEnvironment(QuestionBank.load(data_dir), SqlRunner())
    found = []
    for answer in answers:
        env.reset(question_id=question_id)
        found.append(str(env.step(f"ANSWER: {answer}").info.outcome))
    return found


def test_kept_questions_are_counted_and_judged(source, tmp_path):
    out = tmp_path / "out"
    text = imported("spider", source, "--out", out, "--keep", "ties,empty")
    assert "on request: tied" in text
    report = json.loads((out / "import_report.json").read_text())
    assert report["keep"] == ["empty", "null", "tied"]
    assert report["splits"]["train"]["kept_on_request"] == {"tied": 1, "empty": 1}
    assert {(one["question_id"], one["reason"]) for one in report["kept_on_request"]} == {
        ("spider-train-0002", "tied"),
        ("spider-train-0003", "empty"),
        ("spider-dev-0002", "null"),
    }
    # pen and cup cost most
    judged = outcomes(out, "spider-train-0002", ["pen", "cup", "cap", "pen, cup"])
    assert judged == ["correct", "correct", "wrong", "wrong"]
    judged = outcomes(out, "spider-train-0003", ["[]", "none", "NULL", "pen", "0"])
    assert judged == ["correct"] * 3 + ["wrong"] * 2
    assert audit(out).errors == []


@pytest.mark.parametrize(
    ("sql", "level"),
    [
        ("SELECT count(*) FROM t", "easy"),
        ("SELECT a FROM t ORDER BY b", "easy"),
        ("SELECT a, b FROM t WHERE c = 1", "medium"),
        ("SELECT a FROM t WHERE b = 1 AND c = 2", "medium"),
        ("SELECT a FROM t WHERE b LIKE 'x%'", "medium"),  # WHERE and LIKE
        ("SELECT T1.a FROM t AS T1 JOIN u AS T2 ON T1.id = T2.id WHERE T2.b = 1", "medium"),
        (
            "SELECT T1.a FROM t AS T1 JOIN u AS T2 ON T1.id = T2.id JOIN v AS T3 ON T2.v = T3.id "
            "WHERE T3.b = 1",
            "hard",
        ),
        ("SELECT a FROM t WHERE b = (SELECT max(b) FROM t)", "hard"),
        ("SELECT a FROM t EXCEPT SELECT a FROM u WHERE b = 1 OR c = 2", "hard"),
        ("WITH u AS (SELECT a FROM t) SELECT a FROM u", "hard"),
    ],
)
def test_difficulty_follows_spiders_counts(sql, level):
    assert difficulty_of(sql) == level


@pytest.mark.skipif(SPIDER_DIR is None, reason="SPIDER_DIR is not set: no copy of Spider to import")
@pytest.mark.slow
def test_real_spider_imports(tmp_path):
    out = tmp_path / "out"
    report = import_spider(Path(str(SPIDER_DIR)), out)
    splits = load_splits(out)
    for name, count in report.splits.items():
        assert count.rows == count.kept + sum(count.dropped.values())
        assert len(splits[name]) == count.kept
        assert count.kept > 0.7 * count.rows
    evaluation = report.splits["eval"]
    assert evaluation.dropped["empty"] > 0.03 * evaluation.rows  # about one in 20 has no rows
    assert evaluation.dropped["tied"] > 0
    # as docs/trust.md has it
    assert [count.dropped["undecided"] for count in report.splits.values()] == [52, 12]
    assert not {q.database_name for q in splits["train"]} & {
        q.database_name for q in splits["eval"]
    }


@pytest.mark.skipif(SPIDER_DIR is None, reason="SPIDER_DIR is not set: no copy of Spider to import")
def test_every_member_of_a_tie_in_real_spider_is_right(tmp_path):
    source, out = Path(str(SPIDER_DIR)), tmp_path / "out"
    (tmp_path / "dev").mkdir()
    for name in ("database", "dev.json", "tables.json"):
        (tmp_path / "dev" / name).symlink_to(source / name)
    keep = frozenset().union(*KEEP.values())
    report = import_spider(tmp_path / "dev", out, keep=keep)
    kept = {"tied": 26, "empty": 40, "null": 4, "undecided": 18}
    assert dict(report.splits["eval"].kept_on_request) == kept
    assert report.splits["eval"].dropped["tied"] == 4  # in subqueries
    env = LocalEnvironment(QuestionBank.load(out), SqlRunner())
    several = 0
    for item in report.kept_on_request:
        question = env.bank.get(item.question_id)
        answers = {question.answer_text}
        env.reset(question_id=question.question_id)
        gold = env.bank.gold(question)  # its ties are known after a reset
        for turn in range(max((len(block.rows) for block in gold.blocks), default=0)):
            taken = [
                (block.rows * 2)[turn % len(block.rows) :][: block.take] for block in gold.blocks
            ]
            rows = [row for part in taken for row in part]
            shown = {"table": rows, "list": [row[0] for row in rows]}
            answers.add(json.dumps(shown.get(question.answer_type, rows and rows[0][0])))
        several += len(answers) > 1
        for answer in answers:
            env.reset(question_id=question.question_id)
            assert env.step(f"ANSWER: {answer}").info.outcome == "correct", (item, answer)
    assert several >= 26
