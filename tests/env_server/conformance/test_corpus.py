"""The hostile queries as data: enough, complete, and errors in them are named."""

import re
from pathlib import Path

import pytest

from env_server.conformance.corpus import DIRECTORY, join, load
from shared.errors import DataError

QUERIES = load()
ONE = "[[query]]\nname = 'x'\nwhat = ''\nsql = ''\ndefence = ''\n"


def test_each_names_a_defence_that_the_readme_describes() -> None:
    table = (DIRECTORY / "README.md").read_text().partition("| defence | |")[2]
    described = set(re.findall(r"^\| ([a-zA-Z -]+?) \| ", table, re.MULTILINE))
    assert {query.defence for query in QUERIES} <= described


def test_every_statement_is_complete_and_fits_an_action() -> None:
    for query in QUERIES:
        sql = query.statement('odd "name"', "it's", "/tmp/it's")
        assert not re.search(r"@\w+@", sql), query.name
        assert len(sql) <= 20_000, query.name
        assert query.what


def test_parts_are_repeated_and_numbered() -> None:
    assert join("as it is, with @i@") == "as it is, with @i@"
    assert join(["a", ["b@i@", 3], "c", [["x", 2], "@h@ ", 2]]) == "ab1b2b3cxx0 xx1 "


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("this is no TOML", "a.toml"),
        ("[[query]]\nname = 'x'", "'x'"),
        (f"{ONE}expect = 'denied'", "sql_denied"),
        (f"{ONE}expect = 'shown'", "shows"),
        (f"{ONE}expect = 'sql_error'\nshows = ''", "shows"),
        (f"{ONE}expect = 'sql_error'\n" * 2, "two queries"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path: Path, text: str, named: str) -> None:
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(DataError, match=re.escape(named)) as error:
        load(tmp_path)
    assert "a.toml" in str(error.value)


def test_an_empty_directory_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="--hostile"):
        load(tmp_path)
