"""The registry of forms, and the sampler that spreads questions over forms and answers."""

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import apsw

from data.domains.spec import Domain, Draft, Rows
from data.domains.templates.asker import Asker, NoQuestionError
from data.domains.templates.easy import EASY, Template
from data.domains.templates.joins import JOINS
from data.domains.templates.medium import MEDIUM
from data.golds.execute import GoldRejected, GoldResult, run_gold

FORMS: dict[str, tuple[str, Template]] = {
    **{template.__name__: ("easy", template) for template in EASY},
    **{template.__name__: ("medium", template) for template in (*MEDIUM, *JOINS)},
}
ATTEMPTS = 12  # draws of one form before the round goes on to the next
MAX_ANSWER_SHARE = 0.05  # of a database's questions that may share one answer
# forms that a database has few questions of
WEIGHTS = {"count_all": 0.5, "list_distinct": 0.6, "count_distinct": 0.7}


@dataclass(frozen=True)
class Asked:
    """A draft with its gold."""

    draft: Draft
    gold: GoldResult


def ask(form: str, asker: Asker) -> Draft | None:
    """One draft of `form`, or None where this draw gave nothing to ask."""
    difficulty, template = FORMS[form]
    asker.restart()
    try:
        return replace(template(asker), form=form, difficulty=difficulty)
    except NoQuestionError:
        return None


def balanced(
    domain: Domain,
    rows: Rows,
    connection: apsw.Connection,
    rng: random.Random,
    wanted: Mapping[str, int],
    gold: Callable[[apsw.Connection, str], GoldResult] = run_gold,
    wants: Callable[[Draft], bool] = lambda draft: True,
) -> list[Asked]:
    """Up to `wanted[difficulty]` questions of each difficulty, no two with one text or one SQL.

    `connection` holds `rows`; a draft that is not in `wants` is turned away. Forms take turns in a
    random order, so that all that the database can serve have about as many questions each, and no
    answer takes more than a twentieth of a difficulty's questions (or two of them).
    """
    asker = Asker(domain, rows, rng)
    kept: list[Asked] = []
    seen: set[str] = set()
    for difficulty, count in wanted.items():
        forms = [form for form, (level, _) in FORMS.items() if level == difficulty]
        answers: Counter[str] = Counter()
        most = max(2, round(count * MAX_ANSWER_SHARE))
        found: list[Asked] = []
        idle = 0
        while len(found) < count and idle < 2:
            before = len(found)
            for form in rng.sample(forms, len(forms)):
                if len(found) == count:
                    break
                if rng.random() < WEIGHTS.get(form, 1.0):
                    asked = _one(form, asker, connection, seen, answers, most, gold, wants)
                    if asked is not None:
                        found.append(asked)
            idle = 0 if len(found) > before else idle + 1
        kept += found
    return kept


def _one(
    form: str,
    asker: Asker,
    connection: apsw.Connection,
    seen: set[str],
    answers: Counter[str],
    most: int,
    gold: Callable[[apsw.Connection, str], GoldResult],
    wants: Callable[[Draft], bool],
) -> Asked | None:
    for _ in range(ATTEMPTS):
        draft = ask(form, asker)
        if draft is None or draft.text in seen or draft.sql in seen or not wants(draft):
            continue
        try:
            result = gold(connection, draft.sql)
        except GoldRejected:
            continue
        answer = repr(result.answer)
        if (
            answer in ("0", "None")
            or any(cell is None for row in result.rows for cell in row)
            or answers[answer] >= most
        ):
            continue
        seen |= {draft.text, draft.sql}
        answers[answer] += 1
        return Asked(draft, result)
    return None
