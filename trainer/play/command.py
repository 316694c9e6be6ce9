"""`python -m trainer play`. Modules that need torch or a server are imported when it runs."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from shared.console import errors
from shared.models import MAX_STEP_BUDGET
from shared.seeds import DEFAULT_SEED, MAX_SEED
from trainer.cli import (
    AdapterOption,
    ApiOption,
    PresetOption,
    SetOption,
    TokenizerOption,
    console,
    guarded,
    model_settings,
    settings_of,
)

SERVER_WAIT_S = 60.0  # for a server that is lost during an episode
NO_ANSWER = 3  # exit code if a question got no confirmed answer


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
    adapter: AdapterOption = None,
    base_url: Annotated[
        str | None,
        typer.Option(
            help="URL of an OpenAI-compatible server, ending in /v1 (key: OPENAI_API_KEY)."
        ),
    ] = None,
    api: ApiOption = "chat",
    tokenizer: TokenizerOption = None,
    preset: PresetOption = None,
    step_budget: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MAX_STEP_BUDGET,
            help="Maximum number of actions per question.",
            show_default="as in the model's training",
        ),
    ] = None,
    temperature: Annotated[
        float, typer.Option(min=0.0, help="Sampling temperature; 0: greedy.")
    ] = 0.0,
    seed: Annotated[
        int, typer.Option(min=0, max=MAX_SEED, help="Random seed of sampling.")
    ] = DEFAULT_SEED,
    set_: SetOption = None,
    json_file: Annotated[
        typer.FileTextWrite | None,
        typer.Option(
            "--json",
            encoding="utf-8",
            help="Write one JSON object per question to this file; - is stdout.",
        ),
    ] = None,
) -> None:
    """Let an agent explore your own database to answer a question, and show each step.

    Exit code: 0 if every question got an answer that a query of the agent's returned, 3 if one got
    none, 1 on an error, 2 for contradictory options.
    """
    chosen = settings_of(context, set_)
    refused = [
        ("--model", "name the model that the server serves", bool(base_url) and model is None),
        ("--adapter", "is for a model in this process", bool(base_url and adapter)),
        ("--set", "server_urls has no effect here: a server is started", "server_urls" in chosen),
        ("--api", "needs --base-url", not base_url and api != "chat"),
        ("--tokenizer", "is for --api completions", bool(tokenizer) and api != "completions"),
        ("--question", "is missing, and there is no terminal to prompt on",
         not question and not sys.stdin.isatty()),
    ]  # fmt: skip
    for option, problem, holds in refused:
        if holds:
            raise typer.BadParameter(problem, param_hint=option)

    with guarded():
        settings: dict[str, Any] = {
            "seed": seed,
            "server_wait_s": SERVER_WAIT_S,
            "step_budget": step_budget,
        }
        settings |= {**model_settings(model, adapter), **chosen}
        settings = {name: value for name, value in settings.items() if value is not None}
        if base_url is None and "model_name" in settings:
            from trainer.runtime.models import find_model

            # before the imports below, which take seconds
            find_model(settings["model_name"], settings.get("base_model", ""))

        from trainer.play.agent import api_agent, local_agent
        from trainer.play.database import check_question, examine
        from trainer.play.display import Display, JsonLines, Screen
        from trainer.play.session import ask_interactively, play_questions

        database = examine(db)
        questions = [check_question(text) for text in question or ()]
        display: Display = JsonLines(json_file, errors) if json_file else Screen(console)
        if base_url is not None and model is not None:
            agent = api_agent(base_url, model, preset, settings, temperature, api, tokenizer)
        else:
            agent = local_agent(settings.get("model_name"), preset, settings, temperature)
        if not questions:
            return ask_interactively(db, agent, display, errors)
        if not play_questions(database, questions, agent, display):
            raise typer.Exit(NO_ANSWER)
