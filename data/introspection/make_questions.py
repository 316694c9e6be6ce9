"""Make training and eval questions about SQLite files from their schemas and contents.

The forms of data/domains/question_forms draw them; the audit's findings on single questions, and
what only a schema that was not written for them gives rise to, filter them. Golds run on copies of
the databases. Then the questions go the way of every import, but their golds do not run again.
"""

import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import apsw

from data.audit import MAX_ANSWER_COUNT, MAX_ANSWER_SHARE, question_findings
from data.build import as_question
from data.choose import EVAL, TRAIN, Splitting, held_out, held_out_of_many
from data.domains.question_forms import AnsweredDraft, balanced
from data.domains.spec import Domain, Draft, Kind
from data.domains.words import plural
from data.golds.check_gold import GoldResult, open_readonly
from data.introspection.column_kinds import Schema, introspect
from data.introspection.names import LISTS, core_of, is_clause, singular, words_of
from data.sources.import_source import Source, beside, check_out, import_source
from data.sources.own import sqlite_files
from data.sources.questions import Row
from data.sources.report import ImportReport, SplitCount
from data.sources.sqlite_files import copy_database
from shared.console import counted, progress_bar
from shared.dataset import Question
from shared.errors import DatabaseLoadError, DataError

SURPLUS = 1.5  # questions drawn per wanted one, as dividing them leaves some out
MAX_FORM_SHARE, MIN_PER_FORM = 0.1, 5  # of a database's questions that are of one form
ONE_ROW = frozenset(("lookup", "lookup_two", "reverse_lookup", "superlative", "join_lookup"))
# forms that answer with names, and which of the draft's tables has them
NAMED = {
    "reverse_lookup": 0, "superlative": 0, "names_where": 0, "top_names": 0, "join_names": 0,
    "parent_top": 1, "join_lookup": 1,
}  # fmt: skip
_MEAN_YEAR = re.compile(r"\b(?:average|mean)\b.*\byear\b|\byear\b.*\baverage\b", re.IGNORECASE)
# `models of all models`, `all all documents`
_DOUBLED = re.compile(
    r"\b(\w+(?: \w+)?) (?:of (?:the |all |any )?(?:two |three |four |\d )?)?\1\b", re.IGNORECASE
)
_NO_VALUE = re.compile(r"[\s–—-]*")
# also a time of day, `the first date` and an average of dates
_UNREADABLE = re.compile(
    r"[\x00-\x1f\x7f]|\.\d{3}|\d[eE][-+]\d|  |\d\d:\d\d|\bfirst\b.*\bdate|\baverage\b.*\bdate\b",
    re.IGNORECASE,
)
# a question for a day, and an answer with a time: the day alone would be judged wrong
_DAY_WITH_TIME = re.compile(r"da(?:te|y)s?\b.*\d{4}-\d\d-\d\d[ T]\d\d:")
_LITERAL = re.compile(r"'((?:[^']|'')*)'")
_LIMIT = re.compile(r"\bLIMIT (\d+)$")

MADE = "made from the schema"  # the source that a report names


@dataclass(frozen=True)
class _Pool:
    """The questions drawn about one database, their golds by id, and what there was to ask."""

    schema: Schema
    questions: list[Question]
    golds: dict[str, GoldResult]


def make_questions(
    paths: Sequence[Path], out: Path, count: int, splitting: Splitting, *, force: bool = False
) -> ImportReport:
    """Write `out` with up to `count` questions on each database of `paths`: files, or folders.
    Raises `DataError` if none gives a question, `DatabaseLoadError` for the only database."""
    files = sqlite_files(paths, out)
    check_out(out, files.values(), force=force, kind=MADE)
    report = ImportReport(MADE, ", ".join(str(path.resolve()) for path in paths))
    report.splits = {split: SplitCount() for split in (TRAIN, EVAL)}
    with beside(out) as folder:
        copies = {name: folder / f"{name}.sqlite" for name in files}
        pools = dict(_pools(files, copies, count, splitting.seed, report))
        rows = _rows(pools, count, splitting, report)
        source = Source(report, rows, copies, copy_database, list(files.values()))
        return import_source(source, out, force=force)


