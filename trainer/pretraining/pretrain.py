"""The offline base model, from scratch: demonstrations over generated databases, then imitation.

A scripted policy plays the demonstrations against an environment server through the trainer's own
rollout loop, so the model is pretrained on the same kind of token rows that reinforcement learning
samples later. The demonstrators are the same in both stages. In the first, names are short, and a
model learns to look, to query and to answer; in the second, names have up to five tokens and
resemble each other, and it learns to copy them.
"""

import copy
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerFast, Qwen3ForCausalLM

from shared.client import SQLEnvClient
from shared.dataset import load_questions, questions_path
from shared.errors import QuestionLoadError
from shared.models import Outcome
from shared.server_process import child_environment
from trainer.config import GRPOConfig
from trainer.errors import ConfigError
from trainer.presets import SAVED_AS
from trainer.pretraining.data_parallel import Task, imitate
from trainer.pretraining.imitation import PretrainConfig, Report, Row, build_model
from trainer.pretraining.induction_head import wire_induction
from trainer.pretraining.model_card import model_card
from trainer.pretraining.tokenizer import train_tokenizer
from trainer.rollout.loop import play_scripted
from trainer.rollout.prompts import format_observation, get_system_prompt
from trainer.run.folder import check_writable, write_json, write_text
from trainer.run.lock import held
from trainer.runtime.models import kept_settings
from trainer.runtime.precision import precision
from trainer.runtime.server import SupervisedServer

TOKENIZER_EPISODES = 1500  # whose texts the tokenizer is trained on
Record = dict[str, Any]


@dataclass(frozen=True)
class Stage:
    """One set of demonstrations, with its learning rates as a share of `PretrainConfig`'s peaks.

    `renaming` has the fields of `PretrainConfig` that say how names are renamed, where they differ.
    """

    name: str
    databases: int
    questions: int  # per database
    noise: float = 0.03  # share of demonstrations by careless demonstrators, 0 to 1
    rate: float = 1.0
    passes: float = 1.0  # over its demonstrations
    renaming: Mapping[str, Any] = field(default_factory=dict)


class Demonstrations(NamedTuple):
    """Played demonstrations: their token rows, how many are right, and how many were lost."""

    rows: list[Row]
    right: int
    lost: int


SHORT = Stage("short names", databases=900, questions=80, passes=3.739)
# 59 % of the schema words of databases that were never seen have three tokens or more
LONG = Stage(
    "long names",
    databases=520,
    questions=80,
    rate=0.5,
    renaming={
        "renamed_share": 0.9,
        "name_lengths": (20, 30, 25, 15, 10),
        "any_letters": True,
        "alike_share": 0.25,
    },
)


