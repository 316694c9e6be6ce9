"""`LiveVisualizationCallback`: when a live view is measured and drawn, and what of it is kept in
the run's folder."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from trainer.config import GRPOConfig
from trainer.errors import RankLost
from trainer.evaluation.evaluate import BATCH, EvalResult, Play, choose, evaluate
from trainer.evaluation.inputs import Inputs
from trainer.grpo.live.scene import SPLITS, Baselines, Scene, Trace, as_row, from_row
from trainer.grpo.live.views import REWARD, SUCCESS, TRACE, View, choose_view
from trainer.run.console import Bar
from trainer.run.folder import append_lines, keep_lines, read_lines
from trainer.run.plots import Row
from trainer.runtime.ranks import Ranks

FULL_LENGTH = 500  # steps of a run whose intervals are those of the settings
RECORD = "measured.jsonl"
log = logging.getLogger(__name__)


def interval(every: int, max_steps: int) -> int:
    """Steps between two draws in a run of `max_steps`: `every` in one of `FULL_LENGTH` or more,
    less in proportion in a shorter one, never below 1; 0 stays 0, never."""
    return max(1, every * min(max_steps, FULL_LENGTH) // FULL_LENGTH) if every else 0


def recorded_failures(folder: Path) -> int:
    """How often the live view of a run failed, over all its sessions; `folder` is the run's live/."""
    return sum("failed" in row for row in read_lines(folder / RECORD))


