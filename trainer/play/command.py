"""`python -m trainer play`. Modules that need torch or a server are imported when it runs."""

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from shared.console import errors, print_line
from shared.models import MAX_STEP_BUDGET
from shared.seeds import DEFAULT_SEED, MAX_SEED
from trainer.cli import (
    ApiOption,
    PresetOption,
    SetOption,
    TokenizerOption,
    check_given_once,
    console,
    given_options,
    guarded,
    settings_of,
)

SERVER_WAIT_S = 60.0  # for a server that is lost during an episode
NO_ANSWER = 3  # exit code if a question got no answer
OPTION_ONLY = ("model_name", "seed", "server_urls", "temperature")  # fields that --set can't set


def play(
    context: typer.Context,
    db: Annotated[Path, typer.Option("--db", help="SQLite file. It is only read.")],
    question: Annotated[
        list[str] | None,
        typer.Option(
            "--question", "-q", help="Question; repeatable.", show_default="prompt for them"
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Model directory, checkpoint or Hugging Face name; with --base-url, its name on "
            "that server.",
            show_default="that of the newest finished run in runs/, or else the one that ships",
        ),
    ] = None,
    base_url: Annotated[
        str | None,
        typer.Option(
            help="URL of an OpenAI-compatible server, ending in /v1 (key: OPENAI_API_KEY)."
        ),
    ] = None,
    api: ApiOption = "chat",
    tokenizer: TokenizerOption = None,
    preset: PresetOption = None,
    thinking: Annotated[
        bool | None,
        typer.Option(
            help="Let the model think before each action, if its chat template supports it.",
            show_default="as in the model's training, or not",
        ),
    ] = None,
    step_budget: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MAX_STEP_BUDGET,
            help="Maximum number of actions per question.",
            show_default="as in the model's training",
        ),
    ] = None,
    greedy: Annotated[
        bool, typer.Option("--greedy", help="Decode greedily (the default).")
    ] = False,
    temperature: Annotated[
        float | None, typer.Option(min=0.0, help="Sampling temperature.", show_default="greedy")
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, max=MAX_SEED, help="Random seed of sampling.")
    ] = DEFAULT_SEED,
    set_: SetOption = None,
    json_path: Annotated[
        Path | None,
        typer.Option(
            "--json", help="Write one JSON object per question to this file; - is stdout."
        ),
    ] = None,
    server: Annotated[
        list[str] | None,
        typer.Option(
            "--server", help="URL of a server started on a directory that --keep made; repeatable."
        ),
    ] = None,
    keep: Annotated[
        Path | None, typer.Option(help="Keep the data directory that hosts the questions here.")
    ] = None,
) -> None:
    """Let an agent explore your own database to answer a question, and show each step.

    Exit code: 0 if every question got an answer, 3 if one got none, 1 on an error, 2 for
    contradictory options.
    """
    chosen = settings_of(set_)
    check_given_once(chosen, given_options(context), server, OPTION_ONLY)
    if greedy and temperature:
        raise typer.BadParameter("can't be combined with --greedy", param_hint="--temperature")
    if base_url is not None and model is None:
        raise typer.BadParameter("name the model that the server serves", param_hint="--model")
    if base_url is None and api != "chat":
        raise typer.BadParameter("needs --base-url", param_hint="--api")
    if tokenizer is not None and api != "completions":
        raise typer.BadParameter("is for --api completions", param_hint="--tokenizer")
    if not question and (server or keep):
        raise typer.BadParameter("needs --question", param_hint="--server, --keep")
    if not question and not sys.stdin.isatty():
        raise typer.BadParameter(
            "is missing, and there is no terminal to prompt on", param_hint="--question"
        )

    with guarded():
        if model is not None and base_url is None:
            from trainer.runtime.models import find_model

            find_model(model)  # before the imports below, which take seconds

        from trainer.errors import PlayError
        from trainer.play.agent import Options, Sampling, api_agent, local_agent
        from trainer.play.database import check_question, examine
        from trainer.play.display import JsonLines, Screen
        from trainer.play.questions import ask_interactively, play_questions
        from trainer.play.session import Display

        database = examine(db)
        questions = [check_question(text) for text in question or ()]
        sampling = Sampling(temperature or 0.0, seed)
        options = Options(sampling, SERVER_WAIT_S, preset, step_budget, thinking, chosen)
        with ExitStack() as stack:
            display: Display = Screen(console)
            if json_path == Path("-"):
                display = JsonLines(console.file, errors)
            elif json_path is not None:
                try:
                    json_path.parent.mkdir(parents=True, exist_ok=True)
                    file = stack.enter_context(json_path.open("w", encoding="utf-8"))
                except OSError as error:
                    reason = f"can't write {json_path}: {error.strerror}"
                    raise PlayError(f"{reason}; choose another --json") from error
                display = JsonLines(file, errors)
            if base_url is not None and model is not None:
                agent = api_agent(base_url, model, options, api, tokenizer)
            else:
                with display.busy("loading the model"):
                    agent = local_agent(model, options)
            if not questions:
                return ask_interactively(db, agent, display, errors)
            answered = play_questions(database, questions, agent, display, server or (), keep)
            if json_path is not None and json_path != Path("-"):
                print_line(console, f"wrote {json_path}")
            if not answered:
                raise typer.Exit(NO_ANSWER)
