"""The training job: evaluations before training, GRPO over HTTP, evaluations after it, results."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from shared.console import percent, print_line
from shared.run_files import RunSummary
from shared.run_stats import MODES, PHASES, Mode, eval_row
from trainer.charts import headline, learning_curve
from trainer.config.settings import GRPOConfig
from trainer.errors import RunError
from trainer.grpo.build_trainer import build_trainer, check_enough_questions
from trainer.grpo.generation import generation_server
from trainer.rollout.generators.policies import RandomPolicy
from trainer.rollout.loop import RolloutStats
from trainer.run.console import behaviour_table, limit_lines, number, success_table
from trainer.run.cost import known, spent
from trainer.run.folder import read_lines, to_json, write_bytes, write_text
from trainer.run.inputs import Inputs
from trainer.run.job import Job
from trainer.run.measurement import EvalResult, Play, choose, evaluate, summaries_of
from trainer.run.metrics_log import MetricsCallback, StepProgress
from trainer.run.players import batch_of, model_play, play_with, shared_play
from trainer.run.records import EpisodeRecord, Key, append_records, read_records
from trainer.run.resume import drop_after
from trainer.run.summary import model_digest
from trainer.run.transcripts import transcripts
from trainer.runtime.ranks import Ranks

CURVE_POINTS = 6  # approximate number of points of an automatic curve
SHORTEST_INTERVAL = 5  # steps between two points
NOTHING_LEARNED = (
    "nothing was learned: in every group, all episodes were right or all were wrong. Fine-tune the "
    "model first (make train WARM_START=300), or take questions that it sometimes answers right "
    "(--mixed); to learn from the costs of wrong episodes, --set skip_one_verdict_groups=false"
)


@dataclass
class GrpoJob(Job):
    def __post_init__(self) -> None:
        super().__post_init__()
        self._curve_questions = choose(self.inputs.evaluation, self.options.eval_points)

    @staticmethod
    def check(config: GRPOConfig, inputs: Inputs) -> None:
        check_enough_questions(len(inputs.train), config)

    sampled_by = staticmethod(generation_server)

    def run(self) -> RunSummary:
        base = self.inputs.model
        with self._elapsed if self.ranks.main else nullcontext():
            self._check_same_weights(self.inputs.model_digest)
            if self.sampler is not None:
                self.sampler.start(base, self.folder.checkpoints / "served_weights")
            self.ranks.first(lambda: drop_after(self.folder, self._done, self._trained))
            chance = play_with(self._config, self._client, policy=RandomPolicy())
            self._measure("random", "sampled", shared_play(chance, self.ranks))
            for mode in MODES:
                self._measure("before", mode, self._play(base, mode))
            self._add_curve_point(0, self._results["before"])
            trained, steps = self._train(base)
            digest = model_digest(trained)
            self._check_same_weights(digest)
            for mode in MODES:
                self._measure("after", mode, self._play(trained, mode), steps)
            self._add_curve_point(steps, self._results["after"])
            return self.ranks.first(lambda: self._write_results(steps, digest))

    def _check_same_weights(self, digest: str) -> None:
        if len(set(self.ranks.gather(digest))) > 1:
            raise RunError(
                "the processes hold different weights: is the model the same on every machine?"
            )

    def _play(self, model: Any, mode: Mode) -> Play:
        play = model_play(model, self.inputs.tokenizer, self._config, self._client, mode)
        return shared_play(play, self.ranks)

    @cached_property
    def _earlier(self) -> dict[str, dict[str, dict[Key, EpisodeRecord]]]:
        """What earlier sessions measured on the whole eval set: phase -> mode -> episodes."""
        found: dict[str, dict[str, dict[Key, EpisodeRecord]]] = {}
        for one in read_records(self.folder, lambda phase, step: phase in PHASES):
            found.setdefault(one.phase, {}).setdefault(one.mode, {})[one.key] = one
        return found

    def _measure(self, phase: str, mode: Mode, play: Play, step: int = 0) -> None:
        title = f"{phase} ({mode})"
        found = self.ranks.first(lambda: self._earlier.get(phase, {}).get(mode, {}))
        with self._elapsed.measuring(title):
            result = self._evaluate(
                *(play, mode, self.inputs.evaluation, phase, step),
                title=title,
                console=self.console,
                found=found,
            )
        result = replace(result, wall_s=self._elapsed.measured[title])
        self._results.setdefault(phase, {})[mode] = result

    def _evaluate(
        self, play: Play, mode: Mode, questions: Sequence[Any], phase: str, step: int, **how: Any
    ) -> EvalResult:

        def keep(episodes: Sequence[EpisodeRecord]) -> None:
            if self.ranks.main:
                append_records(self.folder, episodes)

        return evaluate(
            play,
            questions,
            self.inputs.book,
            mode=mode,
            phase=phase,
            step=step,
            keep=keep,
            batch=batch_of(self.inputs.model, self._config, self.ranks),
            max_lost_fraction=self._config.max_lost_fraction,
            step_budget=self._config.step_budget,
            processes=self.ranks.count,
            **how,
        )

    def _train(self, model: Any) -> tuple[Any, int]:
        stats = RolloutStats()
        curve = EvalCallback(self.options.eval_every, self.ranks, self._measure_curve_point)

        def build(metrics: MetricsCallback, progress: StepProgress) -> Any:
            return build_trainer(
                model,
                self.inputs.tokenizer,
                self._config,
                self.inputs.train,
                client=self._client,
                stats=stats,
                on_rows=metrics.rows,
                ranks=self.ranks,
                sampler=self.sampler,
                observer=progress.plays,
                callbacks=[curve, metrics, progress],
                output_dir=str(self.folder.checkpoints),
                run_name=self.folder.id,
            )

        def note(row: Mapping[str, Any]) -> str:
            if "success" not in row:
                return ""
            text = f"reward {number(row.get('reward'))} success {percent(row['success'])}"
            return text + ", nothing to learn: all groups have one verdict" * self._idle(row)

        return self.train("GRPO", build, note, stats)

    def _idle(self, row: Mapping[str, Any]) -> bool:
        """Return whether the step of a row of metrics.jsonl left out all of its groups."""
        return self._config.skip_one_verdict_groups and row.get("one_verdict_groups", 1) == 1

    def _measure_curve_point(self, step: int) -> None:
        start, results = time.monotonic(), dict[str, EvalResult]()
        for mode in MODES:
            play = self._play(self.inputs.model, mode)
            results[mode] = self._evaluate(play, mode, self._curve_questions, "eval", step)
        self._add_curve_point(step, results, seconds=time.monotonic() - start)

    def _add_curve_point(
        self, step: int, results: Mapping[str, EvalResult], *, seconds: float = 0.0
    ) -> None:
        """Write one point of the eval curve, which took `seconds`, of the episodes of its
        questions, and redraw the curve."""
        if not self.ranks.main:
            return
        row: dict[str, Any] = {
            "step": step,
            "eval_n": len(self._curve_questions),
            "train_s": known(spent(read_lines(self.folder.metrics))["train_s"]) if step else 0.0,
            "eval_s": round(seconds, 4),
        }
        asked = {one["question_id"] for one in self._curve_questions}
        for mode, result in results.items():
            row |= eval_row(mode, (one for one in result.episodes if one.question_id in asked))
        # a resumed run writes the point of step 0 again
        lines = sorted([*read_lines(self.folder.metrics), row], key=lambda one: int(one["step"]))
        write_text(self.folder.metrics, "".join(to_json(one) + "\n" for one in lines))
        summaries = summaries_of(self._results)
        title = headline(Path(self._config.model_name).name, self._config.seed, summaries)
        curve = learning_curve(lines, summaries, title=title, steps=step)
        write_bytes(self.folder.curve, curve)

    def _write_results(self, steps: int, trained_digest: str) -> RunSummary:
        ids = [str(row["question_id"]) for row in self.inputs.evaluation]
        page = transcripts(
            {question_id: self.inputs.book.text(question_id) for question_id in ids},
            self._results["random"]["sampled"].by_question(),
            self._results["before"]["greedy"].by_question(),
            self._results["after"]["greedy"].by_question(),
            heading=f"Transcripts of {self.folder.id}",
        )
        write_text(self.folder.transcripts, page)
        summary = self.write_summary(steps, trained_digest)
        phases = summaries_of(self._results)
        title = f"Success in % on {len(ids)} eval questions, with 95 % intervals"
        self.console.print(success_table(title, phases))
        trained = {phase: phases[phase] for phase in ("before", "after")}
        self.console.print(behaviour_table("What changed in behaviour", trained))
        for line in limit_lines(summary):
            print_line(self.console, line)
        if all(self._idle(row) for row in read_lines(self.folder.metrics)):
            print_line(self.console, NOTHING_LEARNED)
        self.print_files("summary", "curve", "transcripts", "model")
        return summary


class EvalCallback(TrainerCallback):  # type: ignore[misc]
    """Calls `measure(step)` every `every` steps; 0: never; None: about `CURVE_POINTS` times. All
    processes call `measure`, which must leave the global random generators alone."""

    def __init__(self, every: int | None, ranks: Ranks, measure: Callable[[int], None]) -> None:
        self._every, self._ranks, self._measure = every, ranks, measure

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        every = self._every
        if every is None:
            every = max(SHORTEST_INTERVAL, math.ceil(state.max_steps / CURVE_POINTS))
        if every > 0 and state.global_step > 0 and state.global_step % every == 0:
            with self._ranks.interruptible():
                self._measure(state.global_step)
