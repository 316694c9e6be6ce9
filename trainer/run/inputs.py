"""The inputs of a job: settings, questions, databases, model, and the data of the servers."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from shared.dataset import (
    OPEN,
    AnyQuestion,
    check_databases,
    data_digest,
    has_split,
    load_split,
    split_path,
)
from shared.errors import QuestionLoadError, SQLEnvError
from shared.models import ServerMetadata
from shared.shipped import shipped_path
from trainer.config import GRPOConfig
from trainer.errors import RunError
from trainer.rollout.dataset import check_training_questions, load_question_prompts
from trainer.rollout.prompts import prompt_digest
from trainer.run.folder import Run, read_json, write_json
from trainer.run.measurement import PromptRow, choose
from trainer.run.records import Book
from trainer.run.summary import model_digest
from trainer.runtime.models import load_model_and_tokenizer
from trainer.runtime.precision import check_extras

# these change how an update is computed, not its result
FOR_MEMORY = (
    *("per_device_train_batch_size", "gradient_accumulation_steps", "gradient_checkpointing"),
)
# may differ between machines; data and models are compared by their digests
MACHINE_SPECIFIC = (
    *("model_name", "questions_path", "db_dir", "output_dir", "server_urls", "out", "servers"),
    *("generation_url", "base_model"),
)
# results with equal ones compare
DIGESTS = ("data_digest", "model_digest", "prompt_digest", "server_digest")


@dataclass(frozen=True)
class JobOptions:
    """The options of a job besides the training's own settings."""

    command: ClassVar[str] = "train"  # of the command line
    taught: ClassVar[tuple[str, ...]] = ("train",)  # splits that may be learned from
    preset: str = "offline"
    out: Path = Path("runs")
    servers: tuple[str, ...] = ()  # empty: the job starts one
    eval_limit: int = 0  # questions of the eval set; 0: all of the trained difficulties
    # steps between two points of the eval curve; 0: none; None: by the run's length
    eval_every: int | None = None
    eval_points: int = 64  # questions per point
    questions: Sequence[str] = field(default_factory=list)  # ids to train on; empty: all

    @property
    def saved(self) -> dict[str, Any]:
        given = ("preset", "out", "servers")
        return {name: value for name, value in asdict(self).items() if name not in given}


def shared_settings(config: GRPOConfig, options: JobOptions, resume: Run | None) -> dict[str, Any]:
    given = {**asdict(config), **asdict(options), "resume": resume.id if resume else None}
    return {name: value for name, value in given.items() if name not in MACHINE_SPECIFIC}


@dataclass(frozen=True)
class Inputs:
    """Read before a run starts, so that bad input leaves no folder behind.

    `model_digest` is that of the model as it was read: training changes `model` in place.
    """

    train: Sequence[PromptRow]
    evaluation: Sequence[PromptRow]
    book: Book
    data_digest: str
    model_digest: str
    model: Any = field(repr=False)
    tokenizer: Any = field(repr=False)


def load_inputs(
    config: GRPOConfig,
    options: JobOptions,
    split: str | None = "eval",
    *,
    training: bool = True,
    with_model: bool = True,
) -> Inputs:
    """Load questions, databases and model; `split` is what is measured, if anything is.

    Without `training` the data needs no training questions. Without `with_model` the model and
    tokenizer are None, and the digest is empty.
    """
    path = Path(config.questions_path)
    known = [one for one in ("train", OPEN) if has_split(path, one)]
    taught = [one for one in options.taught if one in known]
    if training and not taught and shipped_path(path.parent).is_dir():
        raise QuestionLoadError(
            f"{path.parent} has no training questions ({path.name}): name other data with --data, "
            f"or measure a model on it with 'python -m trainer evaluate --data {config.data_dir}'"
        )
    # a missing file has its own error
    needed = known or (["train"] if training else [])
    train_questions = [question for one in needed for question in load_split(path, one)]
    eval_questions: Sequence[AnyQuestion] = []
    evaluation: Sequence[PromptRow] = []
    if split is not None:
        if known and not has_split(path, split):
            remedy = "--eval-questions" if split == "eval" else "--questions"
            raise QuestionLoadError(
                f"{path.parent} has no {split} questions ({split_path(path, split).name}) to "
                f"measure on: name other data with --data, or import some with {remedy}"
            )
        eval_questions = load_split(path, split)
        evaluation = choose(load_question_prompts(config, split), options.eval_limit)
    check_databases(config.data_dir, [*train_questions, *eval_questions])
    if training:
        check_extras(config)
    splits = taught if training else ()
    train = [row for one in splits for row in load_question_prompts(config, one)]
    if options.questions:
        train = [row for row in train if row["question_id"] in options.questions]
        if not train:
            raise QuestionLoadError(
                f"{path} has none of the {len(options.questions)} questions of --mixed: name the "
                "--data of that evaluation"
            )
    check_training_questions((row["question_id"] for row in train), config)
    model, tokenizer = load_model_and_tokenizer(config) if with_model else (None, None)
    return Inputs(
        train=train,
        evaluation=evaluation,
        book=Book(train_questions, eval_questions),
        data_digest=data_digest(config.data_dir),
        model_digest=model_digest(model) if with_model else "",
        model=model,
        tokenizer=tokenizer,
    )


