"""`python -m trainer evaluate`. Imports torch late, so that help works without it."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from shared.console import print_line
from shared.models import DIFFICULTIES
from shared.seeds import EVAL_SEED, MAX_SEED
from trainer.cli import (
    PLAYED_MODEL,
    AdapterOption,
    ApiOption,
    DataOption,
    PresetOption,
    ServerOption,
    SetOption,
    StandardOption,
    TokenizerOption,
    configured,
    console,
    guarded,
    model_settings,
    settings_of,
)
from trainer.config import Part, PolicyName
from trainer.presets import TRAINED_MODEL

# the options that are settings of the same name
AS_GIVEN = (
    *("policy", "base_url", "api", "tokenizer", "split", "part", "limit", "samples", "seed"),
    *("against", "concurrency", "timeout_s"),
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
            show_default=PLAYED_MODEL,
        ),
    ] = None,
    adapter: AdapterOption = None,
    base_url: Annotated[
        str, Option(help="URL of the model server, such as http://host:8000/v1.")
    ] = "",
    api: ApiOption = "chat",
    tokenizer: TokenizerOption = None,
    data: DataOption = Path("data"),
    split: Annotated[str, Option(help="Use the questions in questions_SPLIT.json.")] = "eval",
    difficulty: Annotated[
        str, Option(help="Keep these difficulties, comma-separated.")
    ] = "easy,medium",
    db: Annotated[
        str, Option(help="Keep these databases, comma-separated.", show_default="all")
    ] = "",
    part: Annotated[
        Part, Option(help="all, seen or unseen: by whether training uses the database.")
    ] = "all",
    limit: Annotated[
        int,
        Option(
            min=0, help="Number of questions; databases and difficulties keep their shares; 0: all."
        ),
    ] = 0,
    samples: Annotated[int, Option(min=1, help="Episodes per question.")] = 1,
    k: Annotated[
        str, Option(help="k of pass@k, comma-separated.", show_default="1 and --samples")
    ] = "",
    greedy: Annotated[bool, Option("--greedy", help="Always take the most likely token.")] = False,
    temperature: Annotated[
        float | None,
        Option(min=0, help="Sampling temperature; 0: greedy.", show_default="1, without --greedy"),
    ] = None,
    seed: Annotated[
        int,
        Option(
            min=0, max=MAX_SEED, help="Random seed; the default is that of train's measurements."
        ),
    ] = EVAL_SEED,
    preset: PresetOption = None,
    standard: StandardOption = None,
    server: ServerOption = None,
    set_: SetOption = None,
    concurrency: Annotated[
        int, Option(min=1, help="Concurrent requests to the model server.")
    ] = 32,
    timeout_s: Annotated[
        float, Option(min=0.1, help="Timeout of a request to the model server, in seconds.")
    ] = 120.0,
    out: Annotated[
        Path | None,
        Option(
            help="Save the result and every episode in this folder. The same command resumes an "
            "interrupted evaluation."
        ),
    ] = None,
    json_path: Annotated[
        Path | None, Option("--json", help="Write the result to this JSON file.")
    ] = None,
    against: Annotated[
        Path | None,
        Option(
            help="Compare question by question with this evaluation, or with a run before its "
            "training."
        ),
    ] = None,
) -> None:
    """Measure a policy: success with 95 % intervals, pass@k, by difficulty, on seen and unseen
    databases.

    Writes OUT/evaluation.json and OUT/episodes.jsonl, which 'python -m env_server verify OUT'
    replays.
    """
    if greedy and temperature:
        raise typer.BadParameter("can't be combined with --greedy", param_hint="--temperature")
    difficulties = [name.strip() for name in difficulty.split(",")]
    if unknown := set(difficulties) - set(DIFFICULTIES):
        raise typer.BadParameter(
            f"{min(unknown)!r} is not one of {', '.join(DIFFICULTIES)}", param_hint="--difficulty"
        )
    chosen = settings_of(context, set_)
    if policy in ("random", "oracle") and (greedy or temperature is not None or model is not None):
        raise typer.BadParameter(
            f"{policy} plays without a model", param_hint="--model, --greedy and --temperature"
        )
    ks = _numbers(k)
    own = {"standard": standard} if standard else {}
    overrides = {"data_dir": data, "difficulty_filter": difficulty, **chosen, **own}
    if api == "tools":
        overrides.setdefault("system_prompt", "tools")
    if adapter is not None and policy != "model":
        raise typer.BadParameter("is for a model in this process", param_hint="--adapter")
    named = model_settings(model, adapter)
    overrides |= {name: value for name, value in named.items() if value is not None}
    if policy == "model" and preset is None:
        overrides.setdefault("model_name", TRAINED_MODEL)
    if model is None and policy == "openai":
        raise typer.BadParameter("name the model that the server serves", param_hint="--model")

    with guarded():
        from trainer.runtime.ranks import check_not_launched

        check_not_launched("evaluate")
        choice, config = configured(preset, overrides, local=policy == "model")
        if policy in ("model", "openai"):
            print_line(console, str(choice))

        from trainer.evaluation.measure import EVAL_TEMPERATURE
        from trainer.evaluation.run import run_evaluation
        from trainer.evaluation.settings import EvaluationSettings

        sampled = EVAL_TEMPERATURE if temperature is None else temperature
        settings = EvaluationSettings(
            config=config,
            databases=tuple(name.strip() for name in db.split(",") if name.strip()),
            ks=ks,
            temperature=None if greedy or sampled == 0 else sampled,
            servers=tuple(server or ()),
            out=out,
            **{name: context.params[name] for name in AS_GIVEN},
        )
        run_evaluation(settings, console, json_path)


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(item) for item in text.split(",") if item.strip())
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a list of integers, such as 1,4,8", param_hint="--k"
        ) from None
