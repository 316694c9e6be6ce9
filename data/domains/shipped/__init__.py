"""The shipped databases: SQLite files of invented content in data/databases, and here a TOML file
each that says what questions need.

title                    what the database is about
[tables.NAME]            singular, plural
[tables.NAME.columns]    the kind of each column, or the table that it references
[tables.NAME.phrases]    what questions call a column; default: the column's name, and for a
                         reference the singular of its table
[[hard]]                 text and gold SQL of a hand-written question
"""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data.domains.spec import Column, Domain, Draft, Kind, Rows, Table
from data.domains.words import read_toml
from data.golds.check_gold import open_readonly
from data.golds.hardness import tables_of
from shared.dataset import database_path

DATA_DIR = Path(__file__).parents[2]
# In this order the build distributes questions: earlier databases take frequent answers first.
SEEN = (
    "bakery", "clinic", "football_league", "library", "museum", "music_label", "university", "zoo",
)  # fmt: skip
UNSEEN = ("airline", "bike_rental", "real_estate", "film_festival", "vineyard")


@dataclass(frozen=True)
class Shipped:
    """A domain of the shipped set. No training question uses an `unseen` one."""

    domain: Domain
    unseen: bool
    hard: tuple[Draft, ...]

    @property
    def path(self) -> Path:
        return database_path(DATA_DIR, self.domain.db_id)

    def rows(self) -> Rows:
        with closing(open_readonly(self.path)) as connection:
            names = [table.name for table in self.domain.tables]
            return {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in names}


def load(db_id: str, *, unseen: bool) -> Shipped:
    file = read_toml(f"shipped/{db_id}.toml")
    tables = tuple(_table(file["tables"], name) for name in file["tables"])
    hard = []
    for one in file["hard"]:
        text, sql = (" ".join(one[key].split()) for key in ("text", "sql"))
        read = tables_of(one["sql"], list(file["tables"]))
        in_order = tuple(name for name in file["tables"] if name in read)
        hard.append(Draft(text, sql, "hard", in_order, "hard"))
    return Shipped(Domain(db_id, tables), unseen, tuple(hard))


def _table(tables: dict[str, Any], name: str) -> Table:
    table = tables[name]
    columns = []
    for column, use in table["columns"].items():
        target = use["references"] if isinstance(use, dict) else None
        phrases = table.get("phrases", {}).get(
            column, [tables[target]["singular"]] if target else []
        )
        kind = Kind.REF if target else Kind(use)
        columns.append(Column(column, kind, None, tuple(phrases), target))
    return Table(name, table["singular"], table["plural"], tuple(columns), 0)


SHIPPED = tuple(load(db_id, unseen=db_id in UNSEEN) for db_id in (*SEEN, *UNSEEN))
