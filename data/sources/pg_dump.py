"""Read a plain dump of PostgreSQL's pg_dump: its statements, and the rows of COPY and INSERT."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from data.sources.pg_tables import Cells, Key, PgSchema, target_of
from shared.errors import DataError

# what other dumps begin with, and what makes a plain one of them
_OTHER_FORMATS = {
    b"PGDMP": "pg_restore --file=plain.sql DUMP",
    b"\x1f\x8b": "gunzip --keep DUMP",
    b"SQLite format 3": "python -m data import sqlite DUMP",
}
_HEADER, _FOOTER = b"-- PostgreSQL database", b"dump complete"
# what begins a part in which a semicolon ends nothing, and that semicolon
_MARK = re.compile(r"--.*|/\*|\$(?:[^\W\d]\w*)?\$|(?<!\w)[eE]'|'|\"|;")
_ENDS = {"'": re.compile(r"''|'"), '"': re.compile('"'), "/*": re.compile(r"/\*|\*/")}
_ESCAPED = re.compile(r"\\.|''|'", re.S)
_COPY = re.compile(r"COPY\s+(?P<table>.+?)\s+FROM\s+stdin\s*(?P<options>.*)$", re.I | re.S)
_INSERT = re.compile(r"INSERT\s+INTO\b", re.I)
# a function's body that is not quoted: its statements end with semicolons too, until a line END
_BODY = re.compile(
    r"CREATE\s+(?:OR\s+REPLACE\s+)?(?:FUNCTION|PROCEDURE)\b.*\bBEGIN\s+ATOMIC\b(?!.*\nEND$)",
    re.I | re.S,
)
_OVERRIDING = re.compile(r"\s+OVERRIDING\s+(?:SYSTEM|USER)\s+VALUE(?=\s+VALUES\b)", re.I)
_COPY_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{1,2}|[0-7]{1,3}|.)", re.S)
_CONTROL = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@dataclass(frozen=True)
class CopyBlock:
    """The rows of one table."""

    statement: str
    lines: Iterator[str]

    @property
    def rows(self) -> Iterator[Cells]:
        """The cells of each line."""
        return (copy_cells(line) for line in self.lines)


def read_schema(path: Path) -> PgSchema:
    """Return the tables of a dump. Raises `DataError`."""
    schema = PgSchema()
    for item in _items(path):
        if isinstance(item, str):
            schema.add(item)
    return schema


def read_data(path: Path) -> Iterator[tuple[Key, Sequence[str], Iterator[Cells]]]:
    """Yield the rows of a dump with their tables and columns. Raises `DataError`."""
    for item in _items(path):
        if isinstance(item, CopyBlock):
            found = _COPY.match(item.statement)
            if found is None or found["options"]:
                raise DataError(f"{path}: dump it without options: {item.statement[:100]}")
            tree = _parsed(path, f"INSERT INTO {found['table']} VALUES (1)")
            yield *target_of(tree), item.rows
        elif _INSERT.match(item):
            tree = _parsed(path, _OVERRIDING.sub("", item, count=1))
            yield *target_of(tree), (_cells(path, row) for row in tree.expression.expressions)


def copy_cells(line: str) -> list[str | None]:
    """Return the cells of a line of COPY's text format."""
    cells = line.split("\t")
    if "\\" not in line:
        return list(cells)
    return [None if cell == "\\N" else _COPY_ESCAPE.sub(_unescaped, cell) for cell in cells]


def _unescaped(found: re.Match[str]) -> str:
    code = found[1]
    if code[0] == "x" and len(code) > 1:
        return chr(int(code[1:], 16))
    return chr(int(code, 8)) if code[0] in "01234567" else _CONTROL.get(code, code)


