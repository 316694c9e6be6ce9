"""Forms of questions on any domain, and a sampler that balances forms and answers.

A form takes an `Asker` and returns a `Draft`, or raises `NoQuestionError`. It draws everything
from the asker's stream and names no table: words come from the domain and from wordings.toml.
"""

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import apsw

from data.domains.question_forms.asker import Asker, NoQuestionError
from data.domains.question_forms.forms import EASY, MEDIUM, Template
from data.domains.spec import Domain, Draft, Rows
from data.golds.check_gold import GoldRejected, GoldResult, run_gold

FORMS: dict[str, tuple[str, Template]] = {
    **{template.__name__: ("easy", template) for template in EASY},
    **{template.__name__: ("medium", template) for template in MEDIUM},
}
ATTEMPTS = 12  # draws of one form before the next form's turn
MAX_ANSWER_SHARE = 0.05  # of a database's questions that may share one answer
# Chance of a form's turn, for forms with few questions per database; 1 for the others.
WEIGHTS = {"count_all": 0.5, "list_distinct": 0.6, "count_distinct": 0.7}


@dataclass(frozen=True)
class AnsweredDraft:
    """A draft with the result of its gold."""

    draft: Draft
    gold: GoldResult


def balanced(
    domain: Domain,
    rows: Rows,
    connection: apsw.Connection,
    rng: random.Random,
    wanted: Mapping[str, int],
    refuses: Callable[[Draft], bool] = lambda draft: False,
    rejects: Callable[[AnsweredDraft], bool] = lambda item: False,
) -> list[AnsweredDraft]:
    """Return up to `wanted[difficulty]` questions of each difficulty, all different.

    `connection` holds `rows`, or more rows of which these are some. Drafts that `refuses` or, once
    they are answered, `rejects` returns True for are dropped; on large tables a gold takes long.
    Forms take turns in a random order, so that each has about as many questions as the database
    allows. No answer takes more than a twentieth of a difficulty's questions (or two of them).
    """
    asker = Asker(domain, rows, rng)
    kept: list[AnsweredDraft] = []
    seen: set[str] = set()  # texts and golds, and golds that can't be used
    golds: dict[str, GoldResult] = {}

    def draw(form: str, answers: Counter[str], most: int) -> AnsweredDraft | None:
        for _ in range(ATTEMPTS):
            difficulty, template = FORMS[form]
            asker.start(form, difficulty)
            try:
                draft = template(asker)
            except NoQuestionError:
                continue
            if seen & {draft.text, draft.sql} or refuses(draft):
                continue
            try:
                gold = golds.get(draft.sql) or run_gold(connection, draft.sql)
            except GoldRejected:
                seen.add(draft.sql)
                continue
            golds[draft.sql] = gold
            item, answer = AnsweredDraft(draft, gold), repr(gold.answer)
            has_null = any(cell is None for row in gold.rows for cell in row)
            if answer == "0" or has_null or answers[answer] >= most or rejects(item):
                continue
            seen.update((draft.text, draft.sql))
            answers[answer] += 1
            return item
        return None

    for difficulty, count in wanted.items():
        forms = [form for form, (level, _) in FORMS.items() if level == difficulty]
        answers: Counter[str] = Counter()
        most = max(2, round(count * MAX_ANSWER_SHARE))
        questions: list[AnsweredDraft] = []
        idle = 0  # rounds without a new question
        while len(questions) < count and idle < 2:
            before = len(questions)
            for form in rng.sample(forms, len(forms)):
                if len(questions) == count:
                    break
                if rng.random() < WEIGHTS.get(form, 1.0):
                    question = draw(form, answers, most)
                    questions += [question] if question is not None else []
            idle = 0 if len(questions) > before else idle + 1
        kept += questions
    return kept
