"""Audit of a data directory: execute every gold, and flag questions that cannot be trusted.

On one question, its gold is executed again and its answer guessed without a query; questions side
by side show leaks between splits and too frequent answers. An error is a question that cannot be
trained or measured on; a note is what a reader of a result should know.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import apsw
from rich.console import Console
from rich.table import Table
from sqlglot import exp
from sqlglot.errors import SqlglotError

from data.choose import TRAIN, Keyed, contains_answer, states_number
from data.golds.check_gold import (
    KEEP,
    KEEP_EMPTY,
    KEEP_OVERSIZE,
    GoldRejected,
    GoldResult,
    Reason,
    open_readonly,
    run_gold,
)
from data.golds.quoted import table_of
from data.sources.report import kept_reasons
from shared.console import percent, print_line, right_aligned
from shared.dataset import (
    Question,
    check_databases,
    data_digest,
    database_path,
    is_dev_question,
    load_splits,
)
from shared.errors import DatabaseLoadError
from shared.order_by import parse_query
from shared.sqltext import quote_identifier

MAX_SHOWN = 40
MODE_SHARE = 0.5  # share of a column's values from which the most frequent one is a good guess
MODE_MIN_ROWS = 3
MAX_ANSWER_SHARE = 0.04  # of a split's questions that one constant answer may be right for
MAX_ANSWER_COUNT = 2  # always allowed, however small the split

Splits = Mapping[str, Sequence[Question]]


# flag -> meaning, in the order in which they are shown. A question with an error cannot be trusted.
ERRORS: dict[str, str] = {
    Reason.FAILING: "the gold is not one SELECT that runs",
    Reason.EMPTY: "the gold returns no row",
    Reason.NULL: "the gold returns nothing but NULL",
    Reason.TIED: "equal sort keys allow more than one right answer",
    Reason.ORDER: "the result depends on the order in which rows are scanned",
    Reason.UNDECIDED: "values or names in double quotes can be read with another answer",
    Reason.OVERSIZE: "the result is larger than what an agent is shown",
    Reason.RUNAWAY: "the gold takes more steps than an agent's query may",
    Reason.UNSTABLE: "the result is non-deterministic, or not a number or text",
    "blank": "the question has no text",
    "stale": "the stored answer or its type is not what the gold returns",
    "guessable-number": "the answer is a number in the question",
    "guessable-text": "the question's own words contain the answer",
    "guessable-constant": "one answer is right for too many questions of its split",
    "duplicate": "two splits ask the same of the same database",
    "near-duplicate": "two splits ask the same of the same database except for a value",
    "shared-database": (
        "an unseen database of the eval split is a training database under another name"
    ),
    "repeated-id": "two questions have one id, which no server loads",
    "dev-question": "a question reserved for measuring is in the training split",
}
# what a reader of a result should know
NOTES: dict[str, str] = {
    "guessable-one": "the answer is 1, the result of SELECT 1",
    "guessable-mode": "at least half of the rows of its column hold the answer",
    "null-cells": "some cells of the answer are NULL",
    **{
        f"kept-{reason}": f"{ERRORS[reason]}; kept on request by the import"
        for reason in sorted(KEEP_OVERSIZE.union(*KEEP.values()))
    },
}


@dataclass(frozen=True)
class Finding:
    """One flag on one question, with one line of detail."""

    flag: str
    split: str
    question_id: str
    database: str
    detail: str

    @classmethod
    def on(cls, question: Question, flag: str, split: str, detail: str) -> "Finding":
        return cls(flag, split, question.question_id, question.database_name, detail)

    @property
    def severity(self) -> str:
        return "error" if self.flag in ERRORS else "note"


def question_findings(
    split: str,
    question: Question,
    connection: apsw.Connection,
    keep: Collection[Reason] = (),
    gold: GoldResult | None = None,
) -> Iterator[Finding]:
    """Yield the findings on a question by itself. `connection` is to its database; `keep`: see
    `run_gold`. The gold is run unless its result is given.
    """

    def finding(flag: str, detail: str) -> Finding:
        return Finding.on(question, flag, split, detail)

    text = question.question_text
    if not text.strip():
        yield finding("blank", "no text")
    try:
        gold = gold or run_gold(connection, question.gold_sql, keep)
    except GoldRejected as error:
        yield finding(str(error.reason), error.detail)
        return
    for reason, detail in gold.kept.items():
        yield finding(f"kept-{reason}", detail)
    answer = _short(gold.answer)
    if (gold.answer, gold.answer_type) != (question.gold_answer, question.answer_type):
        stored = f"{question.answer_type} {_short(question.gold_answer)}"
        yield finding("stale", f"stored is {stored}, the gold returns {gold.answer_type} {answer}")
    if KEEP_EMPTY.intersection(gold.kept):
        return  # nothing to guess
    if any(cell is None for row in gold.rows for cell in row):
        yield finding("null-cells", answer)
    if states_number(text, gold):
        yield finding("guessable-number", f"{answer} in {text!r}")
    elif contains_answer(text, gold.answer):
        yield finding("guessable-text", f"{answer} in {text!r}")
    if gold.rows in (((1,),), ((1.0,),), (("1",),)):
        yield finding("guessable-one", text)
    if (share := _mode_share(question.gold_sql, gold, connection)) >= MODE_SHARE:
        yield finding("guessable-mode", f"{answer} is {percent(share, 0)} of its column")


def _mode_share(sql: str, gold: GoldResult, connection: apsw.Connection) -> float:
    """Return the share of a column's values that equal the answer.

    0 unless `sql` selects one cell of a plain column, whose most frequent value is the answer.
    """
    if gold.answer_type not in ("integer", "float", "string"):
        return 0.0
    try:
        query = parse_query(sql)
        column = query.selects[0].unalias() if len(query.selects) == 1 else None
        if not isinstance(query, exp.Select) or not isinstance(column, exp.Column):
            return 0.0
        if (table := table_of(column, connection)) is None:
            return 0.0
        name = quote_identifier(column.name)
        counts: list[Any] = connection.execute(
            f"SELECT {name}, count(*) FROM {quote_identifier(table)} WHERE {name} IS NOT NULL "
            "GROUP BY 1 ORDER BY 2 DESC"
        ).fetchall()
    except (SqlglotError, RecursionError, apsw.Error, UnicodeDecodeError):
        return 0.0
    rows = sum(count for _, count in counts)
    frequent = rows >= MODE_MIN_ROWS and counts[0][0] == gold.answer
    return float(counts[0][1] / rows) if frequent else 0.0


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:79] + "…"


def split_findings(data_dir: Path, splits: Splits) -> Iterator[Finding]:
    yield from _constants(splits)
    ids = Counter(question.question_id for questions in splits.values() for question in questions)
    keyed = {split: [Keyed(question) for question in splits[split]] for split in splits}
    for first, second in combinations(keyed, 2):
        yield from _across(first, keyed[first], second, keyed[second])
    for split, questions in splits.items():
        for question in questions:
            if ids[question.question_id] > 1:
                yield Finding.on(question, "repeated-id", split, question.question_text)
            if split == TRAIN and is_dev_question(question.question_id):
                detail = "results on it are published: train on others"
                yield Finding.on(question, "dev-question", TRAIN, detail)
    yield from _shared_databases(data_dir, splits)


def by_audience(splits: Splits) -> dict[str, list[tuple[str, Question]]]:
    """Group the questions, each with its split, by what training sees of their databases.

    Keys: `train`, and for every other split `<split>, seen` and `<split>, unseen`.
    """
    known = {question.database_name for question in splits.get(TRAIN, [])}
    groups: dict[str, list[tuple[str, Question]]] = defaultdict(list)
    for split, questions in splits.items():
        for question in questions:
            seen = "seen" if question.database_name in known else "unseen"
            groups[split if split == TRAIN else f"{split}, {seen}"].append((split, question))
    return dict(groups)


def _constants(splits: Splits) -> Iterator[Finding]:
    for group, members in by_audience(splits).items():
        # kept on request, or an error already
        valued = [one for one in members if not is_empty(one[1].gold_answer)]
        counts = Counter(repr(question.gold_answer) for _, question in valued)
        most = max(MAX_ANSWER_COUNT, MAX_ANSWER_SHARE * len(members))
        for split, question in valued:
            answer = repr(question.gold_answer)
            if counts[answer] > most:
                total = f"{counts[answer]} of the {len(members)} questions of {group}"
                detail = f"{answer[:60]} is right for {total}"
                yield Finding.on(question, "guessable-constant", split, detail)


def is_empty(answer: Any) -> bool:
    """Return whether a gold answer holds no value: no row, or nothing but NULL."""
    return all(map(is_empty, answer)) if isinstance(answer, list) else answer is None


def _across(
    split: str, questions: Sequence[Keyed], other: str, others: Sequence[Keyed]
) -> Iterator[Finding]:
    """Yield findings on the questions of `split`, which comes first (eval before train)."""
    by_database: dict[str, list[Keyed]] = defaultdict(list)
    for keyed in others:
        by_database[keyed.question.database_name].append(keyed)
    for keyed in questions:
        twins = by_database[keyed.question.database_name]
        hits = [hit for twin in twins if (hit := keyed.likeness(twin))]
        if hits:
            flag, why = min(hits, key=lambda hit: hit[0] != "duplicate")
            yield Finding.on(keyed.question, flag, split, f"{why} in split {other}")


def _shared_databases(data_dir: Path, splits: Splits) -> Iterator[Finding]:
    """Yield findings on unseen databases that have the bytes of a training database."""
    known = {question.database_name for question in splits.get(TRAIN, [])}
    names = {question.database_name for questions in splits.values() for question in questions}
    paths = {name: database_path(data_dir, name) for name in sorted(names)}
    digests = {name: _digest(path) for name, path in paths.items() if path.is_file()}
    trained = {digests[name]: name for name in sorted(known & digests.keys())}
    for split, questions in splits.items():
        for question in questions:
            twin = trained.get(digests.get(question.database_name, ""))
            if twin and question.database_name not in known:
                why = f"the file of the training database {twin}"
                yield Finding.on(question, "shared-database", split, why)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass
class AuditReport:
    path: str
    digest: str
    questions: dict[str, int]  # split, with `seen` or `unseen` databases -> how many
    databases: int
    findings: list[Finding] = field(default_factory=list)

    @property
    def errors(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.flag in ERRORS]

    def as_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "data_digest": self.digest,
            "clean": not self.errors,
            "parts": self.questions,
            "databases": self.databases,
            "flags": dict(Counter(finding.flag for finding in self.findings).most_common()),
            "findings": [{"level": one.severity, **vars(one)} for one in self.findings],
        }

    def show(self, console: Console) -> None:
        """Print one row per flag that was raised, then the findings, errors first."""
        splits = list(dict.fromkeys(key.partition(",")[0] for key in self.questions))
        title, columns = f"Questions flagged in {self.path}", right_aligned(*splits)
        table = Table("flag", "severity", *columns, "meaning", title=title, title_justify="left")
        counts = Counter((finding.flag, finding.split) for finding in self.findings)
        checks = {**ERRORS, **NOTES}
        for flag, meaning in checks.items():
            numbers = [counts[flag, split] for split in splits]
            if any(numbers):
                severity = "error" if flag in ERRORS else "note"
                cells = [f"{number:,}" if number else "-" for number in numbers]
                table.add_row(flag, severity, *cells, meaning)
        if table.row_count:
            console.print(table)
        ordered = sorted(self.findings, key=lambda finding: (finding.severity, finding.question_id))
        for one in ordered[:MAX_SHOWN]:
            print_line(console, f"{one.severity}: {one.flag}: {one.question_id}: {one.detail}")
        if (hidden := len(ordered) - MAX_SHOWN) > 0:
            print_line(console, f"... and {hidden:,} more: use --json PATH")
        print_line(
            console, f"{len(checks) - table.row_count} of {len(checks)} checks found nothing"
        )


def audit(data_dir: Path) -> AuditReport:
    """Audit a data directory.

    A database that cannot be used is a finding on each of its questions. Golds that an import kept
    on request are noted. Raises `QuestionLoadError` if the questions cannot be read.
    """
    splits = load_splits(data_dir)
    tagged = [(split, question) for split, questions in splits.items() for question in questions]
    names = sorted({question.database_name for _, question in tagged})
    counts = {key: len(members) for key, members in by_audience(splits).items()}
    keep = kept_reasons(data_dir)
    report = AuditReport(str(data_dir), data_digest(data_dir), counts, len(names))
    for name in names:
        own = [(split, question) for split, question in tagged if question.database_name == name]
        try:
            check_databases(data_dir, [question for _, question in own])
            connection = open_readonly(database_path(data_dir, name))
        except DatabaseLoadError as error:
            report.findings += [Finding.on(one, "failing", split, str(error)) for split, one in own]
            continue
        with closing(connection):
            for split, question in own:
                report.findings += question_findings(split, question, connection, keep)
    report.findings += split_findings(data_dir, splits)
    return report
