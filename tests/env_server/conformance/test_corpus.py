"""The hostile queries as data: complete, and with a defence that their README describes."""

import re

from env_server.conformance.corpus import DIRECTORY, SHOWN, join, load

OUTCOMES = {"no_such_table", "sql_error", "sql_denied", "sql_budget", "sql_killed", SHOWN}


def test_every_query_is_complete_and_fits_an_action() -> None:
    queries = load()
    assert len({query.name for query in queries}) == len(queries) == 143
    table = (DIRECTORY / "README.md").read_text().partition("| defence | |")[2]
    described = set(re.findall(r"^\| ([a-zA-Z -]+?) \| ", table, re.MULTILINE))
    for query in queries:
        sql = query.statement('odd "name"', "it's", "/tmp/it's")
        assert not re.search(r"@\w+@", sql), query.name
        assert len(sql) <= 20_000, query.name
        assert query.what
        assert query.defence in described
        assert set() < set(query.expect) <= OUTCOMES, query.name
        assert (SHOWN in query.expect) == (query.shows is not None), query.name


def test_parts_are_repeated_and_numbered() -> None:
    assert join("as it is, with @i@") == "as it is, with @i@"
    assert join(["a", ["b@i@", 3], "c", [["x", 2], "@h@ ", 2]]) == "ab1b2b3cxx0 xx1 "