class LiveVisualizationCallback(TrainerCallback):  # type: ignore[misc]
    """Shows a training as it goes on: reward, success on train and eval, whole episodes; see
    `trainer.grpo.live.scene`.

    `play` plays prompts greedily with the model as it stands
    (`trainer.evaluation.measure.model_play`), from random streams that are not training's: the
    trained weights and metrics are the same with and without this callback. `config` has the
    `live_*` settings, `inputs` the prompts. `baselines` are whole evaluations, phase -> mode ->
    result. `shown` is the progress bar that a terminal's view stands above. `folder` takes the
    record and a headless run's pictures; default `<output_dir>/live`. `rows` gives metrics.jsonl's
    rows, in place of trl's own log. `view` replaces the one that the settings choose.

    It works at the start of a step, when the step before is logged and saved, and once at the end.
    Nothing that fails here ends the training: the first failure is logged, all are counted in
    `failures`. Of several processes the first draws; all of them play, where `play` is theirs
    together (`trainer.evaluation.measure.shared_play`).
    """

    def __init__(
        self,
        config: GRPOConfig,
        inputs: Inputs,
        play: Play,
        *,
        baselines: Baselines | None = None,
        shown: Bar | None = None,
        folder: Path | None = None,
        rows: Callable[[], Sequence[Row]] | None = None,
        view: View | None = None,
        ranks: Ranks | None = None,
        batch: int = BATCH,
    ) -> None:
        self._config, self._book, self._play, self._rows, self._batch = (
            config,
            inputs.book,
            play,
            rows,
            batch,
        )
        self._ranks = ranks or Ranks()
        self._baselines = baselines or {}
        self._record = (folder or Path(config.output_dir) / "live") / RECORD
        self._view = view or choose_view(config.live_view, shown, self._record.parent)
        self._prompts = {
            "train": choose(inputs.train, config.live_episodes),
            "eval": choose(inputs.evaluation, config.live_episodes),
        }
        self._points: list[dict[str, Any]] = []
        self._traces: list[Trace] = []
        self._begun = False
        self.failures = 0

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._view is not None:
            with self._ranks.interruptible():
                first, self._begun = not self._begun, True
                if first:
                    self._resume(state.global_step)
                self._show(state, every_part=first, last=False)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # not of a training that a signal ended
        if state.global_step >= state.max_steps and self._begun:
            with self._ranks.interruptible():
                self._show(state, every_part=True, last=True)

    def _show(self, state: Any, *, every_part: bool, last: bool) -> None:
        """Measure what is due at this step and draw what that changes; `every_part`: draw all."""
        step, config = int(state.global_step), self._config
        due = {
            part
            for part, every in (
                (REWARD, config.live_reward_every),
                (SUCCESS, config.live_success_every),
                (TRACE, config.live_trace_every),
            )
            if every and (last or step % interval(every, state.max_steps) == 0)
        }
        if not due and not every_part:
            return
        if due & {SUCCESS, TRACE}:
            self._try("measuring", step, lambda: self._measure(step, due))
        if self._ranks.main:
            changed = {REWARD, SUCCESS, TRACE} if every_part else due
            self._try("drawing", step, lambda: self._draw(state, changed))

    def _measure(self, step: int, due: set[str]) -> None:
        """Play the due questions, all at once, and keep what came out."""
        prompts = (
            [row for split in SPLITS for row in self._prompts[split]] if SUCCESS in due else []
        )
        traced = self._prompts["eval"][len(self._traces) % len(self._prompts["eval"])]
        if TRACE in due and not prompts:
            prompts = [traced]
        result = evaluate(
            self._play, prompts, self._book, mode="greedy", batch=self._batch, max_lost_fraction=1.0
        )  # lost episodes are in no rate; training itself stops where too many are lost
        played, kept = result.by_question(), list[dict[str, Any]]()
        if SUCCESS in due:
            rates = {split: self._part(result, split).rate().as_dict() for split in SPLITS}
            kept.append({"step": step, "lost": result.lost, **rates})
            self._points.append(kept[-1])
        if TRACE in due:
            question_id = traced["question_id"]
            trace = Trace(step, self._book.text(question_id), played[question_id])
            kept.append(as_row(trace, asdict(trace.episode)))
            self._traces.append(trace)
        if self._ranks.main:
            append_lines(self._record, kept)

    def _part(self, result: EvalResult, split: str) -> EvalResult:
        return result.subset({str(row["question_id"]) for row in self._prompts[split]})

    def _draw(self, state: Any, changed: set[str]) -> None:
        assert self._view is not None
        rows = self._rows() if self._rows is not None else state.log_history
        name = Path(self._config.model_name).name
        scene = Scene(
            title=f"GRPO of {name}, seed {self._config.seed}",
            step=int(state.global_step),
            steps=int(state.max_steps),
            rows=list(rows),
            points=tuple(self._points),
            questions={split: len(prompts) for split, prompts in self._prompts.items()},
            traces=tuple(self._traces),
            baselines=self._baselines,
        )
        self._view.draw(scene, changed)

    def _resume(self, step: int) -> None:
        """Take up the record of an earlier session, but for what is played again from `step` on; it
        is dropped."""
        rows: list[dict[str, Any]] = []

        def read() -> None:
            try:
                keep_lines(self._record, lambda row: int(row["step"]) < step)
                rows.extend(read_lines(self._record))
            except (ValueError, KeyError, TypeError):
                # the run goes on with another
                self._record.replace(self._record.with_suffix(".damaged"))
                raise

        def read_safely() -> list[dict[str, Any]]:
            # the other processes would wait for one that failed
            self._try("reading its record", step, read)
            return rows

        found = self._ranks.first(read_safely)
        self._try("taking up its record", step, lambda: self._take(found))

    def _take(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self.failures += sum("failed" in row for row in rows)
        self._traces += [from_row(row) for row in rows if "trace" in row]
        self._points += [dict(row) for row in rows if SPLITS[0] in row]

    def _try(self, what: str, step: int, work: Callable[[], None]) -> None:
        try:
            work()
        except RankLost:
            raise  # the others are gone, or go too
        except Exception as error:
            self.failures += 1
            if self.failures == 1:
                log.warning(
                    "the live view failed at step %d, %s: %r. Training goes on; further failures are counted only",
                    step,
                    what,
                    error,
                )
            self._note({"step": step, "failed": what, "error": repr(error)})

    def _note(self, row: Mapping[str, Any]) -> None:
        """Write a failure into the record, unless that can't be written either."""
        if self._ranks.main:
            try:
                append_lines(self._record, [dict(row)])
            except OSError as error:
                log.debug("can't write %s: %r", self._record, error)
