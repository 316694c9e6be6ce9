"""The offline base model, from scratch: demonstrations over generated databases, then imitation.

A scripted policy plays the demonstrations against an environment server through the trainer's own
rollout loop, so the model is pretrained on the same kind of token rows that reinforcement learning
samples later.
"""

import copy
import json
import shutil
import subprocess
import sys
import tempfile
from array import array
from collections.abc import Callable, Mapping
from dataclasses import asdict
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
from trainer.presets import SAVED_AS
from trainer.pretraining.data_parallel import Task, imitate
from trainer.pretraining.imitation import PretrainConfig, Report, Row, build_model
from trainer.pretraining.induction_head import wire_induction
from trainer.pretraining.model_card import model_card
from trainer.pretraining.tokenizer import train_tokenizer
from trainer.rollout.loop import play_scripted
from trainer.rollout.prompts import format_observation, get_system_prompt
from trainer.run.folder import write_json, write_text
from trainer.runtime.models import kept_settings
from trainer.runtime.server import SupervisedServer

TOKENIZER_EPISODES = 1500  # whose texts the tokenizer is trained on
Record = dict[str, Any]


class Demonstrations(NamedTuple):
    """Played demonstrations: their token rows, how many are right, and how many were lost."""

    rows: list[Row]
    right: int
    lost: int


def pretrain(
    out: Path,
    config: PretrainConfig | None = None,
    workspace: Path | None = None,
    report: Report = print,
    processes: int = 1,
    measure: Callable[[Path], Record] = lambda folder: {},
) -> Record:
    """Write the base model to `out` and return the content of its `pretraining.json`.

    `measure` takes the model's folder and returns its success, for the card. `workspace` keeps the
    generated databases, and a checkpoint until the model is measured; another call with the same
    settings continues from them. `processes` share the training, one CPU core each; another number
    of them sums gradients in another order, so the weights differ slightly.
    """
    config = config or PretrainConfig()
    with tempfile.TemporaryDirectory(prefix="sqlenv-pretrain-") as scratch:
        root = Path(workspace or scratch)
        log_path, checkpoint = root / "server.log", root / "checkpoint.pt"
        data_dir = generate(root, config, report)
        model, tokenizer = new_model(config, data_dir, log_path)
        played = play_demonstrations(data_dir, tokenizer, log_path)
        rows = played.rows
        report(
            f"{len(rows):,} episodes, {played.right:,} of them right, "
            f"{sum(len(row.ids) for row in rows):,} tokens; {played.lost} lost"
        )
        figures = imitate(Task(model, tokenizer, rows, config, checkpoint), processes, report)
        record = {
            "config": json.loads(json.dumps(asdict(config))),  # lists for tuples, as in the file
            "torch": torch.__version__,
            "processes": processes,
            "episodes": len(rows),
            "episodes_lost": played.lost,
            "right": played.right,
            **asdict(figures),
            "success": {},
        }
        setattr(model.config, SAVED_AS, kept_settings(GRPOConfig.preset("offline")))
        write_model(model, tokenizer, out)
        _write_record(out, record)
        record["success"] = measure(out)
        _write_record(out, record)
        checkpoint.unlink(missing_ok=True)
    return record


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


def _write_record(out: Path, record: Record) -> None:
    """Write the model's card and its record."""
    write_text(out / "README.md", model_card(record, out.name))
    write_json(out / "pretraining.json", record)


def write_model(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, out: Path) -> None:
    """Write a model that ships: Hugging Face's layout, in bfloat16."""
    out.mkdir(parents=True, exist_ok=True)
    copy.deepcopy(model).to(torch.bfloat16).save_pretrained(out)
    (out / "model.safetensors").chmod(0o644)
    tokenizer.save_pretrained(out)


def generate(root: Path, config: PretrainConfig, report: Report) -> Path:
    """Return a data directory below `root`; generate it unless that was done before.

    `config.seed`, `databases`, `questions` and `noise` say what it has.
    """
    seed, databases, questions = config.seed, config.databases, config.questions
    out = root / f"data-{databases}x{questions}-noise{config.noise:g}-seed{seed}"
    if not (out / "questions" / "demonstrations.json").is_file():
        shutil.rmtree(out, ignore_errors=True)  # of an interrupted call
        report(f"generating {databases} databases for {out.name}")
        command = [sys.executable, "-m", "data", "generate", "--out", str(out), "--seed", str(seed)]
        command += ["--databases", str(databases), "--questions", str(questions)]
        command += ["--noise", str(config.noise)]
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
    # arrays, as lists of the renamed rows of all passes would take gigabytes
    rows = [
        Row(array("H", episode.ids), bytearray(episode.learn_mask), episode.question_id in easy)
        for episode in played
    ]
    right = sum(episode.outcome == Outcome.CORRECT for episode in played)
    return Demonstrations(rows, right, len(episodes) - len(played))
