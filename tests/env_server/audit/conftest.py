"""A run's folder as the trainer makes it: random actions over HTTP, lines, metrics, summary,
checksums."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from env_server.app import create_app
from env_server.audit.recompute import eval_row, training_row
from env_server.settings import Settings
from shared.client import in_process
from shared.dataset import load_splits
from shared.run_files import (
    EpisodeLine,
    checksums,
    numbered_lines,
    read_episode,
    render_checksums,
    sealed,
)
from shared.run_stats import PHASES, measurement, rates
from trainer.config.settings import GRPOConfig
from trainer.rollout.dataset import load_question_prompts
from trainer.rollout.episode import Episode
from trainer.rollout.generators.base import Policy
from trainer.rollout.generators.policies import RandomPolicy
from trainer.rollout.loop import play_episodes
from trainer.run.folder import Run
from trainer.run.measurement import choose
from trainer.run.records import Book
from trainer.run.summary import totals


@pytest.fixture(scope="session")
def run_folder(tiny_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tiny_data, tmp_path_factory.mktemp("runs") / "run")


STEPS = 2  # of training
GROUP = 3  # episodes of one question
BUDGET = 5
POINTS = 2  # questions of a point of the curve


class Mixed(RandomPolicy):
    """Random actions; noisy texts in a question's second episode, only two in its third."""

    def act(self, episodes: Sequence[Episode]) -> list[str | None]:
        return list(map(self._mixed, episodes))

    def _mixed(self, episode: Episode) -> str | None:
        row = episode.row
        noisy = ("**describe** the shop", "What now?", "QUERY: SELECT 1", "query: select no", "X")
        if row.repeat == 1:
            return noisy[len(row.texts) % len(noisy)]
        return None if row.repeat == 2 and len(row.texts) == 2 else self._act(episode)


def record(data_dir: Path, run: Path, policy: Policy | None = None, **config_json: Any) -> Path:
    """Play a run, write its folder and return it. `config_json` are more of its settings."""
    config = GRPOConfig.preset(
        "offline", data_dir=data_dir, step_budget=BUDGET, difficulty_filter="easy,medium,hard"
    )
    splits = load_splits(data_dir)
    book = Book(splits["train"], splits["eval"])
    train, evaluation = (load_question_prompts(config, split) for split in ("train", "eval"))
    app = create_app(Settings(data_dir=data_dir, **config_json))
    lines: list[dict[str, Any]] = []
    with in_process(app).sync() as client:

        def keep(phase: str, mode: str, step: int, rows: Sequence[Any], seed: int) -> None:
            prompts = [row["prompt"] for row in rows]
            played = play_episodes(
                prompts, None, None, config, client=client, policy=policy or Mixed(), seed=seed
            )
            lines.extend(book.episode(row, phase, mode, step).sealed() for row in played)

        keep("random", "sampled", 0, evaluation, 1)
        keep("before", "greedy", 0, evaluation, 2)
        keep("before", "sampled", 0, evaluation, 5)
        for step in range(1, STEPS + 1):
            keep("train", "sampled", step, [row for row in train for _ in range(GROUP)], 10 + step)
        keep("eval", "greedy", 1, choose(evaluation, POINTS), 3)
        keep("after", "greedy", STEPS, evaluation, 4)
        keep("after", "sampled", STEPS, evaluation, 6)
        metadata = client.metadata()
    run.mkdir(parents=True)
    paths = {"questions_path": config.questions_path, "db_dir": config.db_dir}
    written = {
        "config": {
            "step_budget": BUDGET,
            "standard": "strict",
            "difficulty_filter": config.difficulty_filter,
            **paths,
            **config_json,
        },
        "options": {"eval_limit": 0, "eval_points": POINTS},
        "reward_version": metadata.reward_version,
        "data_digest": metadata.data_digest,
        "server_digest": metadata.digest,
    }
    write(run / "config.json", written)
    write_lines(run / "episodes.jsonl", lines)
    write_results(run)
    return run


def write_results(run: Path) -> None:
    """Write metrics.jsonl, summary.json and SHA256SUMS as they follow from the episodes."""
    episodes = [read_episode(line) for _, line in numbered_lines(run / "episodes.jsonl")]

    def of(phase: str, step: int) -> list[EpisodeLine]:
        return [one for one in episodes if (one.phase, one.step) == (phase, step)]

    few = {one.question_id for one in of("eval", 1)}
    ends = {0: "before", STEPS: "after"}
    points = {
        step: [one for one in of(phase, step) if one.question_id in few]
        for step, phase in ends.items()
    }
    rows: list[dict[str, Any]] = [{"step": 0, **eval_row(points[0])}]
    rows += [
        {"step": step, "loss": 0.5, **training_row(of("train", step), (1.0, 0.15, 1.0))}
        for step in range(1, STEPS + 1)
    ]
    rows += [{"step": 1, **eval_row(of("eval", 1))}, {"step": STEPS, **eval_row(points[STEPS])}]
    write_lines(run / "metrics.jsonl", rows)
    measured: dict[str, dict[str, Any]] = {phase: {} for phase in PHASES}
    for phase, mode in {(one.phase, one.mode): None for one in episodes if one.phase in PHASES}:
        played = [one for one in episodes if (one.phase, one.mode) == (phase, mode)]
        measured[phase][mode] = {**measurement(played), "wall_s": 1.0}
    results = {f"eval_success_{phase}": rates(modes) for phase, modes in measured.items()}
    write(run / "summary.json", {**results, **totals(Run(run)), "evaluations": measured})
    (run / "model").mkdir(exist_ok=True)
    (run / "model" / "model.safetensors").write_bytes(bytes(range(256)))
    (run / "SHA256SUMS").write_text(render_checksums(checksums(run)))


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n")


def write_lines(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def forge(path: Path, number: int, change: Callable[[dict[str, Any]], object]) -> None:
    rows = read(path)
    change(rows[number - 1])
    rows[number - 1].pop("sha256", None)
    rows[number - 1] = sealed(rows[number - 1])
    write_lines(path, rows)
