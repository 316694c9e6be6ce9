"""Choose questions for training and for evaluation, so that neither side has a twin of the other.

A question's skeleton is its SQL with every literal masked. A skeleton belongs to one split only, so
that no eval question on a training database is a training question with another number. One answer
is right for a small share of a split's questions only, so that no constant earns much.
"""

import difflib
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp
from sqlglot.errors import SqlglotError

from data.domains.templates import AnsweredDraft
from shared.dataset import Question
from shared.order_by import parse_query

TRAIN, EVAL = "train", "eval"
TRIVIAL_WORDS = frozenset(("a", "an", "and", "at", "in", "of", "the", "with"))
Splits = dict[str, list[AnsweredDraft]]  # split -> its questions
MAX_ANSWER_SHARE = 0.02  # of the questions of train, eval on seen and eval on unseen databases
NEAR_RATIO = 0.95  # likeness of two questions' words from which they are near-duplicates
_VALUE = re.compile(r"'[^']*'|\"[^\"]*\"|“[^”]*”|\d[\d,.:-]*")


@dataclass
class SplitQuota:
    """The texts, golds and answers of a split so far; `most` questions may share one answer."""

    most: int
    answers: Counter[str] = field(default_factory=Counter)
    taken: set[str] = field(default_factory=set)  # texts and golds

    def accept(self, question: AnsweredDraft) -> bool:
        """Record the question, unless its text or gold is taken or its answer is too frequent."""
        answer = repr(question.gold.answer)
        identity = {question.draft.text.lower(), normalised(question.draft.sql)}
        if self.answers[answer] >= self.most or identity & self.taken:
            return False
        self.answers[answer] += 1
        self.taken |= identity
        return True


def normalised(sql: str, *, masked: bool = False) -> str:
    """Return `sql` in one spelling: case, white space, quotes and AS make no difference.

    `masked`: without its literals, LIMIT's number included.
    """
    tree = parse_query(sql).copy()
    for literal in list(tree.find_all(exp.Literal)) if masked else []:
        literal.replace(exp.Placeholder())
    return str(tree.sql(dialect="sqlite", normalize=True)).lower()


def skeleton(sql: str) -> str:
    return normalised(sql, masked=True)


def contains_answer(text: str, answer: Any) -> bool:
    """Return whether `text` contains the words of every cell of `answer`.

    Articles and the like do not count, but a cell that ends in one must occur as a phrase:
    `Grade A` is not in `a grade`. A cell of one such word (`A`) or of none (`+`) is in no text.
    """
    cells = answer if isinstance(answer, list) else [answer]
    flat = [cell for row in cells for cell in (row if isinstance(row, list) else [row])]
    words = _words(text)

    def contains(cell: Any) -> bool:
        asked = _words(str(cell))
        if asked and asked[-1] in TRIVIAL_WORDS:
            return len(asked) > 1 and f" {' '.join(asked)} " in f" {' '.join(words)} "
        return bool(asked) and set(asked) - TRIVIAL_WORDS <= set(words)

    return all(map(contains, flat))


def _words(text: str) -> list[str]:
    """Return the words and numbers in `text`, without accents: `José.Vega7's`: jose, vega, 7."""
    plain = unicodedata.normalize("NFKD", text.lower())
    plain = "".join(mark for mark in plain if not unicodedata.combining(mark))
    plain = re.sub(r"(?<=\w)['’]s\b", "", plain)
    return re.findall(r"[^\W\d_]+|\d+(?:\.\d+)?", plain)


def distribute(
    pool: Iterable[AnsweredDraft],
    wanted: Mapping[str, Mapping[str, int]],
    quotas: Mapping[str, SplitQuota],
    hard: Splits,
) -> Splits:
    """Distribute `pool` to the splits: `wanted[split][difficulty]` questions each.

    A skeleton goes to the split that is furthest behind its share of the form's questions, and
    stays there. The `hard` questions are distributed already and fix the split of their skeletons.
    """
    chosen: Splits = {split: [] for split in wanted}
    left = {split: dict(counts) for split, counts in wanted.items()}
    owner = {skeleton(item.draft.sql): split for split, items in hard.items() for item in items}
    forms: dict[str, Counter[str]] = defaultdict(Counter)
    for question in pool:
        difficulty, form = question.draft.difficulty, question.draft.form
        open_splits = [split for split in wanted if left[split].get(difficulty, 0) > 0]
        if not open_splits or contains_answer(question.draft.text, question.gold.answer):
            continue
        key = skeleton(question.draft.sql)
        if key not in owner:
            shares = {s: (forms[form][s] + 0.5) / wanted[s][difficulty] for s in open_splits}
            owner[key] = min(shares, key=lambda split: shares[split])
        split = owner[key]
        if split in open_splits and quotas[split].accept(question):
            chosen[split].append(question)
            left[split][difficulty] -= 1
            forms[form][split] += 1
    return chosen


class Keyed:
    """A question with the keys that it is compared by."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.text = " ".join(question.question_text.lower().split())
        self.words = re.findall(r"\w+|\?", _VALUE.sub("?", question.question_text.lower()))
        self.vocabulary = frozenset(self.words)
        self.gold = _key(question.gold_sql, normalised)
        self.skeleton = _key(question.gold_sql, skeleton)

    def likeness(self, twin: "Keyed") -> tuple[str, str] | None:
        """Return (flag, why) if `twin`, on the same database, asks the same or nearly the same."""
        name = twin.question.question_id
        if self.text == twin.text:
            return "duplicate", f"the text of {name}"
        if self.gold == twin.gold:
            return "duplicate", f"the gold of {name}"
        if self.skeleton == twin.skeleton:
            return "near-duplicate", f"the gold of {name} except for a literal"
        total = len(self.words) + len(twin.words)
        most = min(len(self.words) - len(self.vocabulary - twin.vocabulary), len(twin.words))
        if 2 * most < NEAR_RATIO * total:
            return None  # an upper bound, without the cost of a matcher
        matcher = difflib.SequenceMatcher(None, self.words, twin.words, autojunk=False)
        # the upper bound first: it costs less
        if all(ratio() >= NEAR_RATIO for ratio in (matcher.quick_ratio, matcher.ratio)):
            return "near-duplicate", f"nearly the words of {name}"
        return None


def _key(sql: str, canonical: Callable[[str], str]) -> str:
    try:
        return canonical(sql)
    except (SqlglotError, RecursionError):
        return sql