def save_settings(
    run: Run,
    config: GRPOConfig,
    options: JobOptions,
    inputs: Inputs,
    metadata: ServerMetadata,
    processes: int = 1,
) -> None:
    """Write config.json; a resumed run passed `check_resumed_data` before."""
    run.checksums.unlink(missing_ok=True)  # of a finished run that continues
    named = {"command": options.command, "preset": options.preset, "options": options.saved}
    write_json(run.config, as_saved(config, inputs, metadata, **named, processes=processes))


def as_saved(
    config: GRPOConfig, inputs: Inputs, metadata: ServerMetadata, **more: Any
) -> dict[str, Any]:
    server = {"reward_version": metadata.reward_version, "server_rules": metadata.rules}
    return {**more, "config": asdict(config), **server, **_digests(config, inputs, metadata)}


def resumed_settings(
    run: Run,
    servers: tuple[str, ...],
    overrides: Mapping[str, Any],
    kind: type[JobOptions] = JobOptions,
) -> tuple[GRPOConfig, JobOptions]:
    """Return the settings of a run to resume, whose options are of a `kind`. `overrides` may hold
    `max_steps`, `FOR_MEMORY` and another `generation_url`."""
    saved = read_json(run.config)
    if isinstance(saved, dict) and (command := saved.get("command", "train")) != kind.command:
        raise RunError(
            f"{run.path} was made by 'python -m trainer {command}': resume it with that command"
        )
    if isinstance(saved, dict) and "config" in saved and (old := {*DIGESTS} - saved.keys()):
        raise RunError(
            f"{run.path} is of an older version (its config.json has no {min(old)}): resume it "
            "with the version that wrote it, or start a run without --resume"
        )
    try:
        config = GRPOConfig(**saved["config"])
        options = kind(saved["preset"], run.path.parent, servers, **saved["options"])
        if missing := {"processes"} - saved.keys():
            raise KeyError(min(missing))
    except (KeyError, TypeError, SQLEnvError) as error:
        raise RunError(f"{run.config} is not a run's settings: {error}") from error
    if changed := sorted(set(overrides) - {"max_steps", "generation_url", *FOR_MEMORY}):
        raise RunError(
            f"a resumed run keeps its settings, so {', '.join(changed)} can't change: "
            "start a run without --resume"
        )
    other = config.override(**overrides)
    if other.rollouts_per_step != config.rollouts_per_step:
        raise RunError(
            f"a resumed run keeps its {config.rollouts_per_step} rollouts per step, and "
            "per_device_train_batch_size x gradient_accumulation_steps would be "
            f"{other.rollouts_per_step}"
        )
    return other, options


def check_resumed_data(
    run: Run, inputs: Inputs, config: GRPOConfig, metadata: ServerMetadata | None = None
) -> None:
    first, servers = read_json(run.config), ", ".join(config.server_urls)
    named = {
        "data_digest": f"the data in {config.data_dir}",
        "model_digest": f"the model {config.model_name}",
        "prompt_digest": "what the model reads, or how its turns are read (by its code)",
        "server_digest": f"the environment server at {servers} (its rules, limits or SQLite)",
    }
    for name, digest in _digests(config, inputs, metadata).items():
        if first[name] != digest:
            if name == "server_digest" and metadata is not None:
                was = first.get("server_rules", {})
                parts = [part for part, now in metadata.rules.items() if was.get(part) != now]
                named[name] += f": {', '.join(parts)}"
            raise RunError(
                f"{named[name]} has changed since {run.id} started, so its results would not be "
                "comparable: start a run without --resume"
            )


def _digests(config: GRPOConfig, inputs: Inputs, metadata: ServerMetadata | None) -> dict[str, str]:
    digests = {
        "data_digest": inputs.data_digest,
        "model_digest": inputs.model_digest,
        "prompt_digest": prompt_digest(config.system_prompt),
    }
    return digests if metadata is None else {**digests, "server_digest": metadata.digest}
