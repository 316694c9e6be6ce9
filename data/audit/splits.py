"""Findings on questions side by side: leaks between splits, and answers that are too frequent."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import combinations
from pathlib import Path
from typing import Any

from data.audit.flags import Finding
from data.choose import TRAIN
from data.golds.execute import open_readonly
from data.likeness import Keyed
from shared.dataset import Question, database_path, is_dev_question
from shared.errors import DatabaseLoadError

MAX_ANSWER_SHARE = 0.04  # of a split's questions that one constant answer may be right for
MAX_ANSWER_COUNT = 2  # always allowed, however small the split
SHARED_TABLES = 0.5  # of an unseen database's tables that a training database may also have

Splits = Mapping[str, Sequence[Question]]


def split_findings(data_dir: Path, splits: Splits) -> Iterator[Finding]:
    """Yield the findings on questions compared with others."""
    yield from _same_ids(splits)
    yield from _constants(splits)
    keyed = {split: [Keyed(question) for question in splits[split]] for split in splits}
    for split, questions in keyed.items():
        yield from _repeated(split, questions)
    for first, second in combinations(keyed, 2):
        yield from _across(first, keyed[first], second, keyed[second])
    for question in splits.get(TRAIN, []):
        if is_dev_question(question.question_id):
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


def _same_ids(splits: Splits) -> Iterator[Finding]:
    first: dict[str, str] = {}  # id -> its first split
    for split, questions in splits.items():
        for question in questions:
            if question.question_id in first:
                detail = f"another question of split {first[question.question_id]} has this id"
                yield Finding.on(question, "same-id", split, detail)
            first.setdefault(question.question_id, split)


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


def _repeated(split: str, questions: Sequence[Keyed]) -> Iterator[Finding]:
    first: dict[tuple[str, str, str], str] = {}
    for keyed in questions:
        question = keyed.question
        for kind, key in (("text", keyed.text), ("gold", keyed.gold)):
            earlier = first.setdefault((kind, question.database_name, key), question.question_id)
            if earlier != question.question_id:
                yield Finding.on(question, "repeated", split, f"the {kind} of {earlier}")
                break


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
    """Yield findings on unseen databases with the bytes or most tables of a training database."""
    known = sorted({question.database_name for question in splits.get(TRAIN, [])})
    unseen = {
        split: sorted({question.database_name for question in questions} - set(known))
        for split, questions in splits.items()
    }
    if not any(unseen.values()):
        return
    prints = {db_id: _fingerprint(database_path(data_dir, db_id)) for db_id in known}
    for split, questions in splits.items():
        for db_id in unseen[split]:
            digest, tables = _fingerprint(database_path(data_dir, db_id))
            for twin, (twin_digest, twin_tables) in prints.items():
                shared = len(tables & twin_tables)
                if digest == twin_digest:
                    why = f"the file of the training database {twin}"
                elif tables and shared > SHARED_TABLES * len(tables):
                    count = f"{shared} of its {len(tables)} tables"
                    why = f"{count} have the names and columns of tables of {twin}"
                else:
                    continue
                for question in questions:
                    if question.database_name == db_id:
                        yield Finding.on(question, "shared-database", split, why)


def _fingerprint(path: Path) -> tuple[str, set[tuple[str, ...]]]:
    """Return a file's SHA-256 and its tables, each as its name and its sorted column names.

    A database that cannot be read has its path as digest and no tables.
    """
    try:
        connection = open_readonly(path)
    except DatabaseLoadError:
        return str(path), set()
    columns = defaultdict(list)
    with closing(connection):
        for table, column in connection.execute(
            # not those of virtual tables, whose modules may not be loaded
            "SELECT lower(t.name), lower(c.name) "
            "FROM pragma_table_list AS t, pragma_table_info(t.name) AS c "
            "WHERE t.type = 'table' AND t.schema = 'main' AND t.name NOT LIKE 'sqlite_%'"
        ):
            columns[str(table)].append(str(column))
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return digest, {(table, *sorted(names)) for table, names in columns.items()}
