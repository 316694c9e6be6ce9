"""Golds that the data do not decide: numbers and dates as text, and NULLs that come first."""

from collections.abc import Iterator

import apsw
import pytest

from data.golds.execute import KEEP, GoldRejected, Reason, open_readonly, run_gold

CARS = [
    (1, "100", 1.5, "9/1/2020", "2001-05-01", "7", "1,200"),
    (2, "90", None, "12/1/2020", "1999-01-01", "4", "900"),
    (3, "null", 3.0, "1/5/2021", "2010-12-31", "x", "1,100.5"),
    (4, "225", 2.0, "2/28/2019", "1990-07-14", "9", "800"),
]


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[apsw.Connection]:
    path = tmp_path_factory.mktemp("gold") / "cars.sqlite"
    made = apsw.Connection(str(path))
    made.execute(
        "CREATE TABLE car (id INTEGER PRIMARY KEY, horsepower TEXT, lap REAL, sold TEXT, made TEXT,"
        " plate TEXT, weight TEXT)"
    )
    made.executemany("INSERT INTO car VALUES (?, ?, ?, ?, ?, ?, ?)", CARS)
    made.execute("CREATE TABLE mixed (n)")
    made.executemany("INSERT INTO mixed VALUES (?)", [(5,), (7.5,), ("N/A",)])
    made.execute("CREATE TABLE note (id INTEGER, text TEXT, lap REAL)")
    made.executemany(
        "INSERT INTO note VALUES (?, ?, ?)", [(1, "a", 1), (2, None, None), (3, "-", 2)]
    )
    made.close()
    connection = open_readonly(path)
    yield connection
    connection.close()


UNDECIDED = [
    ("SELECT id FROM car ORDER BY horsepower DESC LIMIT 1", "is 4, not 3"),
    ("SELECT id, horsepower FROM car ORDER BY 2 DESC", "car.horsepower holds numbers as text"),
    ("SELECT horsepower AS h FROM car WHERE id < 3 ORDER BY h", "is 90, 100, not 100, 90"),
    ("SELECT max(horsepower) FROM car", "is 225.0, not null"),
    ("SELECT avg(horsepower) FROM car", "car.horsepower holds numbers as text"),
    ("SELECT sum(weight) FROM car", "is 4000.5, not 1702.0"),
    ("SELECT id FROM car WHERE horsepower > 80", "is 1, 2, 4, not 2, 3"),
    ("SELECT id FROM car WHERE horsepower BETWEEN 80 AND 120 OR id = 4", "is 1, 2, 4, not 4"),
    ("SELECT id FROM car WHERE horsepower = (SELECT max(horsepower) FROM car)", "is 4, not 3"),
    ("SELECT count(*) FROM car AS a JOIN car AS b ON a.horsepower < b.horsepower", "is 3, not 6"),
    ("SELECT max(n) FROM mixed", "is 7.5, not N/A"),
    ("SELECT id FROM car ORDER BY sold DESC LIMIT 1", "car.sold holds dates as text"),
    ("SELECT id FROM car WHERE sold > '1/1/2020'", "is 1, 2, 3, not 1, 2, 3, 4"),
    ("SELECT count(*) + 2 FROM note WHERE text IS NULL", "text has texts that stand for NULL"),
    ("SELECT count(*) FROM mixed WHERE n IS NOT NULL", "is 2, not 3"),
    ("SELECT id FROM note WHERE NOT text IS NULL", "is 1, not 1, 3"),
    ("SELECT id FROM car ORDER BY lap LIMIT 1", "NULLs of lap sort into the rows shown"),
    ("SELECT count(*) FROM (SELECT lap FROM car ORDER BY lap LIMIT 1) WHERE lap > 0", "NULLs of"),
]
DECIDED = [
    "SELECT id FROM car ORDER BY CAST(horsepower AS REAL) DESC LIMIT 1",
    "SELECT id FROM car WHERE horsepower = '90'",
    "SELECT id FROM car WHERE id < 3 AND horsepower <> 90",
    "SELECT max(horsepower) FROM car WHERE id IN (1, 4)",  # the same by either reading
    "SELECT id FROM car ORDER BY plate DESC LIMIT 1",  # too few numbers: it is text
    "SELECT id FROM car ORDER BY made DESC LIMIT 1",  # ISO dates sort as text
    "SELECT id FROM car WHERE made > '2000-01-01'",
    "SELECT id FROM car WHERE lap IS NOT NULL ORDER BY lap LIMIT 1",
    "SELECT id FROM car ORDER BY lap",  # nothing is cut
    "SELECT min(lap) FROM car",
    "SELECT id FROM car WHERE lap > 1.5",
]


@pytest.mark.parametrize(("sql", "detail"), UNDECIDED)
def test_another_reading_with_another_answer_is_found(
    connection: apsw.Connection, sql: str, detail: str
) -> None:
    with pytest.raises(GoldRejected) as caught:
        run_gold(connection, sql, KEEP["ties"])
    assert caught.value.reason == Reason.UNDECIDED
    assert detail in caught.value.detail
    kept = run_gold(connection, sql, KEEP["ties"] | KEEP["undecided"])
    assert detail in kept.kept[Reason.UNDECIDED]
    assert kept.rows == tuple(connection.execute(sql)), "the gold's own answer stays"


@pytest.mark.parametrize("sql", DECIDED)
def test_what_the_data_decide_is_kept(connection: apsw.Connection, sql: str) -> None:
    assert not run_gold(connection, sql).kept