def _items(path: Path) -> Iterator[str | CopyBlock]:
    """Yield each statement, or the block of a COPY, whose unread rows are then skipped."""
    with _mapped_errors(path):
        with path.open("rb") as binary:
            start = binary.read(len(_HEADER) + 8)
            binary.seek(max(0, path.stat().st_size - 1_000))
            complete = _FOOTER in binary.read()
        for magic, remedy in _OTHER_FORMATS.items():
            if start.startswith(magic):
                raise DataError(f"{path} is not a plain dump: make one with: {remedy}")
        if _HEADER in start and not complete:
            raise DataError(f"{path} is not complete: dump it again")
        with path.open(encoding="utf-8", newline="\n") as file:
            databases = 0
            for statement in _statements(file):
                if statement.startswith("\\"):
                    databases += statement.startswith(("\\connect", "\\c "))
                    if databases > 1:
                        raise DataError(f"{path} has several databases: dump one with pg_dump")
                elif re.match(r"COPY\b", statement, re.I) and "stdin" in statement.lower():
                    block = CopyBlock(statement, _block(path, file))
                    yield block
                    for _line in block.lines:
                        pass
                else:
                    yield statement


def _block(path: Path, file: Iterator[str]) -> Iterator[str]:
    for line in file:
        text = line.rstrip("\r\n")
        if text == "\\.":
            return
        yield text
    raise DataError(f"{path} ends in the middle of a table's rows: dump it again")


def _statements(lines: Iterator[str]) -> Iterator[str]:
    """Yield statements without comments and semicolons, and lines that are psql's own commands.

    After a statement of COPY its rows are the next of `lines`.
    """
    parts: list[str] = []
    end: re.Pattern[str] | None = None  # of the quoted part or comment that a line starts in
    depth = 0  # of comments, which nest
    for line in lines:
        if end is None and not "".join(parts).strip():
            parts = []
            if line.startswith("\\"):
                yield line.strip()
                continue
        at = 0
        while at < len(line):
            found = (end or _MARK).search(line, at)
            stop = found.end() if found else len(line)
            piece, at = line[at:stop], stop
            mark = found[0] if found else ""
            if end is not None:
                if depth:
                    depth += {"/*": 1, "*/": -1}.get(mark, 0)
                    end = end if depth else None
                else:
                    parts.append(piece)
                    if mark and (len(mark) == 1 or end not in (_ENDS["'"], _ESCAPED)):
                        end = None
            elif mark == ";":
                statement = "".join([*parts, piece[:-1]]).strip()
                if _BODY.match(statement):
                    parts.append(piece)
                    continue
                parts = []
                if statement:
                    yield statement
            elif mark.startswith("--"):
                parts.append(piece[: -len(mark)] + "\n")
            elif mark == "/*":
                parts.append(piece[:-2])
                end, depth = _ENDS["/*"], 1
            else:
                parts.append(piece)
                if mark.startswith("$"):
                    end = re.compile(re.escape(mark))
                elif mark:
                    end = _ESCAPED if mark in ("E'", "e'") else _ENDS[mark]
    if rest := "".join(parts).strip():
        yield rest


def _parsed(path: Path, statement: str) -> exp.Insert:
    try:
        tree = sqlglot.parse_one(statement, dialect="postgres")
    except (SqlglotError, RecursionError) as error:
        raise DataError(f"{path}: cannot read {statement[:100]!r}: dump it with COPY") from error
    if not isinstance(tree, exp.Insert) or not isinstance(tree.expression, exp.Values):
        raise DataError(f"{path}: cannot read {statement[:100]!r}: dump it with COPY")
    return tree


def _cells(path: Path, row: exp.Tuple) -> list[str | None]:
    """Return the cells of a row of VALUES as COPY prints them."""
    cells: list[str | None] = []
    for node in row.expressions:
        value = node.this if isinstance(node, exp.Cast) else node
        match value:
            case exp.Null():
                cells.append(None)
            case exp.Boolean():
                cells.append(str(value.this).lower())
            case exp.Neg():
                cells.append(f"-{value.name}")
            case exp.Literal() | exp.ByteString() | exp.BitString() | exp.RawString():
                cells.append(str(value.name))
            case exp.Var(name="DEFAULT"):
                pass  # of a computed column, which is left out
            case _:
                shown = value.sql(dialect="postgres")
                raise DataError(f"{path}: the value {shown[:60]} is no constant: dump it with COPY")
    return cells


@contextmanager
def _mapped_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise DataError(f"no dump at {path}: name one, or a URL postgresql://...") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        remedy = "dump it with pg_dump --encoding=UTF8 --file=DUMP"
        raise DataError(f"{path} is not UTF-8 ({error}): {remedy}") from error