def pretrain(
    out: Path,
    config: PretrainConfig | None = None,
    stages: Sequence[Stage] = (SHORT, LONG),
    workspace: Path | None = None,
    report: Report = print,
    processes: int = 1,
    measure: Callable[[Path], Record] | None = None,
) -> Record:
    """Write the base model to `out` and return the content of its `pretraining.json`.

    `measure` takes a model's folder and returns its success, for the card. `workspace` keeps the
    generated databases, a checkpoint of a stage that is interrupted, and the model after each
    stage; another call with the same settings continues from them. By default it is a folder in
    `out` that is deleted at the end. `processes` share the training; another number of them sums
    gradients in another order, so the weights differ slightly. Raises `ConfigError` for several
    processes on a GPU, and `RunError` if a folder can't be written or if another process uses the
    workspace.
    """
    config, device = config or PretrainConfig(), precision("auto", "auto")[0]
    if processes > 1 and device != "cpu":
        raise ConfigError("pretrain uses one GPU: leave out --processes")
    out, root = out.absolute(), workspace or out / ".pretraining"
    log_path = root / "server.log"
    check_writable(out / "pretraining.json")
    check_writable(log_path)
    folder: Path | None = None
    record: Record = {"config": _as_json(asdict(config)), "torch": torch.__version__, "stages": []}
    with held(root):
        for number, stage in enumerate(stages, start=1):
            previous, folder = folder, root / f"{number}-{stage.name.replace(' ', '-')}"
            checkpoint = folder.with_suffix(".pt")
            if (stored := _stored(folder, record, stage, report)) is not None:
                report(f"{stage.name}: trained before, in {folder}")
                record["stages"].append(stored)
            else:
                # the record vouches for the model beside it: written last, removed first
                (folder / "pretraining.json").unlink(missing_ok=True)
                data_dir = generate(root, stage, config.seed + number - 1, report)
                if previous is None:
                    model, tokenizer = new_model(config, data_dir, log_path)
                else:
                    model = Qwen3ForCausalLM.from_pretrained(previous, dtype=torch.float32)
                    tokenizer = PreTrainedTokenizerFast.from_pretrained(previous)
                played = play_demonstrations(data_dir, tokenizer, log_path)
                trained = _train_stage(
                    model, tokenizer, played, stage, config, processes, report, checkpoint
                )
                record["stages"].append({**trained, "device": device, "processes": processes})
                save(model, tokenizer, folder, record)
            checkpoint.unlink(missing_ok=True)
            if measure is not None and "success" not in record["stages"][-1]:
                record["stages"][-1]["success"] = measure(folder)
                _write_record(folder, record)
        if folder is None:
            raise ValueError("stages is empty: name at least one")
        shutil.copytree(folder, out, dirs_exist_ok=True)
        write_text(out / "README.md", model_card(record, out.name))
        if workspace is None:
            shutil.rmtree(root)
    return record


def _train_stage(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    played: Demonstrations,
    stage: Stage,
    config: PretrainConfig,
    processes: int,
    report: Report,
    checkpoint: Path,
) -> Record:
    """Train the model on a stage's demonstrations, in place; return the stage's record."""
    rows = played.rows
    counts = {"episodes": len(rows), "episodes_lost": played.lost, "right": played.right}
    report(
        f"{stage.name}: {len(rows):,} episodes, {played.right:,} of them right, "
        f"{sum(len(row.ids) for row in rows):,} tokens; {played.lost} lost"
    )
    stage_config = replace(
        config,
        muon_lr=config.muon_lr * stage.rate,
        adamw_lr=config.adamw_lr * stage.rate,
        passes=config.passes * stage.passes,
        **stage.renaming,
    )
    task = Task(model, tokenizer, rows, stage_config, checkpoint)
    figures = imitate(task, processes, lambda line: report(f"{stage.name}: {line}"))
    return {**_as_json(asdict(stage)), **counts, **asdict(figures)}


def new_model(
    config: PretrainConfig, data_dir: Path, log_path: Path
) -> tuple[Qwen3ForCausalLM, PreTrainedTokenizerFast]:
    """Return a model with wired initial weights, and its tokenizer, trained on `data_dir`."""
    with SupervisedServer(data_dir, log_path) as server:
        texts = sample_texts(data_dir, server.url, TOKENIZER_EPISODES)
    tokenizer = train_tokenizer(texts, config.vocab_size, config.window_tokens)
    model = build_model(config, tokenizer)
    wire_induction(model, config.seed)
    return model, tokenizer


def _stored(folder: Path, record: Record, stage: Stage, report: Report) -> Record | None:
    """Return the stage's record if `folder` has its model after the same stages and settings."""
    path = folder / "pretraining.json"
    if not path.is_file():
        return None
    stored = json.loads(path.read_bytes())
    *earlier, last = stored["stages"]
    settings = _as_json(asdict(stage))
    found = {**stored, "stages": [_unmeasured(one) for one in earlier]}
    found |= {name: last.get(name) for name in settings}
    wanted = {**record, "stages": [_unmeasured(one) for one in record["stages"]], **settings}
    if other := [name for name in wanted if found.get(name) != wanted[name]]:
        report(f"{stage.name}: trains anew, as {folder} differs in {', '.join(other)}")
    return None if other else last


