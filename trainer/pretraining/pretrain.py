"""The offline base model, from scratch: demonstrations over generated databases, then imitation.

A scripted policy plays the demonstrations against an environment server through the trainer's own
rollout loop, so the model is pretrained on the same kind of token rows that reinforcement learning
samples later. The demonstrators are the same in both stages. In the first, names are short, and a
model learns to look, to query and to answer; in the second, names have up to five tokens and
resemble each other, and it learns to copy them.
"""

import copy
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from transformers import PreTrainedModel, PreTrainedTokenizerFast, Qwen3ForCausalLM

from shared.client import SQLEnvClient
from shared.dataset import load_questions, questions_path
from shared.models import Outcome
from shared.server_process import child_environment
from trainer.config.presets import SAVED_AS
from trainer.config.settings import ConfigError, GRPOConfig
from trainer.pretraining.imitation import PretrainConfig, Row, fit, plan_passes
from trainer.pretraining.model import build_model, train_tokenizer, wire_induction
from trainer.pretraining.symbol_renaming import find_symbols
from trainer.rollout.dataset import load_question_prompts
from trainer.rollout.loop import play_scripted
from trainer.rollout.prompts import format_observation, get_system_prompt
from trainer.run.console import markdown
from trainer.run.evaluation import EvaluationSettings, run_evaluation
from trainer.run.folder import begin_or_resume, read_json, write_json, write_text
from trainer.run.measurement import choose
from trainer.runtime.models import kept_settings
from trainer.runtime.server import SupervisedServer

TOKENIZER_EPISODES = 1500  # whose texts the tokenizer is trained on
RECORD = "pretraining.json"
Record = dict[str, Any]
TRIES = 8  # sampled episodes per question


@dataclass(frozen=True)
class Stage:
    """One set of demonstrations, with its learning rates as a share of `PretrainConfig`'s peaks,
    and in `renaming` the fields of it that differ."""

    name: str
    databases: int
    questions: int  # per database
    noise: float = 0.03  # share of demonstrations by careless demonstrators, 0 to 1
    rate: float = 1.0
    passes: float = 1.0  # over its demonstrations
    renaming: Mapping[str, Any] = field(default_factory=dict)


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
    config: PretrainConfig,
    stages: Sequence[Stage] = (SHORT, LONG),
    *,
    measure: Callable[[Path], Record],
) -> Record:
    """Write the base model to `out` and return the content of its `pretraining.json`.

    `measure` takes a model's folder and returns its success, for the card. Until the end
    `out/.pretraining` keeps the generated databases and the model after each stage: an interrupted
    call with the same settings continues after its last whole stage.
    """
    out = out.absolute()
    root, log_path = out / ".pretraining", out / ".pretraining" / "server.log"
    record: Record = {"config": asdict(config), "torch": torch.__version__, "stages": []}
    settings = {**record, "stages": [asdict(stage) for stage in stages]}
    begin_or_resume(root / "settings.json", settings)
    folder, previous = root, root
    for number, stage in enumerate(stages, start=1):
        folder, previous = root / f"{number}-{stage.name.replace(' ', '-')}", folder
        if (folder / RECORD).is_file():
            print(f"{stage.name}: trained before, in {folder}")
            record = read_json(folder / RECORD)
        else:
            data_dir = root / f"data-{number}"
            generate(data_dir, stage, config.seed + number - 1)
            if number == 1:
                with SupervisedServer(data_dir, log_path) as server:
                    texts = sample_texts(data_dir, server.url, TOKENIZER_EPISODES)
                tokenizer = train_tokenizer(texts, config.vocab_size, config.window_tokens)
                model = build_model(config, tokenizer)
                wire_induction(model, config.seed)
            else:
                model = Qwen3ForCausalLM.from_pretrained(previous, dtype=torch.float32)
                tokenizer = PreTrainedTokenizerFast.from_pretrained(previous)
            rows, counts = play_demonstrations(data_dir, tokenizer, log_path)
            print(f"{stage.name}: {len(rows):,} episodes, {counts['right']:,} of them right")
            figures = imitate(model, tokenizer, rows, config, stage)
            record["stages"].append({**asdict(stage), **counts, **figures})
            setattr(model.config, SAVED_AS, kept_settings(GRPOConfig.preset("offline")))
            write_model(model, tokenizer, folder)
            write_json(folder / RECORD, record)
        if "success" not in record["stages"][-1]:
            record["stages"][-1]["success"] = measure(folder)
            write_json(folder / RECORD, record)
    shutil.copytree(folder, out, dirs_exist_ok=True)
    shutil.rmtree(root)
    record = read_json(out / RECORD)
    write_text(out / "README.md", model_card(record, out.name))
    return record


