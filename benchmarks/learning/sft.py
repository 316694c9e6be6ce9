"""Supervised fine-tuning (SFT) for as long as the run trained, on demonstrations of its training
questions.

The demonstrations hold the gold SQL and the gold answer, which reinforcement learning never sees.
Those of the questions held back for the score are not taught.
"""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.learning.bench import Bench, Result
from benchmarks.learning.supervised import Demonstrations, held_back_questions, train
from data.domains.demonstrations import answer_action
from shared.dataset import Question, load_questions
from shared.models import Outcome
from shared.sqltext import sql_name
from trainer.errors import RunError
from trainer.pretraining.imitation import Row
from trainer.rollout.loop import play_scripted
from trainer.run.folder import Run


def control(bench: Bench, folder: Run, rates: Sequence[float]) -> Result:
    return train(bench, folder, "sft", demonstrations(bench), rates)


def demonstrations(bench: Bench) -> Demonstrations:
    """Play the gold SQL of the training questions; `RunError` if too few are right."""
    rows, failed = play_rows(bench)
    held_ids = {row["question_id"] for row in held_back_questions(bench)}
    held_back = [row for name, row in rows.items() if name in held_ids]
    taught = [row for name, row in rows.items() if name not in held_ids]
    if not taught or not held_back:
        raise RunError(
            f"only {len(rows)} demonstrations of training questions succeeded: too few to learn "
            "from; use more training questions"
        )
    return Demonstrations(taught, held_back, {"demonstrations_failed": failed})


def play_rows(bench: Bench) -> tuple[dict[str, Row], int]:
    """Play the demonstrations: return token rows by question id, and how many failed.

    A script fails if its answer does not fit in a turn or in the context window.
    """
    config, client = bench.connection.config, bench.connection.client
    questions = {one.question_id: one for one in load_questions(Path(config.questions_path))}
    wanted = [row["question_id"] for row in bench.inputs.train]
    scripts = {question_id: script_of(questions[question_id]) for question_id in wanted}
    played = play_scripted(scripts, bench.inputs.tokenizer, config, client)
    rows = {
        row.question_id: Row(
            row.ids, row.learn_mask, easy=questions[row.question_id].difficulty == "easy"
        )
        for row in played
        if row.outcome == Outcome.CORRECT
    }
    return rows, len(played) - len(rows)


def script_of(question: Question) -> list[str]:
    """Return the demonstration: describe each table of the gold SQL, run it, answer."""
    rows = gold = question.gold_answer
    if question.answer_type != "table":
        rows = [[cell] for cell in (gold if question.answer_type == "list" else [gold])]
    describes = [f"DESCRIBE: {sql_name(table)}" for table in question.tables_involved]
    return [*describes, f"QUERY: {question.gold_sql}", answer_action(rows)]
