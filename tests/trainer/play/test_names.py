"""The names in a question that nothing in a database is called or contains."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.trainer.play.conftest import run_script
from trainer.play import names
from trainer.play.names import unknown_names

CLINIC = """
CREATE TABLE tblPatients (PatientID INTEGER PRIMARY KEY, home_town TEXT, "Date of Birth" DATE);
CREATE TABLE drug (code TEXT, price REAL, note);
INSERT INTO tblPatients VALUES (1, 'São Paulo', '1990-01-02'), (2, 'Köln', '1991-01-02');
INSERT INTO drug VALUES ('AMX-500', 3.5, 'allergies to penicillin'), (NULL, 1.0, x'00ff');
"""


@pytest.mark.parametrize(
    ("question", "unknown"),
    [
        ("Which Patients were born in KÖLN in January, with Zork?", ["Zork"]),
        ("What is AMX-500? Who lives in 'são paulo'?", []),
        ("Who is 'allergic' to Penicillin; or to Aspirin, Aspirin?", ["allergic", "Aspirin"]),
        ("Does Ann's doctor work in “Neustadt” or in Köln's clinic?", ["Neustadt", "Ann"]),
        ("Whose Home Town is 100% of '; DROP TABLE drug; --'", ["; DROP TABLE drug; --"]),
        ("how many nurses are there", []),
    ],
)
def test_only_names_that_nothing_contains_are_reported(
    tmp_path: Path, question: str, unknown: list[str]
) -> None:
    path = run_script(tmp_path / "clinic.db", CLINIC)
    assert unknown_names(path, question) == unknown


def test_a_large_table_is_searched_to_its_end_in_time(tmp_path: Path) -> None:
    path = tmp_path / "large.db"
    rows = ((f"customer {number % 997}", f"street {number % 7919}") for number in range(200_000))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE visits (name TEXT, place TEXT)")
        connection.executemany("INSERT INTO visits VALUES (?, ?)", rows)
        connection.execute("INSERT INTO visits VALUES ('the last one', 'harbour')")
        connection.commit()
    start = time.process_time()
    assert unknown_names(path, "Which Zebras visit 'harbour'?") == ["Zebras"]
    assert time.process_time() - start < 1.0


def test_names_are_not_reported_unless_all_values_were_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names, "MAX_S", 0.0)
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 20000)"
    script = f"CREATE TABLE t (x TEXT); {numbers} INSERT INTO t SELECT hex(i) FROM n"
    assert unknown_names(run_script(tmp_path / "t.db", script), "Where are the Zebras?") == []
