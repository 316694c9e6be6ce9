"""Import BIRD (Li et al., 2023) from its own layout.

    DIR/train.json  DIR/train_databases/<db_id>/<db_id>.sqlite    -> questions_train.json
    DIR/dev.json    DIR/dev_databases/<db_id>/<db_id>.sqlite      -> questions_eval.json

Each may be in a folder of its own (DIR/train/train.json), as the archives unpack. A question's
`evidence`, the expert knowledge that BIRD gives with it, is appended to its text.
"""

from collections.abc import Collection
from pathlib import Path

from data.choose import EVAL, TRAIN
from data.golds.execute import Reason
from data.sources.convert import Source, import_source
from data.sources.questions import Row, rows_or_problem
from data.sources.report import ImportReport, SplitCount
from data.sources.sqlite_files import copy_database
from data.sources.staging import check_out
from shared.dataset import BIRD_DEV_PREFIX
from shared.errors import DataError

# file -> (split, prefix of its rows' ids, folder of its databases)
FILES = {
    "train.json": (TRAIN, "bird-train-", "train_databases"),
    "dev.json": (EVAL, BIRD_DEV_PREFIX, "dev_databases"),
}


def import_bird(
    source: Path,
    out: Path,
    *,
    force: bool = False,
    keep: Collection[Reason] = (),
    evidence: bool = True,
) -> ImportReport:
    """Write `out` as a data directory; see `import_spider`. `evidence`: whether to append it."""
    check_out(out, [source], force=force)
    found = {name: _find(source, name) for name in FILES}
    if not any(found.values()):
        files = "dev.json or train.json, with dev_databases/ or train_databases/"
        raise DataError(f"no BIRD data in {source}: name the folder of {files}")
    report = ImportReport("bird", str(source.resolve()), frozenset(keep))
    rows: list[Row] = []
    folders: dict[str, Path] = {}
    for name, (split, prefix, databases) in FILES.items():
        if path := found[name]:
            report.splits[split] = SplitCount()
            own = rows_or_problem(path, split, prefix, report, evidence=evidence)
            folders |= {row.database: path.parent / databases for row in own}
            rows += own

    def file_of(name: str) -> Path:
        return folders[name] / name / f"{name}.sqlite"

    return import_source(Source(report, rows, file_of, copy_database), out)


def _find(folder: Path, name: str) -> Path | None:
    """Return the file in `folder`, or in the first of its folders that has one."""
    paths = [folder / name, *sorted(folder.glob(f"*/{name}"))]
    return next((path for path in paths if path.is_file()), None)
