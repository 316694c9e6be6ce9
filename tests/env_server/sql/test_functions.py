"""trim() with two arguments gives what SQLite's own gives, whatever its arguments are."""

from collections.abc import Iterator

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from env_server.sql import functions
from env_server.sql.jobs import Cell

TEXT = st.text(alphabet="ab é日\U0001f600\0\t 0.-", max_size=12)
VALUES = st.one_of(
    st.none(),
    TEXT,
    TEXT.map(str.encode),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.text(max_size=6),
)


@pytest.fixture(scope="module")
def connections() -> Iterator[tuple[apsw.Connection, apsw.Connection]]:
    ours, sqlites = apsw.Connection(":memory:"), apsw.Connection(":memory:")
    functions.register(ours)
    yield ours, sqlites
    ours.close()
    sqlites.close()


@given(value=VALUES, characters=VALUES)
@pytest.mark.parametrize("name", ["trim", "ltrim", "rtrim"])
def test_it_is_sqlites(
    connections: tuple[apsw.Connection, apsw.Connection], name: str, value: Cell, characters: Cell
) -> None:
    sql = f"SELECT r, typeof(r) FROM (SELECT {name}(?, ?) AS r)"
    ours, sqlites = (connection.execute(sql, (value, characters)).get for connection in connections)
    assert ours == sqlites


def test_with_one_argument_it_stays_sqlites(
    connections: tuple[apsw.Connection, apsw.Connection],
) -> None:
    ours, _ = connections
    assert ours.execute("SELECT trim(' a '), ltrim(' a '), rtrim(' a ')").get == ("a", "a ", " a")


def test_long_texts_take_one_pass() -> None:
    """SQLite's own takes 150 million comparisons for these."""
    text, characters = "b" * 50_000, "".join(map(chr, range(0x4E00, 0x4E00 + 3_000))) + "b"
    seen = 0

    class Counting(str):
        def __getitem__(self, index: object) -> str:
            nonlocal seen
            seen += 1
            return super().__getitem__(index)  # type: ignore[index]

    assert functions.trim(Counting(text), characters, True, True) == ""
    assert seen <= len(text) + 1