def _pools(
    files: dict[str, Path], copies: dict[str, Path], count: int, seed: int, report: ImportReport
) -> Iterator[tuple[str, _Pool]]:
    with progress_bar("making questions") as progress:
        for done, (name, path) in enumerate(files.items()):
            progress(done, len(files))
            try:
                copy_database(path, copies[name])
                yield name, _pool(name, copies[name], round(SURPLUS * count), seed)
            except (DatabaseLoadError, apsw.Error) as error:
                message = f"{path}: {error}" if isinstance(error, apsw.Error) else error.message
                message = message.replace(str(copies[name]), str(path))
                if len(files) == 1:
                    raise DatabaseLoadError(message) from error
                report.problems.append(message)
        progress(len(files), len(files))


def _pool(name: str, path: Path, count: int, seed: int) -> _Pool:
    rng = random.Random(f"questions:{seed}:{name}")
    with closing(open_readonly(path)) as connection:
        schema = introspect(name, connection, rng)

        def draw(level: str, most: int) -> list[AnsweredDraft]:
            forms: Counter[str] = Counter()

            def refuses(draft: Draft) -> bool:
                full = forms[draft.form] >= max(MIN_PER_FORM, MAX_FORM_SHARE * count)
                return full or _is_unclear(schema, draft)

            def rejects(item: AnsweredDraft) -> bool:
                rejected = _is_unfit(schema, connection, item)
                forms[item.draft.form] += not rejected
                return rejected

            domain, rows = schema.domain, schema.rows
            return balanced(domain, rows, connection, rng, {level: most}, refuses, rejects)

        medium = draw("medium", count // 2)
        easy = draw("easy", count - len(medium))
        if len(easy) + len(medium) < count and len(medium) == count // 2:
            medium = draw("medium", count - len(easy))
    kept = [_saying_rounding(item) for item in easy + medium]
    rng.shuffle(kept)
    drawn = {f"made-{name}-{at:04}": item for at, item in enumerate(kept, start=1)}
    return _Pool(
        schema,
        [as_question(key, name, item) for key, item in drawn.items()],
        {key: item.gold for key, item in drawn.items()},
    )


def _saying_rounding(item: AnsweredDraft) -> AnsweredDraft:
    """Say that a sum is rounded; the forms say it of averages only."""
    text = item.draft.text
    if "ROUND(SUM(" in item.draft.sql:
        text = f"{text[:-1]}, rounded to 2 decimals{text[-1]}"
    return replace(item, draft=replace(item.draft, text=text))


def _is_unclear(schema: Schema, draft: Draft) -> bool:
    """Return whether a question is not to be asked, whatever its gold returns."""
    text = draft.text
    if any(pattern.search(text) for pattern in (_UNREADABLE, _MEAN_YEAR, _DOUBLED)):
        return True
    if _repeats_noun(draft) or any(is_clause(core_of(words_of(name))) for name in draft.tables):
        return True
    if len(draft.tables) > 1 and _hides_link(schema.domain, draft):
        return True
    limit, table = _LIMIT.search(draft.sql), schema.domain.table(draft.tables[0])
    if limit and int(limit[1]) > 1 and int(limit[1]) >= table.rows:
        return True
    named = NAMED.get(draft.form)
    phrase = schema.partial.get(draft.tables[named]) if named is not None else None
    # 'which order' could be answered by more than its reference
    return phrase is not None and phrase not in text and plural(phrase) not in text


def _hides_link(domain: Domain, draft: Draft) -> bool:
    """Return whether `employees without projects` may mean another link than the gold's.

    The gold's has a name of its own (`lead`), or a third table links just these two tables.
    """
    refs = {table.name: table.of_kind(Kind.REF) for table in domain.tables}
    pair = sorted(draft.tables)
    roles = [each.phrases for name in pair for each in refs[name] if each.references in pair]
    if any(roles):
        return not any(f" {role} " in draft.text for phrases in roles for role in phrases)
    return pair in (sorted(str(each.references) for each in some) for some in refs.values())


def _repeats_noun(draft: Draft) -> bool:
    """Return whether a question says a noun twice: `the maker of the car maker 'Ford'`."""
    text = draft.text
    for value in _LITERAL.findall(draft.sql):
        text = text.replace(value.replace("''", "'"), "")
    words = Counter(singular(word) for word in re.findall(r"[a-z]+", text.lower()))
    return any(count > 1 for word, count in words.items() if word not in LISTS["repeatable"])


def _is_unfit(schema: Schema, connection: apsw.Connection, item: AnsweredDraft) -> bool:
    """Return whether a question is not to be asked, though its gold has one answer."""
    rows = item.gold.rows
    if len(set(rows)) < len(rows) or (item.draft.form in ONE_ROW and len(rows) > 1):
        return True  # the name that the question gives is that of several rows
    if any(isinstance(cell, str) and _NO_VALUE.fullmatch(cell) for row in rows for cell in row):
        return True
    if _DAY_WITH_TIME.search(f"{item.draft.text} {rows}"):
        return True
    question = as_question("draft", schema.domain.db_id, item)
    return any(True for _ in question_findings(TRAIN, question, connection, gold=item.gold))


def _rows(
    pools: dict[str, _Pool], count: int, splitting: Splitting, report: ImportReport
) -> list[Row]:
    """Return up to `count` questions per database, divided; report where there are fewer."""
    drawn = [question for pool in pools.values() for question in pool.questions]
    if not drawn:
        why = [f"{name}: {_why(pool)}" for name, pool in pools.items()] + report.problems
        raise DataError("no questions can be made:\n" + "\n".join(why))
    several = len({question.database_name for question in drawn}) > 1
    if several:
        chosen, left_out = held_out(drawn, splitting), set[str]()
    else:
        wanted = round(splitting.eval_share * min(count, len(drawn)))
        chosen, left_out = held_out_of_many(drawn, wanted, splitting.seed)
    if not chosen:
        report.notes.append("too few different questions to hold any out for evaluation")
    drawn = [question for question in drawn if question.question_id not in left_out]
    rows: dict[str, Row] = {}
    for split in (TRAIN, EVAL):
        share = splitting.eval_share if split == EVAL else 1 - splitting.eval_share
        most = count if several or not chosen else round(share * count)
        members = [one for one in drawn if (one.question_id in chosen) == (split == EVAL)]
        for question in _capped(members, most):
            rows[question.question_id] = Row(
                question.question_id,
                split,
                question.database_name,
                question.question_text,
                question.gold_sql,
                pools[question.database_name].golds[question.question_id],
            )
    made = Counter(row.database for row in rows.values())
    for name, pool in pools.items():
        asked = "\n".join(question.gold_sql for question in pool.questions)
        unasked = [
            f"{table.name}.{column.name}"
            for table in pool.schema.domain.tables
            for column in table.columns
            if column.kind not in (Kind.KEY, Kind.REF)
            and not re.search(rf"(?<!\w){re.escape(column.name)}(?!\w)", asked)
        ]
        for reason, columns in {**pool.schema.left_out, "no question fits": unasked}.items():
            if columns:
                report.notes.append(f"{name}: not asked of: {reason}: {', '.join(columns)}")
        if made[name] < count:
            wanted_of = counted(count, "question")
            report.notes.append(f"{name}: {made[name]} of {wanted_of}, as {_why(pool)}")
    return [rows[one.question_id] for one in drawn if one.question_id in rows]


def _capped(questions: Sequence[Question], most: int) -> list[Question]:
    """Return up to `most` questions per database, no answer too often for the audit."""
    kept = list(questions)
    while True:
        size = len(kept)
        limit = max(MAX_ANSWER_COUNT, int(MAX_ANSWER_SHARE * size))
        answers: Counter[str] = Counter()
        databases: Counter[str] = Counter()
        kept = []
        for question in questions:
            answer = repr(question.gold_answer)
            if answers[answer] < limit and databases[question.database_name] < most:
                answers[answer] += 1
                databases[question.database_name] += 1
                kept.append(question)
        if len(kept) == size or limit == MAX_ANSWER_COUNT:
            return kept


def _why(pool: _Pool) -> str:
    tables = pool.schema.domain.tables
    columns = counted(sum(len(table.columns) for table in tables), "usable column")
    return f"it has {counted(len(tables), 'table')} of two rows or more, with {columns}"