def imitate(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    rows: Sequence[Row],
    config: PretrainConfig,
    stage: Stage,
) -> dict[str, float]:
    config = replace(
        config,
        muon_lr=config.muon_lr * stage.rate,
        adamw_lr=config.adamw_lr * stage.rate,
        passes=config.passes * stage.passes,
        **stage.renaming,
    )
    change = partial(find_symbols(rows, tokenizer).rename_some, config)
    return fit(model, plan_passes(rows, config), config, tokenizer.pad_token_id, change)


def write_model(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    copy.deepcopy(model).to(torch.bfloat16).save_pretrained(out)
    (out / "model.safetensors").chmod(0o644)
    tokenizer.save_pretrained(out)


def generate(out: Path, stage: Stage, seed: int) -> None:
    if (out / "questions" / "demonstrations.json").is_file():
        return
    shutil.rmtree(out, ignore_errors=True)  # of an interrupted call
    print(f"generating {stage.databases} databases")
    command = [sys.executable, "-m", "data", "generate", "--out", str(out), "--seed", str(seed)]
    command += ["--databases", str(stage.databases), "--questions", str(stage.questions)]
    command += ["--noise", str(stage.noise)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=child_environment())


def load_scripts(data_dir: Path) -> dict[str, list[str]]:
    scripts = read_json(data_dir / "questions" / "demonstrations.json")
    return {question_id: list(script["actions"]) for question_id, script in scripts.items()}


def sample_texts(data_dir: Path, url: str, episodes: int) -> list[str]:
    """Return what a model reads and writes in `episodes` episodes, spread over the databases."""
    scripts = load_scripts(data_dir)
    ids = list(scripts)
    texts = [get_system_prompt("short"), "system\n", "user\n", "assistant\n"]
    with SQLEnvClient(url).sync() as client:
        for question_id in ids[:: max(1, len(ids) // episodes)]:
            budget = len(scripts[question_id])
            reply = client.reset(question_id=question_id, step_budget=budget, explain=[])
            texts.append(format_observation(reply, "short"))
            for action in scripts[question_id]:
                texts.append(action)
                texts.append(format_observation(client.step(reply.episode_id, action), "short"))
    return texts


def play_demonstrations(
    data_dir: Path, tokenizer: PreTrainedTokenizerFast, log_path: Path
) -> tuple[list[Row], dict[str, int]]:
    """Play every demonstration of a data directory against a server; return the rows and how many
    episodes there are, are right, and were lost to infrastructure, which are left out."""
    with SupervisedServer(data_dir, log_path) as server:
        config = GRPOConfig.preset("offline", server_urls=[server.url], data_dir=data_dir)
        episodes = play_scripted(load_scripts(data_dir), tokenizer, config)
    questions = load_questions(questions_path(data_dir, "train"))
    easy = {question.question_id for question in questions if question.difficulty == "easy"}
    rows = [
        Row(ids=episode.ids, learn=episode.learn_mask, easy=episode.question_id in easy)
        for episode in episodes
        if episode.outcome != Outcome.INFRA_FAILED
    ]
    right = sum(episode.outcome == Outcome.CORRECT for episode in episodes)
    lost = len(episodes) - len(rows)
    return rows, {"episodes": len(rows), "episodes_lost": lost, "right": right}


def model_card(record: Mapping[str, Any], name: str = "sqlenv-tiny") -> str:
    return markdown("model_card.md.j2", name=name, rate_text=rate_text, **record)


def rate_text(rate: Mapping[str, Any]) -> str:
    low, high = rate["ci95"]
    return f"{100 * rate['rate']:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def unseen_success(config: GRPOConfig, console: Console, eval_limit: int = 0) -> dict[str, Any]:
    """Return the success of `config.model_name` on the eval questions about unseen databases: n
    (questions), greedy and sampled (`{rate, n, ci95}`), and pass_at_8. With `eval_limit`, these are
    of the questions that a run with this option plays."""
    rows = choose(load_question_prompts(config, "eval"), eval_limit)
    trained = {one.database_name for one in load_questions(Path(config.questions_path))}
    unseen = tuple(row["question_id"] for row in rows if row["database_name"] not in trained)
    if not unseen:
        raise ConfigError("no eval question is about an unseen database")
    asked: dict[str, Any] = {"config": config, "question_ids": unseen}
    greedy = run_evaluation(EvaluationSettings(**asked, temperature=None), console)
    sampled = run_evaluation(EvaluationSettings(**asked, samples=TRIES), console)
    tries = sampled["success"]["overall"]
    return {
        "n": greedy["questions"],
        "greedy": greedy["success"]["overall"]["success"],
        "sampled": tries["success"],
        "pass_at_8": tries["pass_at"][str(TRIES)]["rate"],
    }
