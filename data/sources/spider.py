"""Import Spider (Yu et al., 2018) from its own layout.

    DIR/database/<db_id>/<db_id>.sqlite
    DIR/train_spider.json [DIR/train_others.json]  -> questions_train.json
    DIR/dev.json                                   -> questions_eval.json

A question's id is its file and row (`spider-dev-0012` is row 12 of dev.json, counted from 0), so
that it does not depend on which rows are dropped.
"""

from collections.abc import Collection
from pathlib import Path

from data.choose import EVAL, TRAIN
from data.golds.execute import Reason
from data.sources.convert import Source, check_out, import_source
from data.sources.questions import Row, rows_of
from data.sources.report import ImportReport, SplitCount
from data.sources.sqlite_files import copy_database
from shared.dataset import SPIDER_DEV_PREFIX
from shared.errors import DataError

# file -> (split, prefix of its rows' ids)
FILES = {
    "train_spider.json": (TRAIN, "spider-train-"),
    "train_others.json": (TRAIN, "spider-others-"),
    "dev.json": (EVAL, SPIDER_DEV_PREFIX),
}
OPTIONAL = "train_others.json"


def import_spider(
    source: Path, out: Path, *, force: bool = False, keep: Collection[Reason] = ()
) -> ImportReport:
    """Write `out` as a data directory with `import_report.json`, and return that report.

    The report lists missing files, unusable databases and bad rows, and the import continues with
    the rest. `keep`: see `run_gold`. Raises `DataError` if `source`, a file of questions or `out`
    cannot be used or no question is left; then `out` is unchanged.
    """
    if not source.is_dir():
        remedy = "name Spider's folder, with database/, train_spider.json and dev.json"
        raise DataError(f"no directory at {source}: {remedy}")
    check_out(out, [source], force=force)
    report = ImportReport("spider", str(source.resolve()), frozenset(keep))
    rows: list[Row] = []
    for name, (split, prefix) in FILES.items():
        report.splits.setdefault(split, SplitCount())
        if (source / name).is_file():
            rows += rows_of(source / name, split, prefix, report)
        elif name != OPTIONAL:
            report.problems.append(f"{source / name} is missing")

    def file_of(name: str) -> Path:
        return source / "database" / name / f"{name}.sqlite"

    return import_source(Source(report, rows, file_of, copy_database), out)
