"""`python -m trainer evaluate`. Imports torch late, so that help works without it."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from shared.console import print_line
from shared.seeds import EVAL_SEED, MAX_SEED
from trainer.config.presets import TRAINED_MODEL
from trainer.config.settings import PolicyName
from trainer.run import options as cli

# the options that are settings of the same name
AS_GIVEN = (
    *("policy", "base_url", "api", "tokenizer", "split", "limit", "samples", "seed"),
    *("against", "concurrency"),
)


def evaluate(
    context: typer.Context,
    policy: Annotated[
        PolicyName,
        Option(
            help="random, oracle (plays the gold answers of the questions' file), model (in this "
            "process), or openai (on an OpenAI-compatible server: --base-url; the key is read from "
            "OPENAI_API_KEY)."
        ),
    ] = "model",
    model: Annotated[
        str | None,
        Option(
            help="Model directory, checkpoint or Hugging Face name; for openai, its name.",
            show_default=cli.PLAYED_MODEL,
        ),
    ] = None,
    adapter: cli.AdapterOption = None,
    base_url: Annotated[
        str, Option(help="URL of the model server, such as http://host:8000/v1.")
    ] = "",
    api: cli.ApiOption = "chat",
    tokenizer: cli.TokenizerOption = None,
    data: cli.DataOption = Path("data"),
    split: Annotated[
        str, Option(help="Use questions_SPLIT.json; open: open_questions.json.")
    ] = "eval",
    difficulty: Annotated[
        str, Option(help="Keep these difficulties, comma-separated.")
    ] = "easy,medium",
    db: Annotated[
        str, Option(help="Keep these databases, comma-separated.", show_default="all")
    ] = "",
    limit: Annotated[
        int,
        Option(
            min=0, help="Number of questions; databases and difficulties keep their shares; 0: all."
        ),
    ] = 0,
    samples: Annotated[
        int, Option(min=1, help="Episodes per question, for pass@k with k up to this number.")
    ] = 1,
    greedy: Annotated[bool, Option("--greedy", help="Always take the most likely token.")] = False,
    temperature: Annotated[float, Option(min=0, help="Sampling temperature; 0: greedy.")] = 1.0,
    seed: Annotated[
        int,
        Option(
            min=0, max=MAX_SEED, help="Random seed; the default is that of train's measurements."
        ),
    ] = EVAL_SEED,
    preset: cli.PresetOption = None,
    standard: cli.StandardOption = None,
    server: cli.ServerOption = None,
    set_: cli.SetOption = None,
    concurrency: Annotated[
        int, Option(min=1, help="Concurrent requests to the model server.")
    ] = 32,
    out: Annotated[
        Path | None,
        Option(
            help="Save the result and every episode in this folder. The same command resumes an "
            "interrupted evaluation."
        ),
    ] = None,
    against: Annotated[
        Path | None, Option(help="Compare question by question with the evaluation in this folder.")
    ] = None,
) -> None:
    """Measure a policy: success with 95 % intervals, pass@k, by difficulty, on seen and unseen
    databases.

    Writes OUT/evaluation.json and OUT/episodes.jsonl, which 'python -m env_server verify OUT'
    replays.
    """
    given = cli.given_options(context)
    if greedy and "temperature" in given:
        raise typer.BadParameter("can't be combined with --greedy", param_hint="--temperature")
    if policy in ("random", "oracle") and (given & {"greedy", "temperature"} or model is not None):
        raise typer.BadParameter(
            f"{policy} plays without a model", param_hint="--model, --greedy and --temperature"
        )
    overrides = cli.settings_of(
        context,
        set_,
        **cli.model_settings(model, adapter),
        data_dir=data,
        difficulty_filter=difficulty,
        standard=standard,
    )
    if adapter is not None and policy != "model":
        raise typer.BadParameter("is for a model in this process", param_hint="--adapter")
    if policy == "model" and preset is None:
        overrides.setdefault("model_name", TRAINED_MODEL)
    if model is None and policy == "openai":
        raise typer.BadParameter("name the model that the server serves", param_hint="--model")

    with cli.guarded():
        from trainer.runtime.ranks import check_not_launched

        check_not_launched("evaluate")
        choice, config = cli.configured(preset, overrides, server, local=policy == "model")
        if policy in ("model", "openai"):
            print_line(cli.console, str(choice))

        from trainer.run.evaluation import EvaluationSettings, run_evaluation

        settings = EvaluationSettings(
            config=config,
            databases=tuple(name.strip() for name in db.split(",") if name.strip()),
            temperature=None if greedy else temperature or None,
            servers=tuple(server or ()),
            out=out,
            **{name: context.params[name] for name in AS_GIVEN},
        )
        run_evaluation(settings, cli.console)
