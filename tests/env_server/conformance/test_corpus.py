"""The hostile queries as data: enough, complete, and errors in them are named."""

import re
from collections import Counter
from pathlib import Path

import pytest

from env_server.conformance.corpus import DIRECTORY, HostileQuery, join, load
from shared.errors import DataError

QUERIES = load()


def test_there_are_enough_of_every_kind() -> None:
    assert len(QUERIES) >= 120
    kinds = Counter(query.kind for query in QUERIES)
    assert min(kinds.values()) >= 12, kinds


def test_each_names_a_defence_that_the_readme_describes() -> None:
    described = set(
        re.findall(
            r"^\| ([a-zA-Z -]+?) \| ",
            (DIRECTORY / "README.md").read_text().partition("| defence | |")[2],
            re.MULTILINE,
        )
    )
    used = {query.defence for query in QUERIES}
    assert used <= described
    # behind the authorizer: nothing reaches them
    assert described - used <= {"read-only file", "own connection"}


def test_every_statement_is_complete_and_fits_an_action() -> None:
    for query in QUERIES:
        sql = query.statement('odd "name"', "it's", "/tmp/it's")
        assert not re.search(r"@\w+@", sql), query.name
        assert len(sql) <= 20_000, query.name
        assert query.what


def test_names_and_paths_are_quoted() -> None:
    query = HostileQuery(
        name="n",
        kind="k",
        what="w",
        sql="SELECT @column@ FROM @table@ WHERE x = '@file@'",
        defence="steps",
        expect=("shown",),
        shows="",
    )
    assert query.statement('a"b', "c d", "it's") == """SELECT "c d" FROM "a""b" WHERE x = 'it''s'"""


def test_parts_are_repeated_and_numbered() -> None:
    assert join("as it is, with @i@") == "as it is, with @i@"
    assert join(["a", ["b@i@", 3], "c", [["x", 2], "@h@ ", 2]]) == "ab1b2b3cxx0 xx1 "


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("this is no TOML", "a.toml"),
        ("[[query]]\nname = 'x'", "'x'"),
        (
            "[[query]]\nname = 'x'\nwhat = ''\nsql = ''\ndefence = ''\nexpect = 'denied'",
            "sql_denied",
        ),
        ("[[query]]\nname = 'x'\nwhat = ''\nsql = ''\ndefence = ''\nexpect = 'shown'", "shows"),
        (
            "[[query]]\nname = 'x'\nwhat = ''\nsql = ''\ndefence = ''\nexpect = "
            "'sql_error'\nshows = ''",
            "shows",
        ),
        (
            "[[query]]\nname = 'x'\nwhat = ''\nsql = ''\ndefence = ''\nexpect = 'sql_error'\n" * 2,
            "two queries",
        ),
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
