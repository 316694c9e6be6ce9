"""Findings on questions side by side: leaks between splits, and answers that are too frequent."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from data.audit.flags import Finding
from data.choose import TRAIN
from data.likeness import Keyed
from shared.dataset import Question, database_path, is_dev_question

MAX_ANSWER_SHARE = 0.04  # of a split's questions that one constant answer may be right for
MAX_ANSWER_COUNT = 2  # always allowed, however small the split

Splits = Mapping[str, Sequence[Question]]


def split_findings(data_dir: Path, splits: Splits) -> Iterator[Finding]:
    """Yield the findings on questions compared with others."""
    yield from _constants(splits)
    keyed = {split: [Keyed(question) for question in splits[split]] for split in splits}
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
