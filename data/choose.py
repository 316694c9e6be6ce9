"""Chooses the shipped questions of one database: which are asked in training, which in evaluation.

A question's skeleton is its SQL with every literal masked. A skeleton belongs to one split only, so
that an eval question on a training database is never a training question with another number in it.
One answer is the answer of a small share of a part's questions only, so that no constant earns
much.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from data.domains.spec import Domain, Draft, HardQuestion
from data.domains.templates import Asked
from shared.order_by import parse_query

TRAIN, EVAL = "train", "eval"
TRIVIAL_WORDS = frozenset(("a", "an", "and", "at", "in", "of", "the", "with"))
MAX_ANSWER_SHARE = 0.02  # of the questions of a part: train, seen, unseen


@dataclass
class Part:
    """What a part of the questions has taken: `most` questions at most share one answer."""

    most: int
    answers: Counter[str] = field(default_factory=Counter)
    taken: set[str] = field(default_factory=set)  # texts and golds

    def take(self, asked: Asked) -> bool:
        """Take the question, unless its text or its gold is taken or its answer is too common."""
        answer, text, gold = (
            repr(asked.gold.answer),
            asked.draft.text.lower(),
            normalised(asked.draft.sql),
        )
        if self.answers[answer] >= self.most or text in self.taken or gold in self.taken:
            return False
        self.answers[answer] += 1
        self.taken |= {text, gold}
        return True


def normalised(sql: str) -> str:
    """`sql` in one spelling: case, white space, quotes and aliases' AS don't count."""
    return _spelled(parse_query(sql))


def skeleton(sql: str) -> str:
    """`normalised` with every literal masked, and LIMIT's number too."""
    return _spelled(
        parse_query(sql).transform(
            lambda node: exp.Placeholder() if isinstance(node, exp.Literal) else node
        )
    )


def _spelled(tree: exp.Expression) -> str:
    return str(tree.sql(dialect="sqlite", normalize=True)).lower()


def tables_of(domain: Domain, sql: str) -> tuple[str, ...]:
    """The domain's tables that `sql` reads, in the domain's order."""
    named = {table.name.lower() for table in parse_query(sql).find_all(exp.Table)}
    return tuple(table.name for table in domain.tables if table.name.lower() in named)


def hard_draft(domain: Domain, question: HardQuestion) -> Draft:
    """A hand-written question as a draft."""
    tables = tables_of(domain, question.sql)
    return Draft(question.text, question.sql, "hard", tables, form="hard")


def gives_itself_away(asked: Asked) -> bool:
    """Whether the question's own text holds the answer."""
    return text_holds(asked.draft.text, asked.gold.answer)


def text_holds(text: str, answer: Any) -> bool:
    """Whether `text` says `answer`: a scalar as a word, or every cell of a list or a table."""
    cells = answer if isinstance(answer, list) else [answer]
    flat = [cell for row in cells for cell in (row if isinstance(row, list) else [row])]
    said = _words(text)
    return all(_words(str(cell)) <= said for cell in flat)


def _words(text: str) -> set[str]:
    """The words and numbers in `text`, accents and case dropped: `José.Vega7@x.org` holds `jose`,
    `vega`, `7`."""
    plain = unicodedata.normalize("NFKD", text.lower())
    plain = "".join(mark for mark in plain if not unicodedata.combining(mark))
    return {
        word for word in re.findall(r"[^\W\d_]+|\d+(?:\.\d+)?", plain) if word not in TRIVIAL_WORDS
    }


def deal(
    pool: Iterable[Asked],
    wanted: Mapping[str, Mapping[str, int]],
    parts: Mapping[str, Part],
    hard: Mapping[str, Iterable[Asked]],
) -> dict[str, list[Asked]]:
    """Deal `pool` to the splits: `wanted[split][difficulty]` questions each, forms as even as the
    pool allows.

    A skeleton goes to the split that is furthest behind its share of the form's questions, and
    stays there. Those of the `hard` questions have their splits.
    """
    dealt: dict[str, list[Asked]] = {name: [] for name in wanted}
    left = {name: dict(counts) for name, counts in wanted.items()}
    owner = {skeleton(asked.draft.sql): name for name, found in hard.items() for asked in found}
    forms: dict[str, Counter[str]] = defaultdict(Counter)
    for asked in pool:
        level, form = asked.draft.difficulty, asked.draft.form
        open_splits = [name for name in wanted if left[name].get(level, 0) > 0]
        if not open_splits or gives_itself_away(asked):
            continue
        key = skeleton(asked.draft.sql)
        if key not in owner:
            owner[key] = min(
                open_splits, key=lambda name: (forms[form][name] + 0.5) / wanted[name][level]
            )
        name = owner[key]
        if name in open_splits and parts[name].take(asked):
            dealt[name].append(asked)
            left[name][level] -= 1
            forms[form][name] += 1
    return dealt
