"""The offline base model, from scratch: demonstrations over generated databases, then imitation.

A scripted policy plays the demonstrations against an environment server through the trainer's own
rollout loop, so the model is pretrained on the same kind of token rows that reinforcement learning
samples later. There are two stages: a large one by near-experts, which teaches the model to copy,
to look and to answer; then a small one by demonstrators of mixed quality, so that the base model
explores as badly as real logs do and leaves something to learn.
"""

import copy
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from shared.client import SQLEnvClient
from shared.dataset import load_questions, questions_path
from shared.errors import QuestionLoadError
from shared.models import Outcome
from shared.server_process import child_environment
from trainer.config import GRPOConfig
from trainer.presets import SAVED_AS
from trainer.pretraining.data_parallel import Task, imitate
from trainer.pretraining.imitation import PretrainConfig, Report, Row, build_model
from trainer.pretraining.induction_head import wire_induction
from trainer.pretraining.model_card import model_card
from trainer.pretraining.tokenizer import train_tokenizer
from trainer.rollout.loop import RolloutStats, play_scripted
from trainer.rollout.prompts import format_observation, get_system_prompt
from trainer.runtime.models import kept_settings
from trainer.runtime.server import SupervisedServer

TOKENIZER_EPISODES = 1500  # whose texts the tokenizer is trained on
Record = dict[str, object]


@dataclass(frozen=True)
class Stage:
    """One set of demonstrations, with its learning rates as a share of `PretrainConfig`'s peaks."""

    name: str
    databases: int
    questions: int  # per database
    noise: float  # share of demonstrations by noisy demonstrators, 0 to 1
    mixture: str = "careless"  # of noisy demonstrators: see data.domains.demonstrations
    rate: float = 1.0
    passes: float = 1.0  # over its demonstrations


EXPERT = Stage("expert", databases=900, questions=80, noise=0.03, passes=3.739)
MIXED = Stage("mixed", databases=40, questions=80, noise=0.9, mixture="guessing", rate=0.3)


def pretrain(
    out: Path,
    config: PretrainConfig | None = None,
    stages: Iterable[Stage] = (EXPERT, MIXED),
    workspace: Path | None = None,
    report: Report = print,
    processes: int = 1,
    measure: Callable[[Path], Record] | None = None,
) -> Record:
    """Write the base model to `out` and return the content of its `pretraining.json`.

    The model after an earlier stage is written beside it, to `out-<stage>`. `measure` takes a
    model's folder and returns its success, for the card. `workspace` keeps the generated databases
    for another call with the same stages and seed. `processes` share the training, one CPU core
    each; another number of them sums gradients in another order, so the weights differ slightly.
    """
    config, out = config or PretrainConfig(), Path(out)
    with tempfile.TemporaryDirectory(prefix="sqlenv-pretrain-") as scratch:
        root = Path(workspace or scratch)
        log_path = root / "server.log"
        folders = [
            (stage, generate(root, stage, config.seed + index, report))
            for index, stage in enumerate(stages)
        ]
        last, first_data = folders[-1][0], folders[0][1]
        with SupervisedServer(first_data, log_path) as server:
            texts = sample_texts(first_data, server.url, TOKENIZER_EPISODES)
            tokenizer = train_tokenizer(texts, config.vocab_size, config.window_tokens)
        model = build_model(config, tokenizer)
        wire_induction(model, config.seed)
        stage_records: list[Record] = []
        record: Record = {
            "config": asdict(config),
            "torch": torch.__version__,
            "processes": processes,
            "stages": stage_records,
        }
        for stage, data_dir in folders:
            start = time.perf_counter()
            stats = RolloutStats()
            rows = play_demonstrations(data_dir, tokenizer, log_path, stats)
            report(
                f"{stage.name}: {len(rows):,} episodes, {sum(len(row.ids) for row in rows):,} "
                f"tokens played in {time.perf_counter() - start:.0f} s; {stats.episodes_lost} lost"
            )
            stage_config = replace(
                config,
                muon_lr=config.muon_lr * stage.rate,
                adamw_lr=config.adamw_lr * stage.rate,
                passes=config.passes * stage.passes,
            )
            task = Task(model, tokenizer, rows, stage_config)
            figures = imitate(task, processes, _with_prefix(f"{stage.name}: ", report))
            counts = {"episodes": len(rows), "episodes_lost": stats.episodes_lost}
            stage_records.append({**asdict(stage), **counts, **asdict(figures)})
            folder = out if stage is last else out.with_name(f"{out.name}-{stage.name}")
            save(model, tokenizer, folder, record)
            if measure is not None:
                stage_records[-1]["success"] = measure(folder)
                save(model, tokenizer, folder, record)
    return record


def save(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, out: Path, record: Record
) -> None:
    """Write the model as `write_model` does, with the record and the card."""
    setattr(model.config, SAVED_AS, kept_settings(GRPOConfig.preset("offline")))
    write_model(model, tokenizer, out)
    (out / "README.md").write_text(model_card(record, out.name))
    (out / "pretraining.json").write_text(json.dumps(record, indent=2) + "\n")


def write_model(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, out: Path) -> None:
    """Write a model that ships: Hugging Face's layout, in bfloat16."""
    out.mkdir(parents=True, exist_ok=True)
    copy.deepcopy(model).to(torch.bfloat16).save_pretrained(out)
    (out / "model.safetensors").chmod(0o644)
    tokenizer.save_pretrained(out)


def generate(root: Path, stage: Stage, seed: int, report: Report) -> Path:
    """Return the stage's data directory below `root`; generate it if it doesn't exist."""
    size = f"{stage.databases}x{stage.questions}"
    out = root / f"{stage.name}-{size}-noise{stage.noise:g}-{stage.mixture}-seed{seed}"
    if not (out / "questions" / "demonstrations.json").is_file():
        report(f"generating {stage.databases} databases for {out.name}")
        command = [sys.executable, "-m", "data", "generate", "--out", str(out), "--seed", str(seed)]
        command += ["--databases", str(stage.databases), "--questions", str(stage.questions)]
        command += ["--noise", str(stage.noise), "--mixture", stage.mixture]
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
    data_dir: Path, tokenizer: PreTrainedTokenizerFast, log_path: Path, stats: RolloutStats
) -> list[Row]:
    """Play every demonstration of a data directory against a server; return the token rows.

    Episodes lost to infrastructure are left out, and counted in `stats`.
    """
    with SupervisedServer(data_dir, log_path) as server:
        config = GRPOConfig.preset("offline", server_urls=[server.url], data_dir=data_dir)
        played = play_scripted(load_scripts(data_dir), tokenizer, config, stats=stats)
    questions = load_questions(questions_path(data_dir, "train"))
    easy = {question.question_id for question in questions if question.difficulty == "easy"}
    return [
        Row(
            ids=row.prompt_ids + row.completion_ids,
            learn=[0] * len(row.prompt_ids) + row.env_mask,
            easy=row.question_id in easy,
        )
        for row in played
        if row.outcome != Outcome.INFRA_FAILED
    ]


def _with_prefix(prefix: str, report: Report) -> Report:
    return lambda line: report(prefix + line)