def _unmeasured(stage: Record) -> Record:
    return {name: value for name, value in stage.items() if name != "success"}


def _as_json(value: Any) -> Any:
    """Return a value as it is when it is read back from JSON: lists for tuples."""
    return json.loads(json.dumps(value))


def save(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, out: Path, record: Record
) -> None:
    """Write the model as `write_model` does, with the record and the card."""
    setattr(model.config, SAVED_AS, kept_settings(GRPOConfig.preset("offline")))
    write_model(model, tokenizer, out)
    _write_record(out, record)


def _write_record(out: Path, record: Record) -> None:
    write_text(out / "README.md", model_card(record, out.name))
    write_json(out / "pretraining.json", record)


def write_model(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, out: Path) -> None:
    """Write a model that ships: Hugging Face's layout, in bfloat16."""
    out.mkdir(parents=True, exist_ok=True)
    copy.deepcopy(model).to(torch.bfloat16).save_pretrained(out)
    (out / "model.safetensors").chmod(0o644)
    tokenizer.save_pretrained(out)


def generate(root: Path, stage: Stage, seed: int, report: Report) -> Path:
    """Return the stage's data directory below `root`; generate it unless that was done before."""
    size = f"{stage.databases}x{stage.questions}"
    out = root / f"data-{size}-noise{stage.noise:g}-seed{seed}"
    if not (out / "questions" / "demonstrations.json").is_file():
        shutil.rmtree(out, ignore_errors=True)  # of an interrupted call
        report(f"generating {stage.databases} databases for {out.name}")
        command = [sys.executable, "-m", "data", "generate", "--out", str(out), "--seed", str(seed)]
        command += ["--databases", str(stage.databases), "--questions", str(stage.questions)]
        command += ["--noise", str(stage.noise)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=child_environment())
    return out


def load_scripts(data_dir: Path) -> dict[str, list[str]]:
    """Return the demonstrated action texts by question id; raise `QuestionLoadError`."""
    path = Path(data_dir) / "questions" / "demonstrations.json"
    try:
        scripts: Mapping[str, Mapping[str, list[str]]] = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise QuestionLoadError(
            f"can't read demonstrations at {path}: {error}; "
            "create them with 'python -m data generate --out DIR'"
        ) from error
    return {question_id: list(script["actions"]) for question_id, script in scripts.items()}


def sample_texts(data_dir: Path, url: str, episodes: int) -> list[str]:
    """Return what a model reads and writes in `episodes` episodes, spread over the databases."""
    scripts = load_scripts(data_dir)
    ids = list(scripts)
    texts = [get_system_prompt("short"), "system\n", "user\n", "assistant\n"]
    with SQLEnvClient(url).sync() as client:
        for question_id in ids[:: max(1, len(ids) // episodes)]:
            reply = client.reset(question_id=question_id, step_budget=len(scripts[question_id]))
            texts.append(format_observation(reply.observation))
            for action in scripts[question_id]:
                texts.append(action)
                texts.append(format_observation(client.step(reply.episode_id, action).observation))
    return texts


def play_demonstrations(
    data_dir: Path, tokenizer: PreTrainedTokenizerFast, log_path: Path
) -> Demonstrations:
    """Play every demonstration of a data directory against a server.

    Episodes lost to infrastructure are left out, and counted.
    """
    with SupervisedServer(data_dir, log_path) as server:
        config = GRPOConfig.preset("offline", server_urls=[server.url], data_dir=data_dir)
        episodes = play_scripted(load_scripts(data_dir), tokenizer, config)
    questions = load_questions(questions_path(data_dir, "train"))
    easy = {question.question_id for question in questions if question.difficulty == "easy"}
    played = [episode for episode in episodes if episode.outcome != Outcome.INFRA_FAILED]
    rows = [
        Row(ids=episode.ids, learn=episode.learn_mask, easy=episode.question_id in easy)
        for episode in played
    ]
    right = sum(episode.outcome == Outcome.CORRECT for episode in played)
    return Demonstrations(rows, right, len(episodes) - len(played))
