"""The offline base model, from scratch: demonstrations over generated databases, played over HTTP,
then imitated.

Demonstrations are episodes. A scripted policy plays them against an environment server through the
trainer's own rollout loop, so the model is pretrained on the very token rows that reinforcement
learning samples later. Two sets are used: a large one by near-experts, from which the model learns
to copy, to look and to answer; then a small one by demonstrators of mixed quality, so that the base
explores as untidily as real logs do and leaves something to learn.
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
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from shared.client import SQLEnvClient
from shared.dataset import load_questions, questions_path
from shared.errors import QuestionLoadError
from shared.models import Outcome
from trainer.config import GRPOConfig
from trainer.pretraining.data_parallel import imitate
from trainer.pretraining.imitation import PretrainConfig, Report, Row, build_model
from trainer.pretraining.induction_head import wire_induction
from trainer.pretraining.model_card import model_card
from trainer.pretraining.tokenizer import train_tokenizer
from trainer.rollout.loop import RolloutStats, play_scripted
from trainer.rollout.prompts import format_observation, get_system_prompt
from trainer.runtime.server import SupervisedServer

TOKENIZER_EPISODES = 1500  # whose texts the tokenizer is learnt from
Line = Callable[[str], None]


@dataclass(frozen=True)
class Stage:
    """One set of demonstrations and the rates it is learnt at, as shares of `PretrainConfig`'s
    peaks."""

    name: str
    databases: int
    questions: int  # a database
    noise: float  # share of demonstrations by untidy demonstrators, 0 to 1
    mixture: str = "careless"  # of untidy demonstrators: see data.domains.demonstrations
    rate: float = 1.0
    passes: float = 1.0  # over its demonstrations


EXPERT = Stage("expert", databases=900, questions=80, noise=0.03, passes=3.739)
MIXED = Stage("mixed", databases=40, questions=80, noise=0.9, mixture="guessing", rate=0.3)


def pretrain(
    out: Path,
    config: PretrainConfig | None = None,
    stages: Iterable[Stage] = (EXPERT, MIXED),
    workspace: Path | None = None,
    report: Line = print,
    processes: int = 1,
    measure: Callable[[Path], dict[str, object]] | None = None,
) -> dict[str, object]:
    """Make the base model in `out` (model, tokenizer, `pretraining.json`), and return what the last
    file holds.

    What the model was after an earlier stage is kept beside it, in `out-<stage>`. `measure` takes a
    model's folder and returns its success, for the card.

    `workspace` keeps the generated databases, so that another call with the same stages and seed
    finds them. `processes`, a CPU core each, share the work; another number of them sums in another
    order.
    """
    config = config or PretrainConfig()
    with tempfile.TemporaryDirectory(prefix="sqlenv-pretrain-") as scratch:
        root = Path(workspace or scratch)
        folders = [
            (stage, generate(root, stage, config.seed + index, report))
            for index, stage in enumerate(stages)
        ]
        first = folders[0][1]
        with SupervisedServer(first, root / "server.log") as server:
            tokenizer = train_tokenizer(
                sample_texts(first, server.url, TOKENIZER_EPISODES),
                config.vocab_size,
                config.window_tokens,
            )
        model = build_model(config, tokenizer)
        wire_induction(model, config.seed)
        stage_records: list[dict[str, object]] = []
        record: dict[str, object] = {
            "config": asdict(config),
            "torch": torch.__version__,
            "processes": processes,
            "stages": stage_records,
        }
        last = folders[-1][0]
        for stage, data_dir in folders:
            began = time.perf_counter()
            stats = RolloutStats()
            rows = play_demonstrations(data_dir, tokenizer, root / "server.log", stats)
            report(
                f"{stage.name}: {len(rows):,} episodes, {sum(len(row.ids) for row in rows):,} tokens "
                f"played in {time.perf_counter() - began:.0f} s; {stats.episodes_lost} lost"
            )
            its_config = replace(
                config,
                muon_lr=config.muon_lr * stage.rate,
                adamw_lr=config.adamw_lr * stage.rate,
                passes=config.passes * stage.passes,
            )
            figures = imitate(
                model, tokenizer, rows, its_config, processes, _reporter(stage, report)
            )
            stage_records.append(
                {
                    **asdict(stage),
                    "episodes": len(rows),
                    "episodes_lost": stats.episodes_lost,
                    **figures,
                }
            )
            folder = (
                Path(out)
                if stage is last
                else Path(out).with_name(f"{Path(out).name}-{stage.name}")
            )
            save(model, tokenizer, folder, record)
            if measure is not None:
                stage_records[-1]["success"] = measure(folder)
                save(model, tokenizer, folder, record)
    return record


def save(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, out: Path, record: Mapping[str, Any]
) -> None:
    """Write `out` in Hugging Face's layout, weights in bfloat16, with the record and the card
    beside them."""
    out.mkdir(parents=True, exist_ok=True)
    copy.deepcopy(model).to(torch.bfloat16).save_pretrained(out)
    (out / "model.safetensors").chmod(0o644)
    tokenizer.save_pretrained(out)
    (out / "README.md").write_text(model_card(record, out.name))
    (out / "pretraining.json").write_text(json.dumps(record, indent=2) + "\n")


def generate(root: Path, stage: Stage, seed: int, report: Line) -> Path:
    """A data directory of fresh databases with demonstrations, made by `python -m data generate`
    unless it is there."""
    out = (
        root
        / f"{stage.name}-{stage.databases}x{stage.questions}-noise{stage.noise:g}-{stage.mixture}-seed{seed}"
    )
    if not (out / "questions" / "demonstrations.json").is_file():
        report(f"generating {stage.databases} databases for {out.name}")
        command = [sys.executable, "-m", "data", "generate", "--out", str(out), "--seed", str(seed)]
        command += ["--databases", str(stage.databases), "--questions", str(stage.questions)]
        command += ["--noise", str(stage.noise), "--mixture", stage.mixture]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return out


def load_scripts(data_dir: Path) -> dict[str, list[str]]:
    """Action texts by question id, or `QuestionLoadError` naming the file."""
    path = Path(data_dir) / "questions" / "demonstrations.json"
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise QuestionLoadError(
            f"can't read demonstrations at {path}: {error}; make a set with 'python -m data generate --out DIR'"
        ) from error
    return {question_id: list(entry["actions"]) for question_id, entry in found.items()}


def sample_texts(data_dir: Path, url: str, episodes: int) -> list[str]:
    """What a model reads and writes in the first episodes of a set, spread over its databases."""
    scripts = load_scripts(data_dir)
    ids = list(scripts)
    chosen = ids[:: max(1, len(ids) // episodes)]
    texts = [get_system_prompt("short"), "system\n", "user\n", "assistant\n"]
    with SQLEnvClient(url).sync() as client:
        for question_id in chosen:
            reply = client.reset(question_id=question_id, step_budget=len(scripts[question_id]))
            texts.append(format_observation(reply.observation))
            for action in scripts[question_id]:
                texts.append(action)
                texts.append(format_observation(client.step(reply.episode_id, action).observation))
    return texts


def play_demonstrations(
    data_dir: Path, tokenizer: PreTrainedTokenizerFast, log_path: Path, stats: RolloutStats
) -> list[Row]:
    """Every scripted episode of a data directory as a token row, played against a server of its
    own.

    An episode that infrastructure took teaches nothing and is left out; `stats` counts it.
    """
    scripts = load_scripts(data_dir)
    with SupervisedServer(data_dir, log_path) as server:
        config = GRPOConfig.preset("offline", server_urls=[server.url], data_dir=data_dir)
        played = play_scripted(scripts, tokenizer, config, stats=stats)
    easy = {
        q.question_id
        for q in load_questions(questions_path(data_dir, "train"))
        if q.difficulty == "easy"
    }
    return [
        Row(ids=row.ids, learn=row.learn_mask, easy=row.question_id in easy)
        for row in played
        if row.outcome != Outcome.INFRA_FAILED
    ]


def _reporter(stage: Stage, report: Line) -> Report:
    def line(at: dict[str, float]) -> None:
        report(
            f"{stage.name}: batch {at['step']:.0f} of {at['steps']:.0f}, {at['tokens'] / 1e6:.2f} M tokens, "
            f"loss {at['loss']:.3f}, {at['tokens'] / max(at['s'], 1e-9) / 1e3:.1f} k tokens/s"
        )

    return line
