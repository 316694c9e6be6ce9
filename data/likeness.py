"""Whether two questions on one database ask the same, or the same except for a value."""

import difflib
import re
from collections.abc import Callable

from sqlglot.errors import SqlglotError

from data.choose import normalised, skeleton
from shared.dataset import Question

NEAR_RATIO = 0.95  # likeness of two questions' words from which they are near-duplicates
_VALUE = re.compile(r"'[^']*'|\"[^\"]*\"|“[^”]*”|\d[\d,.:-]*")


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
