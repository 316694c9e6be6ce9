"""`python -m data questions DATABASE`."""

from pathlib import Path
from typing import Annotated

import typer

from data.introspection.questions import make_questions
from data.sources.command import Databases, EvalShare, Force, Out, Seed, named_after, show_report
from data.sources.split import Splitting
from shared.console import one_line_errors


def questions_command(
    databases: Databases,
    count: Annotated[int, typer.Option(min=1, help="Questions per database.")] = 300,
    out: Out = None,
    eval_share: EvalShare = Splitting.eval_share,
    seed: Seed = Splitting.seed,
    force: Force = False,
) -> None:
    """Make training and eval questions about your own databases, with gold SQL.

    The data directory can be trained on: make train DATA=OUT.
    """
    target = out or named_after(databases[0])
    paths, splitting = list(map(Path, databases)), Splitting(eval_share, seed)
    with one_line_errors():
        report = make_questions(paths, target, count, splitting, force=force)
    show_report(report, target)
