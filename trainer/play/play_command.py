"""`python -m trainer play`. Modules that need torch or a server are imported when it runs."""

import math
import sys
from pathlib import Path
from typing import Annotated

import typer

from shared.console import counted, errors, print_line
from shared.errors import SQLEnvError
from shared.models import MAX_STEP_BUDGET
from trainer.config.presets import TRAINED_MODEL
from trainer.config.settings import FormatName
from trainer.run import options as cli

SAMPLES = 5  # attempts of a real model at a question
TOY = "offline"  # preset of models that play one attempt: they are greedy, and quick to be wrong
SERVER_WAIT_S = 60.0  # for a server that is lost during an episode
# of the attempts at a question that must agree: of votes of 8 on 120 unseen Spider questions, 90 %
# are right where 6 agree, and 37 % below
AGREE_SHARE = 0.75
NO_ANSWER = 3  # exit code if a question got no confirmed answer
WITHOUT_EFFECT = ("server_urls", "temperature")  # a server is started; see `Agent`


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
            show_default=cli.PLAYED_MODEL,
        ),
    ] = None,
    adapter: cli.AdapterOption = None,
    base_url: Annotated[
        str | None,
        typer.Option(
            help="URL of an OpenAI-compatible server, ending in /v1 (key: OPENAI_API_KEY)."
        ),
    ] = None,
    preset: cli.PresetOption = None,
    step_budget: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MAX_STEP_BUDGET,
            help="Maximum number of actions per question.",
            show_default="as in the model's training",
        ),
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Attempts at a question; several are sampled together, and their answers voted "
            "on. 1: one attempt, greedy.",
            show_default=f"{SAMPLES}; 1 for the toy",
        ),
    ] = None,
    agree: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Attempts that must agree; below it there is no answer.",
            show_default=f"{AGREE_SHARE:.0%} of the attempts",
        ),
    ] = None,
    set_: cli.SetOption = None,
    notes: Annotated[
        Path | None,
        typer.Option(
            help="TOML file with descriptions of tables and columns, and past questions with SQL.",
            show_default="DB's name with .notes.toml, if there is one",
        ),
    ] = None,
    form: Annotated[
        FormatName,
        typer.Option(
            "--format",
            help="What stdout shows: text is every step and the answer; table, csv and json are "
            "the answers alone, with the progress on stderr.",
        ),
    ] = "text",
    json_file: Annotated[
        typer.FileTextWrite | None,
        typer.Option(
            "--json", encoding="utf-8", help="As --format json, to this file; - is stdout."
        ),
    ] = None,
) -> None:
    """Let an agent explore your own database to answer a question, and show each step.

    Exit code: 0 if every question got an answer that a query of the agent's returned and enough
    attempts agree on, 3 if one got none, 1 on an error, 2 for contradictory options.
    """
    named = cli.model_settings(model, adapter)
    settings = cli.settings_of(context, set_, step_budget=step_budget, **named)
    refused = [
        ("--model", "name the model that the server serves", bool(base_url) and model is None),
        ("--adapter", "is for a model in this process", bool(base_url and adapter)),
        ("--question", "is missing, and there is no terminal to prompt on",
         not question and not sys.stdin.isatty()),
        ("--question", "is empty", any(not text.strip() for text in question or ())),
        ("--format", "is json with --json", json_file is not None and form not in ("text", "json")),
        ("--format", "csv is for one --question: each has columns of its own",
         form == "csv" and len(question or ()) > 1),
        *(("--set", f"{name} has no effect here", name in settings) for name in WITHOUT_EFFECT),
    ]  # fmt: skip
    for option, problem, holds in refused:
        if holds:
            raise typer.BadParameter(problem, param_hint=option)
    settings.setdefault("server_wait_s", SERVER_WAIT_S)
    if preset is None:
        settings.setdefault("model_name", TRAINED_MODEL)

    with cli.guarded():
        choice, config = cli.configured(preset, settings, local=base_url is None)
        if samples is None:
            samples = 1 if choice.preset == TOY else SAMPLES
        needed = math.ceil(AGREE_SHARE * samples) if agree is None else agree
        if needed > samples:
            problem = f"{needed} of {counted(samples, 'attempt')} can't agree"
            raise typer.BadParameter(problem, param_hint="--agree")

        from trainer.play.agent import local_agent, served_agent
        from trainer.play.database import examine
        from trainer.play.display import Screen
        from trainer.play.prompt import Prompt
        from trainer.play.session import play_questions, run_query

        form = "json" if json_file is not None else form
        from trainer.play.output_formats import Output

        output = Output(
            form, json_file or sys.stdout, {"database": str(db), "agent": config.model_name}
        )
        brief = form != "text"
        screen, prompt = Screen(errors if brief else cli.console, brief=brief), Prompt(errors)
        where = f"served by {base_url}; " if base_url else ""
        screen.start(examine(db, notes), f"{config.model_name}, {where}{choice}")
        if base_url:
            agent = served_agent(config, base_url, samples)
        else:
            agent = local_agent(config, samples)

        def answers(texts: list[str]) -> bool:
            """Play questions on the file as it is now; return whether all answers are confirmed."""
            confirmed, database = True, examine(db, notes)
            for played in play_questions(database, texts, agent, screen, samples, needed):
                confirmed = confirmed and played.answer is not None
                output.answer(played)
                query = played.leader[1].query
                prompt.query = query.argument if query else ""
            return confirmed

        with agent.compute():
            if question:
                if not answers(question):
                    raise typer.Exit(NO_ANSWER)
                return
            for text, is_sql in prompt:
                try:
                    if is_sql:
                        result = run_query(examine(db, notes), text, config)
                        screen.result(result)
                        output.result(text, result)
                    else:
                        answers([text])
                except SQLEnvError as error:  # of this question alone
                    print_line(errors, f"error: {error}", "red")
