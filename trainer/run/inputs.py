"""The inputs of a job: settings, questions, databases, model, and the data of the servers."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from shared import dataset
from shared.errors import QuestionLoadError
from shared.models import ServerMetadata
from shared.shipped import shipped_path
from trainer.config.settings import GRPOConfig
from trainer.rollout.chat_codec import codec_of
from trainer.rollout.dataset import check_training_questions, load_question_prompts
from trainer.rollout.prompts import prompt_digest
from trainer.run.folder import Run, write_json
from trainer.run.measurement import PromptRow, choose
from trainer.run.records import Book
from trainer.run.summary import model_digest
from trainer.runtime.models import load_model_and_tokenizer
from trainer.runtime.precision import check_extras

# may differ between machines; data and models are compared by their digests
MACHINE_SPECIFIC = (
    *("model_name", "questions_path", "db_dir", "output_dir", "server_urls", "out", "servers"),
    *("generation_url", "base_model"),
)


@dataclass(frozen=True)
class JobOptions:
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
    """Read before a run starts, so that bad input leaves no folder behind. `model_digest` is that
    of the model as it was read: training changes `model` in place."""

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
    known = [one for one in ("train", dataset.OPEN) if dataset.has_split(path, one)]
    taught = [one for one in options.taught if one in known]
    if training and not taught and shipped_path(path.parent).is_dir():
        raise QuestionLoadError(
            f"{path.parent} has no training questions ({path.name}): name other data with --data, "
            f"or measure a model on it with 'python -m trainer evaluate --data {config.data_dir}'"
        )
    # a missing file has its own error
    needed = known or (["train"] if training else [])
    train_questions = [question for one in needed for question in dataset.load_split(path, one)]
    eval_questions: Sequence[dataset.AnyQuestion] = []
    evaluation: Sequence[PromptRow] = []
    if split is not None:
        if known and not dataset.has_split(path, split):
            remedy = "--eval-questions" if split == "eval" else "--questions"
            raise QuestionLoadError(
                f"{path.parent} has no {split} questions "
                f"({dataset.split_path(path, split).name}) to measure on: name other data with "
                f"--data, or import some with {remedy}"
            )
        eval_questions = dataset.load_split(path, split)
        evaluation = choose(load_question_prompts(config, split), options.eval_limit)
    dataset.check_databases(config.data_dir, [*train_questions, *eval_questions])
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
    if with_model:
        codec_of(tokenizer, config.thinking)  # raises where its template can't be played
    return Inputs(
        train=train,
        evaluation=evaluation,
        book=Book(train_questions, eval_questions),
        data_digest=dataset.data_digest(config.data_dir),
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
    run.checksums.unlink(missing_ok=True)  # of a finished run that continues
    named = {"command": options.command, "preset": options.preset, "options": options.saved}
    write_json(run.config, as_saved(config, inputs, metadata, **named, processes=processes))


def as_saved(
    config: GRPOConfig, inputs: Inputs, metadata: ServerMetadata, **more: Any
) -> dict[str, Any]:
    server = {"reward_version": metadata.reward_version, "server_rules": metadata.rules}
    return {**more, "config": asdict(config), **server, **digests_of(config, inputs, metadata)}


def digests_of(
    config: GRPOConfig, inputs: Inputs, metadata: ServerMetadata | None
) -> dict[str, str]:
    digests = {
        "data_digest": inputs.data_digest,
        "model_digest": inputs.model_digest,
        "prompt_digest": prompt_digest(config.system_prompt),
    }
    return digests if metadata is None else {**digests, "server_digest": metadata.digest}
