"""Writes a generated data directory: fresh databases, questions with golds, and demonstrations.

    DIR/databases/<db_id>/<db_id>.sqlite
    DIR/questions/questions_train.json
    DIR/questions/demonstrations.json     question_id -> {"actions": [...], "demonstrator": name}

Everything follows from the seed. Database number k of seed s is the same however many databases are
asked for.
"""

import json
import random
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import track

from data.domains.demonstrations import MIXTURES, Demonstrate, Mixture, Scene, demonstrate
from data.domains.fresh import Shape, fresh_domain
from data.domains.held_out import is_held_out_pair
from data.domains.populate import open_memory, populate, write_database
from data.domains.templates import balanced
from shared.dataset import database_path, questions_path

EASY_SHARE = 0.5  # of a database's questions
SEEDS_APART = 1_000_003  # database k of seed s is the domain of seed s * this + k


@dataclass
class Report:
    """What a run of the generator wrote."""

    databases: int = 0
    questions: Counter[str] = field(default_factory=Counter)  # by form
    demonstrators: Counter[str] = field(default_factory=Counter)


def generate(
    seed: int,
    databases: int,
    questions_per_database: int,
    out: Path,
    noise: float = 0.0,
    *,
    mixture: Mixture = "careless",
    eval_databases: int = 0,
    easy_share: float = EASY_SHARE,
    shape: Shape | None = None,
    progress: bool = False,
) -> Report:
    """Write `databases` fresh databases with up to that many questions each, and a demonstration of
    every question.

    `noise` is the share of demonstrations that a noisy demonstrator gives, one of
    `MIXTURES[mixture]`; `easy_share` of the questions are easy, the rest medium. The questions of
    the last `eval_databases` databases are the eval split, which training never sees, and have no
    demonstration. `out` may exist: files of the same name are replaced.
    """
    if databases < 1 or questions_per_database < 1:
        raise ValueError("databases and questions_per_database must be at least 1")
    if not (0 <= noise <= 1 and 0 <= easy_share <= 1):
        raise ValueError("noise and easy_share are shares: give numbers from 0 to 1")
    if mixture not in MIXTURES:
        raise ValueError(f"there is no mixture {mixture!r}: use one of {', '.join(MIXTURES)}")
    if not 0 <= eval_databases < databases:
        raise ValueError("eval_databases must leave a database to train on")
    out = Path(out)
    report, scripts = Report(), {}
    splits: dict[str, list[dict[str, Any]]] = {"train": [], "eval": []}
    show = partial(demonstrate, noise=noise, mixture=mixture)
    numbers = range(databases)
    for number in track(numbers, "Generating", disable=not progress) if progress else numbers:
        made = _database(
            seed * SEEDS_APART + number,
            questions_per_database,
            out,
            show,
            easy_share,
            shape,
            report,
        )
        split = "train" if number < databases - eval_databases else "eval"
        for question, script in made:
            splits[split].append(question)
            if split == "train":
                scripts[question["question_id"]] = script
    for split, questions in splits.items():
        if questions:
            path = questions_path(out, split)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(
                json.dumps(questions, ensure_ascii=False, indent=1) + "\n", encoding="utf-8"
            )
    demonstrations = questions_path(out, "train").with_name("demonstrations.json")
    demonstrations.write_text(
        json.dumps(scripts, ensure_ascii=False, indent=1) + "\n", encoding="utf-8"
    )
    return report


def _database(
    seed: int,
    count: int,
    out: Path,
    show: Demonstrate,
    easy_share: float,
    shape: Shape | None,
    report: Report,
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Write one database; its questions, each with its demonstration."""
    domain = fresh_domain(seed, shape)
    rng = random.Random(f"questions:{seed}")
    rows = populate(domain, random.Random(f"rows:{seed}"))
    write_database(domain, rows, database_path(out, domain.db_id))
    connection = open_memory(domain, rows)
    easy = round(count * easy_share)
    made = []
    try:
        asked = balanced(
            domain,
            rows,
            connection,
            rng,
            {"easy": easy, "medium": count - easy},
            wants=lambda draft: not is_held_out_pair(draft.form, draft.text),
        )
        for number, item in enumerate(asked, start=1):
            demonstrator, actions = show(Scene(domain, item, connection, rng))
            question = {
                "question_id": f"{domain.db_id}_{number:03d}",
                "question_text": item.draft.text,
                "database_name": domain.db_id,
                "gold_sql": item.draft.sql,
                "gold_answer": item.gold.answer,
                "answer_type": item.gold.answer_type,
                "difficulty": item.draft.difficulty,
                "tables_involved": list(item.draft.tables),
                "form": item.draft.form,
            }
            made.append((question, {"actions": actions, "demonstrator": demonstrator}))
            report.questions[item.draft.form] += 1
            report.demonstrators[demonstrator] += 1
    finally:
        connection.close()
    report.databases += 1
    return made


def command(
    out: Annotated[Path, typer.Option(help="the directory to write")],
    seed: Annotated[int, typer.Option(help="everything follows from it")] = 1,
    databases: Annotated[int, typer.Option(min=1, help="how many fresh databases")] = 100,
    questions: Annotated[int, typer.Option(min=1, help="questions a database")] = 40,
    noise: Annotated[float, typer.Option(min=0, max=1, help="share of noisy demonstrations")] = 0.0,
    mixture: Annotated[Mixture, typer.Option(help="of noisy demonstrators")] = "careless",
    easy_share: Annotated[
        float, typer.Option(min=0, max=1, help="share of easy questions")
    ] = EASY_SHARE,
    eval_databases: Annotated[
        int, typer.Option(min=0, help="how many of them are for evaluation alone")
    ] = 0,
) -> None:
    """Make fresh databases with questions, golds and demonstrations, from a seed.

    With --eval-databases the set can be trained on: make train DATA=OUT.
    """
    if out.exists() and any(out.iterdir() if out.is_dir() else [out]):
        typer.echo(f"{out} is not empty: empty it, or name another directory with --out", err=True)
        raise typer.Exit(1)
    if eval_databases >= databases:
        typer.echo(
            f"--eval-databases {eval_databases} leaves none of {databases} databases to train on",
            err=True,
        )
        raise typer.Exit(1)
    try:
        report = generate(
            seed,
            databases,
            questions,
            out,
            noise,
            mixture=mixture,
            eval_databases=eval_databases,
            easy_share=easy_share,
            progress=True,
        )
    except OSError as error:
        typer.echo(
            f"can't write to {out}: {error.strerror or error}; name another directory with --out",
            err=True,
        )
        raise typer.Exit(1) from error
    made, wanted = report.questions.total(), databases * questions
    fewer = (
        f" ({wanted - made} fewer than asked: some databases have no more to ask)"
        if made < wanted
        else ""
    )
    typer.echo(f"{report.databases} databases and {made} questions in {out}{fewer}")
