"""`python -m trainer play`: its options. What needs numpy, torch or a server is imported when it
runs."""

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from shared.models import MAX_STEP_BUDGET
from trainer.cli import console, errors, guarded

SERVER_WAIT_S = 60.0  # for a server that is lost in the middle
NO_ANSWER = 3  # exit code where the agent left a question without an answer


def play(
    db: Annotated[Path, typer.Option("--db", help="A SQLite file. It is only read.")],
    question: Annotated[
        list[str] | None,
        typer.Option(
            "--question",
            "-q",
            help="Ask this; may be repeated. Without it, a terminal asks for questions.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Model directory, checkpoint or Hugging Face name.",
            show_default="runs/latest/model, or else the shipped base",
        ),
    ] = None,
    base_url: Annotated[
        str | None,
        typer.Option(
            help="Of an OpenAI-compatible server, ending in /v1. OPENAI_API_KEY holds its key."
        ),
    ] = None,
    api_model: Annotated[str | None, typer.Option(help="The model's name on that server.")] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MAX_STEP_BUDGET,
            help="Actions a question, at most.",
            show_default="as the model was trained",
        ),
    ] = None,
    greedy: Annotated[
        bool, typer.Option("--greedy", help="Take the likeliest words, as is the default.")
    ] = False,
    temperature: Annotated[
        float | None,
        typer.Option(min=0.0, help="Sample at this temperature instead.", show_default="greedy"),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Of sampling.")] = 42,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a question, for scripts.")
    ] = False,
    server: Annotated[
        list[str] | None,
        typer.Option(
            "--server", help="URL of a server started on what --keep left; may be repeated."
        ),
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(help="Make the data directory that hosts the question there, and keep it."),
    ] = None,
) -> None:
    """An agent explores a database of your own to answer a question. You see each step and its
    answer.

    Exits with 0 where every question got an answer, with 3 where one got none, with 1 on an error.
    """
    if greedy and temperature:
        raise typer.BadParameter(
            "it contradicts --greedy: leave one out", param_hint="--temperature"
        )
    if (base_url is None) != (api_model is None):
        raise typer.BadParameter(
            "give --base-url and --api-model together", param_hint="--base-url"
        )
    if base_url is not None and model is not None:
        raise typer.BadParameter(
            "it names a local model, --api-model one on a server", param_hint="--model"
        )
    if not question and (server or keep):
        raise typer.BadParameter(
            "needs --question: such a server hosts fixed ones", param_hint="--server, --keep"
        )
    if not question and not sys.stdin.isatty():
        raise typer.BadParameter(
            "is missing, and there is no terminal to ask on", param_hint="--question"
        )

    def job() -> None:
        from trainer.play.agent import Sampling, api_agent, local_agent
        from trainer.play.database import check_question, examine
        from trainer.play.questions import converse, play_questions
        from trainer.play.show import Display, JsonLines, Screen

        database = examine(db)
        asked = [check_question(text) for text in question or ()]
        sampling = Sampling(temperature or 0.0, seed)
        display: Display = JsonLines(console, errors) if as_json else Screen(console)
        with ExitStack() as stack:
            if base_url is not None and api_model is not None:
                agent = stack.enter_context(
                    api_agent(base_url, api_model, sampling, steps, SERVER_WAIT_S)
                )
            else:
                with display.busy("the model is loaded"):
                    agent = local_agent(model, sampling, steps, SERVER_WAIT_S)
            if not asked:
                return converse(db, agent, display, errors)
            if not play_questions(database, asked, agent, display, server or (), keep):
                raise typer.Exit(NO_ANSWER)

    guarded(job)
