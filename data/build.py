"""Build the shipped data: the questions on thirteen databases, always the same bytes.

    OUT/databases/<db_id>/<db_id>.sqlite
    OUT/questions/questions_train.json    questions on eight databases
    OUT/questions/questions_eval.json     other questions on these, and questions on the other five

Files of the same names are replaced.
"""

import random
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

from data.choose import EVAL, MAX_ANSWER_SHARE, TRAIN, SplitQuota, Splits, distribute
from data.domains.question_forms import AnsweredDraft, balanced
from data.domains.shipped import SHIPPED, Shipped
from data.golds.check_gold import open_readonly, run_gold
from shared.console import write_json
from shared.dataset import Question, database_path, questions_path
from shared.models import Difficulty

SEED = 1
# Questions per seen and per unseen database, by split and difficulty.
WANTED_SEEN = {TRAIN: {"easy": 33, "medium": 41}, EVAL: {"easy": 8, "medium": 11}}
WANTED_UNSEEN = {EVAL: {"easy": 24, "medium": 27}}
HARD_EVAL_EVERY = 3  # every third hard question of a seen database goes to eval
DIFFICULTIES = ("easy", "medium")
SURPLUS = 1.7  # questions generated per wanted one, since many are refused

Quotas = dict[str, SplitQuota]


def build(out: Path) -> None:
    """Write the questions and a copy of the databases under `out`."""
    files: dict[str, list[dict[str, Any]]] = {TRAIN: [], EVAL: []}
    for shipped, questions in shipped_questions():
        domain = shipped.domain
        target = database_path(out, domain.db_id)
        if target.resolve() != shipped.path.resolve():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(shipped.path, target)
        for split, items in questions.items():
            for number, item in enumerate(items, start=1):
                question = as_question(f"{domain.db_id}-{split}-{number:04d}", domain.db_id, item)
                files[split].append(question.model_dump(exclude_defaults=True))
    for split, content in files.items():
        write_json(questions_path(out, split), content)


def as_question(question_id: str, db_id: str, item: AnsweredDraft) -> Question:
    """Return an answered draft as the questions files hold it."""
    return Question(
        question_id=question_id,
        question_text=item.draft.text,
        database_name=db_id,
        gold_sql=item.draft.sql,
        gold_answer=item.gold.answer,
        answer_type=item.gold.answer_type,
        difficulty=cast(Difficulty, item.draft.difficulty),
        tables_involved=list(item.draft.tables),
    )


def shipped_questions() -> Iterator[tuple[Shipped, Splits]]:
    """Yield each database with its questions by split.

    In the quotas, all hard questions come before any other question.
    """
    train = seen = unseen = 0  # how many questions each quota will hold
    for shipped in SHIPPED:
        hard = len(shipped.hard)
        if shipped.unseen:
            unseen += sum(WANTED_UNSEEN[EVAL].values()) + hard
        else:
            train += sum(WANTED_SEEN[TRAIN].values()) + hard - hard // HARD_EVAL_EVERY
            seen += sum(WANTED_SEEN[EVAL].values()) + hard // HARD_EVAL_EVERY
    quotas = [SplitQuota(round(MAX_ANSWER_SHARE * size)) for size in (train, seen, unseen)]
    sources = []
    for shipped in SHIPPED:
        own = {EVAL: quotas[2]} if shipped.unseen else {TRAIN: quotas[0], EVAL: quotas[1]}
        sources.append((shipped, own, _hard_questions(shipped, own)))
    for shipped, own, written in sources:
        made = _template_questions(shipped, own, written)
        yield shipped, {split: [*made[split], *written[split]] for split in made}


def _template_questions(shipped: Shipped, quotas: Quotas, hard: Splits) -> Splits:
    """Return easy and medium questions by split, the easy ones first."""
    domain = shipped.domain
    wanted = WANTED_UNSEEN if shipped.unseen else WANTED_SEEN
    sizes = {
        difficulty: round(SURPLUS * sum(counts[difficulty] for counts in wanted.values()))
        for difficulty in DIFFICULTIES
    }
    rng = random.Random(f"questions:{SEED}:{domain.db_id}")
    with closing(open_readonly(shipped.path)) as connection:
        pool = balanced(domain, shipped.rows(), connection, rng, sizes)
    chosen = distribute(pool, wanted, quotas, hard)
    for items in chosen.values():
        items.sort(key=lambda item: DIFFICULTIES.index(item.draft.difficulty))
    return chosen


def _hard_questions(shipped: Shipped, quotas: Quotas) -> Splits:
    chosen: Splits = {split: [] for split in quotas}
    with closing(open_readonly(shipped.path)) as connection:
        for number, draft in enumerate(shipped.hard, start=1):
            item = AnsweredDraft(draft, run_gold(connection, draft.sql))
            split = EVAL if shipped.unseen or number % HARD_EVAL_EVERY == 0 else TRAIN
            quotas[split].accept(item)
            chosen[split].append(item)
    return chosen
