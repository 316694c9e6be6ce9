"""Questions side by side: what one split gives away of another, and what a constant would win."""

import difflib
import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path

from sqlglot.errors import SqlglotError

from data.audit.flags import Finding
from data.choose import normalised, skeleton
from data.golds.execute import open_readonly
from shared.dataset import Question, database_path, is_dev_question
from shared.errors import DatabaseLoadError
from shared.sqltext import quote_identifier

TRAIN = "train"
MAX_ANSWER_SHARE = 0.04  # of the questions of a part that one constant answer may be right for
MAX_ANSWER_COUNT = 2  # what any part may have, however small
# of two questions' words, values masked, from which on they are the same but for a word in twenty
NEAR_RATIO = 0.95
# of an unseen database's tables that one training database may have too, below it
SHARED_TABLES = 0.5

Splits = Mapping[str, Sequence[Question]]
_VALUE = re.compile(r"'[^']*'|\"[^\"]*\"|“[^”]*”|\d[\d,.:-]*")


def split_findings(data_dir: Path, splits: Splits) -> Iterator[Finding]:
    """What is flagged on questions by their company."""
    yield from _same_ids(splits)
    yield from _constants(splits)
    asked = {
        split: [_Asked(question) for question in questions] for split, questions in splits.items()
    }
    for split, questions in asked.items():
        yield from _repeated(split, questions)
    for one, other in combinations(asked, 2):
        yield from _across(one, asked[one], other, asked[other])
    yield from _dev_questions(splits)
    yield from _shared_databases(data_dir, splits)


def parts(splits: Splits) -> dict[str, list[tuple[str, Question]]]:
    """Part -> its questions with their split: train, and of every other split `seen` and `unseen`
    (in training)."""
    known = {question.database_name for question in splits.get(TRAIN, [])}
    found: dict[str, list[tuple[str, Question]]] = defaultdict(list)
    for split, questions in splits.items():
        for question in questions:
            seen = "seen" if question.database_name in known else "unseen"
            found[split if split == TRAIN else f"{split}, {seen}"].append((split, question))
    return dict(found)


def _same_ids(splits: Splits) -> Iterator[Finding]:
    first: dict[str, str] = {}  # id -> the split that has it
    for split, questions in splits.items():
        for question in questions:
            if question.question_id in first:
                where = first[question.question_id]
                yield _finding(
                    "same-id", split, question, f"another question of split {where} has this id"
                )
            first.setdefault(question.question_id, split)


def _constants(splits: Splits) -> Iterator[Finding]:
    for part, members in parts(splits).items():
        counts = Counter(repr(question.gold_answer) for _, question in members)
        most = max(MAX_ANSWER_COUNT, MAX_ANSWER_SHARE * len(members))
        for split, question in members:
            if (count := counts[answer := repr(question.gold_answer)]) > most:
                detail = f"{answer[:60]} is right for {count} of the {len(members)} questions of part {part}"
                yield _finding("guessable-constant", split, question, detail)


class _Asked:
    """A question with what it is compared by, each computed once."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.text = " ".join(question.question_text.lower().split())
        self.words = re.findall(r"\w+|\?", _VALUE.sub("?", question.question_text.lower()))
        self.gold = _spelled(question.gold_sql, normalised)
        self.skeleton = _spelled(question.gold_sql, skeleton)

    def likeness(self, twin: "_Asked") -> tuple[str, str] | None:
        """(flag, why) where `twin`, on the same database, asks the same or nearly so."""
        name = twin.question.question_id
        if self.text == twin.text:
            return "duplicate", f"the text of {name}"
        if self.gold == twin.gold:
            return "duplicate", f"the gold of {name}"
        if self.skeleton == twin.skeleton:
            return "near-duplicate", f"the gold of {name} but for a literal"
        matcher = difflib.SequenceMatcher(None, self.words, twin.words, autojunk=False)
        # upper bounds first: they cost less
        bounds = (matcher.real_quick_ratio, matcher.quick_ratio, matcher.ratio)
        if all(ratio() >= NEAR_RATIO for ratio in bounds):
            return "near-duplicate", f"nearly the words of {name}"
        return None


def _repeated(split: str, questions: Sequence[_Asked]) -> Iterator[Finding]:
    first: dict[tuple[str, str, str], str] = {}
    for asked in questions:
        question = asked.question
        for kind, key in (("text", asked.text), ("gold", asked.gold)):
            earlier = first.setdefault((kind, question.database_name, key), question.question_id)
            if earlier != question.question_id:
                yield _finding("repeated", split, question, f"the {kind} of {earlier}")
                break


def _across(
    one: str, ours: Sequence[_Asked], other: str, theirs: Sequence[_Asked]
) -> Iterator[Finding]:
    """Flags are put on the questions of the split `one`, which comes first (eval before train)."""
    by_database: dict[str, list[_Asked]] = defaultdict(list)
    for asked in theirs:
        by_database[asked.question.database_name].append(asked)
    for asked in ours:
        found = [
            hit
            for twin in by_database[asked.question.database_name]
            if (hit := asked.likeness(twin))
        ]
        if found:
            flag, why = min(found, key=lambda hit: hit[0] != "duplicate")
            yield _finding(flag, one, asked.question, f"{why} in split {other}")


def _dev_questions(splits: Splits) -> Iterator[Finding]:
    for question in splits.get(TRAIN, []):
        if is_dev_question(question.question_id):
            yield _finding(
                "dev-question", TRAIN, question, "results on it are published: train on others"
            )


def _shared_databases(data_dir: Path, splits: Splits) -> Iterator[Finding]:
    """Finds unseen databases that are a training database under another name: equal bytes, or most
    tables equal."""
    known = sorted({question.database_name for question in splits.get(TRAIN, [])})
    prints = {db_id: _fingerprint(database_path(data_dir, db_id)) for db_id in known}
    for split, questions in splits.items():
        for db_id in sorted({question.database_name for question in questions} - set(known)):
            digest, tables = _fingerprint(database_path(data_dir, db_id))
            for twin, (twin_digest, twin_tables) in prints.items():
                shared = len(tables & twin_tables)
                if digest == twin_digest:
                    why = f"the file of the training database {twin}"
                elif tables and shared > SHARED_TABLES * len(tables):
                    why = f"{shared} of its {len(tables)} tables have the names and columns of those of {twin}"
                else:
                    continue
                touched = [question for question in questions if question.database_name == db_id]
                yield from (
                    _finding("shared-database", split, question, why) for question in touched
                )


def _fingerprint(path: Path) -> tuple[str, frozenset[tuple[str, ...]]]:
    """A file's SHA-256, and its tables, each as its name and its sorted column names; none where it
    can't be read."""
    try:
        connection = open_readonly(path)
    except DatabaseLoadError:
        return str(path), frozenset()
    try:
        names = [
            str(name)
            for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        tables = {
            (
                name.lower(),
                *sorted(
                    str(row[1]).lower()
                    for row in connection.execute(f"PRAGMA table_info({quote_identifier(name)})")
                ),
            )
            for name in names
            if not name.startswith("sqlite_")
        }
    finally:
        connection.close()
    return hashlib.sha256(path.read_bytes()).hexdigest(), frozenset(tables)


def _finding(flag: str, split: str, question: Question, detail: str) -> Finding:
    return Finding(flag, split, question.question_id, question.database_name, detail)


def _spelled(sql: str, spell: Callable[[str], str]) -> str:
    try:
        return spell(sql)
    except (SqlglotError, RecursionError):
        return sql
