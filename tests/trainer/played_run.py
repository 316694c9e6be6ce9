"""A run's folder as a training job leaves it, in seconds: real episodes on the real server,
policies for a model.

Its questions, queries and answers hold markup, so that a page which does not escape them shows it.
"""

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from env_server.app import create_app
from env_server.settings import Settings
from shared.client import in_process
from shared.dataset import Question, load_splits
from shared.run_stats import MODES, Mode, training_row
from tests.trainer.small_data import make_data
from trainer.config.settings import REWARD_WEIGHTS, GRPOConfig
from trainer.rollout.dataset import load_question_prompts
from trainer.rollout.episode import Episode
from trainer.rollout.generators.policies import RandomPolicy
from trainer.rollout.loop import play_episodes
from trainer.rollout.row import RolloutRow
from trainer.run.folder import Run, append_lines, write_json
from trainer.run.measurement import EvalResult
from trainer.run.records import Book, EpisodeRecord, append_records
from trainer.run.summary import build_summary

STEPS, GROUP, BUDGET = 4, 4, 5
HOSTILE = "<script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">"
HOSTILE_SQL = (
    'SELECT \'</script><script>document.title="taken"</script>\' AS "<b>bold</b>", '
    "price FROM orders"
)


class Able(RandomPolicy):
    """Right with probability `skill`, by the question's id and repeat; else random or noisy
    actions."""

    def __init__(self, questions: dict[str, Question], skill: float) -> None:
        super().__init__()
        self._questions, self._skill = questions, skill

    def act(self, episodes: Sequence[Episode]) -> list[str | None]:
        return list(map(self._one, episodes))

    def _one(self, episode: Episode) -> str | None:
        row = episode.row
        question, turn = self._questions[row.question_id], len(row.texts)
        number = int(question.question_id.rpartition("-")[2])
        if (number * 3 + row.repeat) % 6 < 6 * self._skill:
            answer = question.gold_answer
            script = [
                f"DESCRIBE: {question.tables_involved[0]}",
                f"QUERY: {question.gold_sql}",
                f"ANSWER: {answer}",
            ]
            return script[turn]
        if number % 3 == 0:
            noisy = [
                "what now? " + HOSTILE,
                f"QUERY: {HOSTILE_SQL}",
                "QUERY: select  nothing",
                "query: SELECT nothing",
            ]
            return [*noisy, f"ANSWER: {HOSTILE}"][turn]
        return self._act(episode)


