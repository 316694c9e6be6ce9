"""What the commands share: the console, options, and how a known error ends a command."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from shared.console import errors, failure, packages_needed, print_line
from shared.errors import SQLEnvError
from shared.models import StandardName
from shared.seeds import DEFAULT_SEED, MAX_SEED
from trainer.config.presets import PRESETS, TRAINED_MODEL, Choice
from trainer.config.settings import PROMPTS, ApiName, GRPOConfig
from trainer.errors import storage_problem
from trainer.runtime.interrupt import EXIT_CODE
from trainer.runtime.ranks import launched

console = Console()

DATA = typer.Option(
    "--data",
    envvar="SQLENV_DATA_DIR",
    help="Data directory with databases/ and questions/ (see 'python -m data').",
)
DataOption = Annotated[Path, DATA]
ServerOption = Annotated[
    list[str] | None,
    typer.Option(
        "--server",
        envvar="SQLENV_SERVER_URL",
        help="URL of a running environment server; repeatable. Without one, a run starts its own.",
    ),
]
StandardOption = Annotated[
    StandardName | None,
    typer.Option(
        help="Standard of right answers: strict, spider or bird; that of --server must be equal.",
        show_default="strict",
    ),
]


def _preset(name: str | None) -> str | None:
    if name is not None and name not in PRESETS:
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(PRESETS)}")
    return name


PresetOption = Annotated[
    str | None,
    typer.Option(
        callback=_preset,
        help=f"Settings to start from: {', '.join(PRESETS)}.",
        show_default="by the model: docs/own-model.md",
    ),
]
ApiOption = Annotated[
    ApiName,
    typer.Option(
        help="What to exchange with a model server: chat (texts), or completions (token ids, "
        "exact as with a model in this process; vLLM and llama.cpp)."
    ),
]
TokenizerOption = Annotated[
    str | None,
    typer.Option(
        help="With --api completions: folder or Hugging Face name with the served model's "
        "tokenizer.",
        show_default="--model",
    ),
]

ModelOption = Annotated[
    str | None,
    typer.Option(help="Model directory or Hugging Face name.", show_default="the preset's"),
]
SeedOption = Annotated[
    int | None,
    typer.Option(min=0, max=MAX_SEED, help="Random seed.", show_default=str(DEFAULT_SEED)),
]
OutOption = Annotated[
    Path | None,
    typer.Option(help="Parent of the run's folder; OUT/latest links to it.", show_default="runs"),
]


def _adapter(folder: Path | None) -> Path | None:
    from trainer.runtime.lora import is_adapter
    from trainer.runtime.model_path import model_path

    if folder is not None and not is_adapter(model_path(str(folder))):
        raise typer.BadParameter(
            f"{folder} is no folder of a LoRA adapter: adapter_config.json and "
            "adapter_model.safetensors, without a whole model beside them"
        )
    return folder


AdapterOption = Annotated[
    Path | None,
    typer.Option(
        callback=_adapter,
        help="Folder of a LoRA adapter (PEFT), merged into the model at loading; --model is then "
        "its base.",
        show_default="none; the base: the one that the adapter names",
    ),
]

PLAYED_MODEL = f"{TRAINED_MODEL}; with --preset, that of the preset"  # by evaluate and play


def model_settings(model: str | None, adapter: Path | None) -> dict[str, Any]:
    if adapter is None:
        return {"model_name": model}
    return {"model_name": str(adapter), "base_model": model}


SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Set a field of GRPOConfig; repeatable."),
]

# the fields whose options have other names
OPTION_OF = {
    "output_dir": "out",
    "server_urls": "server",
    "data_dir": "data",
    "model_name": "model",
    "base_model": "adapter",
    "max_steps": "steps",
    "num_train_epochs": "epochs",
    "difficulty_filter": "difficulty",
}


def settings_of(
    context: typer.Context, items: list[str] | None, refused: Iterable[str] = (), **named: Any
) -> dict[str, Any]:
    """Return the settings of the `--set` options, and those of `named` that are not None. With
    `--resume`, the options `refused` are added, if given, for `resumed_settings` to refuse."""
    settings = {}
    if context.params.get("resume") is not None:
        given = given_options(context)
        named |= {name: context.params[name] for name in refused if name in given}
        if "data" not in given:
            named["data_dir"] = None  # of the environment
    for item in items or []:
        name, separator, value = item.partition("=")
        name = name.strip()
        if not separator or not name:
            raise typer.BadParameter(
                f"{item!r} is not NAME=VALUE, for example learning_rate=1e-4", param_hint="--set"
            )
        if (option := OPTION_OF.get(name, name)) in context.params:
            flag = f"--{option.replace('_', '-')}"
            raise typer.BadParameter(f"{name} has an option: use {flag}", param_hint="--set")
        is_file = name == "system_prompt" and value not in PROMPTS
        settings[name] = Path(value) if is_file else value
    return settings | {name: value for name, value in named.items() if value is not None}


def given_options(context: typer.Context) -> set[str]:
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name for name, source in sources.items() if source and source.name == "COMMANDLINE"}


def configured(
    preset: str | None,
    overrides: Mapping[str, Any],
    servers: Sequence[str] | None = None,
    *,
    local: bool = True,
) -> tuple[Choice, GRPOConfig]:
    """Return the preset of a command's model and its settings; `local`: loaded in this process. A
    missing model or a bad URL is refused before torch is imported, which takes seconds."""
    from trainer.rollout.servers import look_at
    from trainer.runtime.models import find_model, preset_of

    model, base = overrides.get("model_name"), str(overrides.get("base_model", ""))
    if local:
        find_model(str(model or PRESETS[preset or "offline"]["model_name"]), base)
    if servers and not launched():
        look_at(servers)
    choice = preset_of(model, preset, base, served=not local)
    return choice, GRPOConfig.preset(choice.preset, **{**choice.settings, **overrides})


@contextmanager
def guarded() -> Iterator[None]:
    """Turn a known error into one line and exit code 1, an interruption into exit code 130."""
    try:
        with packages_needed("server,trainer"):
            yield
    except SQLEnvError as error:
        raise failure(error) from error
    except OSError as error:
        if (problem := storage_problem(error)) is None:
            raise
        raise failure(problem) from error
    except KeyboardInterrupt:
        print_line(errors, "interrupted", "red")
        raise typer.Exit(EXIT_CODE) from None
