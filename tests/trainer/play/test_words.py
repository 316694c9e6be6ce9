"""The words of a question that match nothing in a database."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.trainer.play.conftest import run_script
from trainer.play import words
from trainer.play.words import unknown_words

CLINIC = """
CREATE TABLE tblPatients (PatientID INTEGER PRIMARY KEY, home_town TEXT, "Date of Birth" DATE);
CREATE TABLE drug (code TEXT, price REAL, note);
INSERT INTO tblPatients VALUES (1, 'São Paulo', '1990-01-02'), (2, 'Köln', '1991-01-02');
INSERT INTO drug VALUES ('AMX-500', 3.5, 'allergies to penicillin'), (NULL, 1.0, x'00ff');
"""


@pytest.mark.parametrize(
    ("question", "unknown"),
    [
        ("How many patients are there?", []),
        ("What is the highest price of all drugs in 2024?", []),
        ("Which patients were born in KÖLN in January?", []),
        ("What is AMX-500, and who lives in são paulo?", []),
        ("Who has an allergy to Penicillin?", []),
        ("How many nurses work in Köln's hospital?", ["nurses", "hospital"]),
        ("List the hometowns, births and surgeons; and the surgeons again", ["surgeons"]),
        ("100% of '; DROP TABLE drug; --", ["drop", "table"]),
    ],
)
def test_only_words_that_match_nothing_are_named(
    tmp_path: Path, question: str, unknown: list[str]
) -> None:
    path = run_script(tmp_path / "clinic.db", CLINIC)
    assert unknown_words(path, question) == unknown


def test_a_large_table_is_searched_to_its_end_in_time(tmp_path: Path) -> None:
    path = tmp_path / "large.db"
    rows = ((f"customer {number % 997}", f"street {number % 7919}") for number in range(200_000))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE visits (name TEXT, place TEXT)")
        connection.executemany("INSERT INTO visits VALUES (?, ?)", rows)
        connection.execute("INSERT INTO visits VALUES ('the last one', 'harbour')")
        connection.commit()
    start = time.process_time()
    assert unknown_words(path, "Which zebras visit the harbour?") == ["zebras"]
    assert time.process_time() - start < 1.0


def test_words_are_not_named_unless_all_values_were_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(words, "MAX_S", 0.0)
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 20000)"
    script = f"CREATE TABLE t (x TEXT); {numbers} INSERT INTO t SELECT hex(i) FROM n"
    assert unknown_words(run_script(tmp_path / "t.db", script), "Where are the zebras?") == []