def record_run(
    folder: Path, *, until: str = "end", processes: int = 1, steps: int = STEPS, curve: bool = True
) -> Path:
    """A run in `folder`/run on the data in `folder`/data. `until`: where it was stopped: before,
    train or end."""
    data_dir = make_data(folder / "data")
    _make_hostile(data_dir)
    config = GRPOConfig.preset(
        "offline",
        data_dir=data_dir,
        step_budget=BUDGET,
        num_generations=GROUP,
        max_steps=steps,
        seed=7,
    )
    splits = load_splits(data_dir)
    book = Book(splits["train"], splits["eval"])
    questions = {one.question_id: one for split in splits.values() for one in split}
    train, evaluation = (load_question_prompts(config, split) for split in ("train", "eval"))
    run = Run(folder / "run")
    results: dict[str, dict[str, EvalResult]] = {}
    with in_process(create_app(Settings(data_dir=data_dir, sql_workers=1))).sync() as client:
        metadata = client.metadata()
        digests = {
            "data": metadata.data_digest,
            "server": metadata.digest,
            "model": "aa" * 32,
            "trained_model": "bb" * 32,
        }
        settings = {"eval_limit": 0, "eval_every": None, "eval_points": 4}
        begun = {"preset": "offline", "config": asdict(config), "options": settings}
        kept = {f"{name}_digest": digests[name] for name in ("data", "server", "model")}
        write_json(run.config, {**begun, "reward_version": metadata.reward_version, **kept})

        def play_rows(rows: Sequence[Any], skill: float, seed: int) -> list[RolloutRow]:
            policy = Able(questions, skill) if skill >= 0 else RandomPolicy()
            prompts = [row["prompt"] for row in rows]
            return play_episodes(
                prompts, None, None, config, client=client, policy=policy, seed=seed
            )

        def play(
            rows: Sequence[Any], skill: float, seed: int, phase: str, mode: Mode, step: int
        ) -> tuple[EpisodeRecord, ...]:
            played = play_rows(rows, skill, seed)
            episodes = tuple(book.episode(row, phase, mode, step) for row in played)
            append_records(run, episodes)
            return episodes

        def measure(phase: str, mode: Mode, step: int, skill: float, seed: int) -> None:
            result = EvalResult(play(evaluation, skill, seed, phase, mode, step), 1.5)
            results.setdefault(phase, {})[mode] = result

        def curve_point(step: int, skill: float) -> None:
            few = {mode: play(evaluation[:4], skill, 5, "eval", mode, step) for mode in MODES}
            row: dict[str, Any] = {"step": step, "eval_n": 4, "train_s": 6.0 * step, "eval_s": 0.5}
            for mode, episodes in few.items():
                row[f"eval_{mode}_success"] = sum(one.correct for one in episodes) / 4
                row[f"eval_{mode}_reward"] = sum(one.reward or 0.0 for one in episodes) / 4
            append_lines(run.metrics, [row])

        measure("random", "sampled", 0, -1, 1)
        measure("before", "greedy", 0, 0.2, 2)
        measure("before", "sampled", 0, 0.2, 3)
        for step in range(1, steps + 1) if until != "before" else ():
            rows = [row for row in train[:4] for _ in range(GROUP)]
            skill = step / (steps + 1)
            episodes = play(rows, skill, 10 + step, "train", "sampled", step)
            append_lines(run.metrics, [_logged(step, episodes, processes)])
            if curve and step < steps:
                curve_point(step, step / (steps + 1))
        if until == "end":
            measure("after", "greedy", steps, 0.7, 2)
            measure("after", "sampled", steps, 0.7, 3)
    if until == "end":
        summary = build_summary(
            run,
            evaluations={
                phase: {mode: one.summary() for mode, one in modes.items()}
                for phase, modes in results.items()
            },
            train_steps=steps,
            wall_s=60.0,
            seed=7,
            standard="strict",
            versions={"python": "3.11", "torch": "2.13"},
            digests=digests,
            sessions=1,
            server_restarts=0,
            processes=processes,
        )
        write_json(run.summary, summary)
        run.seal()
    return run.path


def _make_hostile(data_dir: Path) -> None:
    """Markup in the words of every third question."""
    for path in (data_dir / "questions").glob("*.json"):
        questions = json.loads(path.read_text())
        for question in questions[::3]:
            question["question_text"] += f" {HOSTILE}"
        path.write_text(json.dumps(questions))


def _logged(step: int, episodes: Sequence[EpisodeRecord], processes: int) -> dict[str, Any]:
    rewards = [one.reward or 0.0 for one in episodes]
    layers = {
        f"reward_{name}": weight * statistics.fmean(getattr(one, name) or 0 for one in episodes)
        for name, weight in REWARD_WEIGHTS.items()
    }
    logged = {"step": step, "loss": 0.1 / step, "grad_norm": 0.3, "learning_rate": 3e-4}
    logged |= {"entropy": 0.5 / step, "completions/mean_length": 80.0, **layers}
    logged |= {"reward": statistics.fmean(rewards), "reward_std": statistics.stdev(rewards)}
    logged |= {"rollout_s": 4.0, "generate_s": 3.0, "env_wait_s": 0.5, "update_s": 2.0}
    logged |= {"train_s": 6.0 * step, "cpu_s": 9.0 * step, "server_cpu_s": 0.5 * step}
    waited = {"rank_wait_s": 0.25} if processes > 1 else {}
    return {**logged, **training_row(episodes), "rebuilds": 0, **waited}
