"""Import BIRD (Li et al., 2023) from its own layout.

    DIR/train.json             DIR/train_databases/<db_id>/<db_id>.sqlite  -> questions_train.json
    DIR/dev.json               DIR/dev_databases/<db_id>/<db_id>.sqlite    -> questions_eval.json
    DIR/mini_dev_sqlite.json   the same, without a dev.json                -> questions_eval.json

Each may be in a folder of its own (DIR/train/train.json, DIR/MINIDEV/mini_dev_sqlite.json), as the
archives unpack; Mini-Dev's databases may also be those beside it (DIR/dev/dev_databases). A
question's `evidence`, the expert knowledge that BIRD gives with it, is appended to its text.
"""

import csv
import json
from pathlib import Path

from data.choose import EVAL, TRAIN
from data.golds.check_gold import KEEP_OVERSIZE
from data.sources.import_source import Source
from data.sources.questions import Row, rows_of
from data.sources.report import ImportReport, SplitCount
from data.sources.sqlite_files import copy_database
from shared.dataset import BIRD_DEV_PREFIX, BIRD_MINI_PREFIX, DESCRIPTIONS
from shared.errors import DataError

MINI = "mini_dev_sqlite.json"
# file -> (split, prefix of its rows' ids, folder of its databases)
FILES = {
    "train.json": (TRAIN, "bird-train-", "train_databases"),
    "dev.json": (EVAL, BIRD_DEV_PREFIX, "dev_databases"),
    MINI: (EVAL, BIRD_MINI_PREFIX, "dev_databases"),
}


def read_bird(folder: Path, *, evidence: bool = True, descriptions: bool = False) -> Source:
    """Find BIRD's questions and databases; answers that are too large to show are kept.

    `evidence`: whether to append it; `descriptions`: whether DESCRIBE shows those of the columns.
    Raises `DataError` if there is no file of questions, or one that cannot be used.
    """
    # in the folder, or in the first of its folders that has one
    places_of = {name: [folder / name, *sorted(folder.glob(f"*/{name}"))] for name in FILES}
    found = {name: next(filter(Path.is_file, paths), None) for name, paths in places_of.items()}
    if found["dev.json"]:
        del found[MINI]  # the same questions
    if not any(found.values()):
        files = f"dev.json, {MINI} or train.json, with dev_databases/ or train_databases/"
        raise DataError(f"no BIRD data in {folder}: name the folder of {files}")
    report = ImportReport("bird", str(folder.resolve()), KEEP_OVERSIZE)
    rows: list[Row] = []
    databases: dict[str, Path] = {}
    for file, path in found.items():
        if path:
            split, prefix, beside = FILES[file]
            report.splits[split] = SplitCount()
            own = rows_of(path, split, prefix, report, evidence=evidence)
            places = [path.parent / beside, *(path.parent.parent / d / beside for d in ("dev", ""))]
            place = next(filter(Path.is_dir, places), places[0])
            databases |= {
                row.database: place / row.database / f"{row.database}.sqlite" for row in own
            }
            rows += own
    write = _write_described if descriptions else copy_database
    return Source(report, rows, databases, write, [folder])


def _write_described(source: Path, target: Path) -> None:
    """Copy a database, and write the descriptions of its columns beside it."""
    copy_database(source, target)
    files = sorted(source.parent.glob("database_description/*.csv"))
    described = {path.stem.strip(): _read_descriptions(path) for path in files}
    text = json.dumps(described, ensure_ascii=False, indent=1)
    target.with_name(DESCRIPTIONS).write_text(text, encoding="utf-8")


def _read_descriptions(path: Path) -> dict[str, str]:
    """Return what a file of database_description/ says of each column: its name in words where that
    adds something, its meaning and that of its values."""
    content = path.read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:  # some were written on Windows
        text = content.decode("cp1252", "replace")
    found = {}
    for row in csv.DictReader(text.splitlines(keepends=True)):
        told = {str(key).strip(): " ".join(str(one or "").split()) for key, one in row.items()}
        parts = [told.get(key, "") for key in ("column_description", "value_description")]
        said = "; ".join(filter(None, parts)) or told.get("column_name", "")
        if (name := told.get("original_column_name")) and said:
            found[name] = said
    return found
