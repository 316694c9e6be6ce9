"""The names in a question that nothing in a database is called or contains."""

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


def test_names_are_not_reported_unless_all_values_were_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names, "MAX_S", 0.0)
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 20000)"
    script = f"CREATE TABLE t (x TEXT); {numbers} INSERT INTO t SELECT hex(i) FROM n"
    assert unknown_names(run_script(tmp_path / "t.db", script), "Where are the Zebras?") == []
