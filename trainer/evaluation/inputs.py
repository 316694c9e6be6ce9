"""What a job reads before it begins: settings, questions, databases, model and the servers' word on
what they serve."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from shared.dataset import check_databases, data_digest, load_questions
from shared.errors import DigestMismatch, SQLEnvError
from shared.models import ServerMetadata
from trainer.config import REWARD_WEIGHTS, GRPOConfig
from trainer.errors import RunError
from trainer.evaluation.evaluate import PromptRow, choose
from trainer.rollout.dataset import check_training_questions, load_question_prompts
from trainer.run.folder import Run, read_json, write_json
from trainer.run.records import Book
from trainer.run.summary import model_digest
from trainer.runtime.models import load_model_and_tokenizer
from trainer.runtime.optional_packages import check_extras

FOR_MEMORY = (
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "gradient_checkpointing",
)
# data and models are compared by their digests
OWN_TO_A_MACHINE = (
    "model_name",
    "questions_path",
    "db_dir",
    "output_dir",
    "server_urls",
    "out",
    "servers",
)


@dataclass(frozen=True)
class JobOptions:
    """What a job takes beside the training's own settings."""

    preset: str = "offline"
    out: Path = Path("runs")
    servers: tuple[str, ...] = ()  # none: the job starts one
    eval_limit: int = 0  # questions of the eval set; 0: all of the difficulties that are trained
    # steps between two points of the eval curve; 0: none; None: by the run's length
    eval_every: int | None = None
    eval_points: int = 32  # questions of such a point


def shared_settings(config: GRPOConfig, options: JobOptions, resume: Run | None) -> dict[str, Any]:
    """What all processes of a run must be given alike, by name. Paths and URLs may be a machine's
    own."""
    given = {**asdict(config), **asdict(options), "resume": resume.id if resume else None}
    return {name: value for name, value in given.items() if name not in OWN_TO_A_MACHINE}


@dataclass(frozen=True)
class Inputs:
    """Read before a run begins, so that bad input leaves no folder behind. `train` and `evaluation`
    are prompt rows.

    `model_digest` is the model's as it was read: training changes `model` in place.
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
    split: str = "eval",
    *,
    training: bool = True,
    with_model: bool = True,
) -> Inputs:
    """Questions, databases and model; `split` is what is measured. Errors name the path and the
    remedy.

    Without `training` there are no prompts to train on, and no question that difficulty_filter must
    leave for them. Without `with_model` the model and its tokenizer are None, and their digest is
    empty.
    """
    from transformers.utils import logging

    logging.disable_progress_bar()  # of loading and saving, between the job's own lines
    path = Path(config.questions_path)
    train_questions, eval_questions = (
        load_questions(path),
        load_questions(path.with_name(f"questions_{split}.json")),
    )
    check_databases(config.data_dir, [*train_questions, *eval_questions])
    if training:
        check_extras(config)
    train = load_question_prompts(config, "train") if training else []
    check_training_questions((row["question_id"] for row in train), config)
    evaluation = choose(load_question_prompts(config, split), options.eval_limit)
    model, tokenizer = load_model_and_tokenizer(config) if with_model else (None, None)
    return Inputs(
        train,
        evaluation,
        Book(train_questions, eval_questions, REWARD_WEIGHTS),
        data_digest(config.data_dir),
        model_digest(model) if with_model else "",
        model,
        tokenizer,
    )


def check_server_data(metadata: ServerMetadata, inputs: Inputs, config: GRPOConfig) -> None:
    """`DigestMismatch` where the servers serve other data than the run reads its questions from."""
    if metadata.data_digest != inputs.data_digest:
        raise DigestMismatch(
            f"the server at {', '.join(config.server_urls)} serves other data (digest {metadata.data_digest[:12]}) "
            f"than {config.data_dir} (digest {inputs.data_digest[:12]}): start it with --data {config.data_dir}, "
            "or give the trainer the server's data with --data"
        )


def save_settings(
    run: Run, config: GRPOConfig, options: JobOptions, inputs: Inputs, metadata: ServerMetadata
) -> None:
    """config.json, from which `resumed_settings` goes on. The digests stay those of the run's first
    session."""
    digests = _digests(inputs, metadata)
    run.checksums.unlink(missing_ok=True)  # a finished run that goes on
    if run.config.exists():
        first = read_json(run.config)
        digests = {name: first[name] for name in digests if name in first}
    write_json(
        run.config,
        {
            "preset": options.preset,
            "config": asdict(config),
            "options": {
                name: getattr(options, name) for name in ("eval_limit", "eval_every", "eval_points")
            },
            "reward_version": metadata.reward_version,
            **digests,
        },
    )


def resumed_settings(
    run: Run, servers: tuple[str, ...], overrides: Mapping[str, Any]
) -> tuple[GRPOConfig, JobOptions]:
    """The settings of a run that goes on. `overrides` may hold `max_steps` and `FOR_MEMORY`, which
    change how an update is computed, not what; as many rollouts must make a step."""
    saved = read_json(run.config)
    try:
        known = {one.name for one in fields(GRPOConfig)}
        config = GRPOConfig(
            **{name: value for name, value in saved["config"].items() if name in known}
        )
        options = JobOptions(saved["preset"], run.path.parent, servers, **saved["options"])
    except (KeyError, TypeError, SQLEnvError) as error:
        raise RunError(f"{run.config} is not a run's settings: {error}") from error
    changed = sorted(set(overrides) - {"max_steps", *FOR_MEMORY})
    if changed:
        raise RunError(
            f"a resumed run keeps its settings, so {', '.join(changed)} can't change: begin a run without --resume"
        )
    other = config.override(**overrides)
    if other.rollouts_per_step != config.rollouts_per_step:
        raise RunError(
            f"a resumed run keeps its {config.rollouts_per_step} rollouts a step, and "
            f"per_device_train_batch_size x gradient_accumulation_steps would be {other.rollouts_per_step}"
        )
    return other, options


def check_resumed_data(
    run: Run, inputs: Inputs, config: GRPOConfig, metadata: ServerMetadata | None = None
) -> None:
    """`RunError` naming what is no longer what the run began with: the data, the model or, where
    given, the servers.

    What the run keeps no digest of isn't compared.
    """
    first = read_json(run.config)
    named = {
        "data_digest": f"the data in {config.data_dir}",
        "model_digest": f"the model {config.model_name}",
        "server_digest": f"the environment server at {', '.join(config.server_urls)} (its rules, limits or SQLite)",
    }
    for name, digest in _digests(inputs, metadata).items():
        if first.get(name, digest) != digest:
            raise RunError(
                f"{named[name]} has changed since {run.id} began: its results would not compare"
            )


def _digests(inputs: Inputs, metadata: ServerMetadata | None) -> dict[str, str]:
    """What must stay the same for results to compare, as config.json names it."""
    found = {"data_digest": inputs.data_digest, "model_digest": inputs.model_digest}
    return found if metadata is None else {**found, "server_digest": metadata.digest}
