"""Generate a data directory: fresh databases, questions with golds, and demonstrations.

    DIR/databases/<db_id>/<db_id>.sqlite
    DIR/questions/questions_train.json
    DIR/questions/questions_eval.json     with eval databases
    DIR/questions/demonstrations.json     question_id -> {"actions": [...], "demonstrator": name}

The seed determines every byte. Database k of seed s does not depend on how many are generated.
"""

import random
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer

from data.build import as_question
from data.choose import contains_answer, states_number
from data.domains.demonstrations import DemonstrationTask, demonstrate
from data.domains.held_out import is_held_out_pair
from data.domains.populate import open_memory, populate, write_database
from data.domains.question_forms import AnsweredDraft, balanced
from data.domains.random_domains import fresh_domain
from data.domains.spec import Draft
from shared.console import counted, failure, one_line_errors, progress_bar, write_json
from shared.dataset import database_path, questions_path
from shared.seeds import DEFAULT_SEED

EASY_SHARE = 0.5  # of a database's questions
SEED_STRIDE = 1_000_003  # database k of seed s is the domain of seed s * this + k


def generate(
    seed: int,
    databases: int,
    questions_per_database: int,
    out: Path,
    noise: float = 0.0,
    *,
    eval_databases: int = 0,
) -> int:
    """Write what `generate_command` says, and return the number of questions.

    A database may yield fewer than requested. The questions of the last `eval_databases` databases
    form the eval split and have no demonstrations. Files of the same names in `out` are replaced.
    """
    splits: dict[str, list[dict[str, Any]]] = {"train": [], "eval": []}
    scripts: dict[str, dict[str, Any]] = {}
    easy = round(questions_per_database * EASY_SHARE)
    wanted = {"easy": easy, "medium": questions_per_database - easy}

    def refuses(draft: Draft) -> bool:
        return is_held_out_pair(draft.form, draft.text)

    def rejects(item: AnsweredDraft) -> bool:
        # such questions measure nothing; in a set of demonstrations alone, they do no harm
        text, gold = item.draft.text, item.gold
        return eval_databases > 0 and (
            states_number(text, gold) or contains_answer(text, gold.answer)
        )

    with progress_bar("generating") as progress:
        for index in range(databases):
            split = "train" if index < databases - eval_databases else "eval"
            own = seed * SEED_STRIDE + index
            domain, rng = fresh_domain(own), random.Random(f"questions:{own}")
            rows = populate(domain, random.Random(f"rows:{own}"))
            write_database(domain, rows, database_path(out, domain.db_id))
            with closing(open_memory(domain, rows)) as connection:
                made = balanced(domain, rows, connection, rng, wanted, refuses, rejects)
                for number, item in enumerate(made, start=1):
                    task = DemonstrationTask(domain, item, connection, rng)
                    demonstrator, actions = demonstrate(task, noise)
                    question_id = f"{domain.db_id}_{number:03d}"
                    question = as_question(question_id, domain.db_id, item)
                    content = question.model_dump(exclude_defaults=True)
                    splits[split].append(content | {"form": item.draft.form})
                    if split == "train":
                        scripts[question_id] = {"actions": actions, "demonstrator": demonstrator}
            progress(index + 1, databases)
    for split, questions in splits.items():
        if questions:
            write_json(questions_path(out, split), questions)
    write_json(questions_path(out, "train").with_name("demonstrations.json"), scripts)
    return sum(map(len, splits.values()))


def generate_command(
    out: Annotated[Path, typer.Option(help="Data directory to write.")],
    seed: Annotated[int, typer.Option(help="Random seed.")] = DEFAULT_SEED,
    databases: Annotated[int, typer.Option(min=1, help="Number of databases.")] = 100,
    questions: Annotated[int, typer.Option(min=1, help="Questions per database.")] = 40,
    noise: Annotated[
        float, typer.Option(min=0, max=1, help="Share of careless demonstrations.")
    ] = 0.0,
    eval_databases: Annotated[
        int, typer.Option(min=0, help="Databases reserved for the eval split.")
    ] = 0,
) -> None:
    """Generate fresh databases with questions, golds and demonstrations.

    With --eval-databases the set can be trained on: make train DATA=OUT.
    """
    if out.exists() and any(out.iterdir() if out.is_dir() else [out]):
        raise failure(f"{out} is not empty: empty it, or name another directory with --out")
    if eval_databases >= databases:
        of_all = f"--eval-databases {eval_databases} of --databases {databases}"
        raise failure(f"{of_all} leaves none for training")
    with one_line_errors():
        count = generate(seed, databases, questions, out, noise, eval_databases=eval_databases)
    made = f"{counted(databases, 'database')} and {counted(count, 'question')}"
    typer.echo(f"wrote {made} to {out}")
