"""The callback that measures and draws a run while it trains, and records both."""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from trainer.config import GRPOConfig
from trainer.errors import OOMError, RankLost
from trainer.evaluation.evaluate import Play, choose, evaluate
from trainer.evaluation.inputs import Inputs
from trainer.grpo.live.displays import REWARD, SUCCESS, TRACE, choose_display
from trainer.grpo.live.snapshot import SPLITS, Evaluations, LiveSnapshot, Trace
from trainer.run.console import Bar
from trainer.run.folder import append_lines, keep_lines, read_lines
from trainer.run.plots import Row
from trainer.runtime.ranks import Ranks

RECORD = "measured.jsonl"
EPISODES = 3  # of train, and of eval, in a measurement
TIMES = {REWARD: 100, TRACE: 10, SUCCESS: 5}  # that each part is due in a run
LEAST_STEPS = {REWARD: 1, TRACE: 10, SUCCESS: 20}  # between two of these
log = logging.getLogger(__name__)


def recorded_failures(folder: Path) -> int:
    """Count the failures of a run's live display over all its sessions; `folder` is its live/."""
    return sum("failed" in row for row in read_lines(folder / RECORD))


class LiveVisualizationCallback(TrainerCallback):  # type: ignore[misc]
    """Shows a running training: reward, success on train and eval, and whole episodes.

    `play` plays prompts greedily with the current model (`trainer.evaluation.measure.model_play`),
    from random streams of its own: weights and metrics are the same with and without this callback.
    `config` has the setting `live_view`, `inputs` the prompts, `baselines` the whole evaluations by
    phase and mode. A terminal display is drawn above `bar`. `folder` takes the record and the
    files. `rows` returns metrics.jsonl's rows, in place of TRL's log.

    It works at the start of a step, when the step before is logged and saved, and once at the end.
    A failure here never ends the training: the first one is logged, all are counted in `failures`.
    With several processes all of them play, if `play` is shared
    (`trainer.evaluation.measure.shared_play`), and the first one draws.
    """

    def __init__(
        self,
        config: GRPOConfig,
        inputs: Inputs,
        play: Play,
        *,
        baselines: Evaluations,
        folder: Path,
        bar: Bar | None = None,
        rows: Callable[[], Sequence[Row]] | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        self._config, self._book, self._play = config, inputs.book, play
        self._rows, self._ranks = rows, ranks or Ranks()
        self._evaluations = baselines
        self._record = folder / RECORD
        self._display = choose_display(config.live_view, bar, folder)
        self._prompts = {
            "train": choose(inputs.train, EPISODES),
            "eval": choose(inputs.evaluation, EPISODES),
        }
        self._points: list[Mapping[str, Any]] = []
        self._traces: list[Trace] = []
        self._started = False
        self.failures = 0

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._display is None:
            return
        with self._ranks.interruptible():
            first, self._started = not self._started, True
            if first:
                self._resume(state.global_step)
            self._show(state, all_parts=first, last=False)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # not after a training run that a signal ended
        if state.global_step >= state.max_steps and self._started:
            with self._ranks.interruptible():
                self._show(state, all_parts=True, last=True)

    def _show(self, state: Any, *, all_parts: bool, last: bool) -> None:
        """Measure what is due at this step and draw what that changes, or everything."""
        step, steps = int(state.global_step), int(state.max_steps)
        due = {
            part
            for part, times in TIMES.items()
            if last or step % max(LEAST_STEPS[part], steps // times) == 0
        }
        if due & {SUCCESS, TRACE}:
            self._try("measuring", step, lambda: self._measure(step, due))
        if self._ranks.main and (due or all_parts):
            changed = set(TIMES) if all_parts else due
            self._try("drawing", step, lambda: self._draw(state, changed))

    def _measure(self, step: int, due: set[str]) -> None:
        """Play the due questions in one batch and record the results."""
        traced = self._prompts["eval"][len(self._traces) % len(self._prompts["eval"])]
        prompts = [row for split in SPLITS for row in self._prompts[split]]
        # Lost episodes count in no rate; training itself stops if too many are lost.
        played = prompts if SUCCESS in due else [traced]
        result = evaluate(self._play, played, self._book, mode="greedy", max_lost_fraction=1.0)
        rows: list[dict[str, Any]] = []
        if SUCCESS in due:
            rates = {
                split: result.subset({str(row["question_id"]) for row in chosen}).rate().as_dict()
                for split, chosen in self._prompts.items()
            }
            rows.append({"step": step, "lost": result.lost, **rates})
        if TRACE in due:
            question_id = traced["question_id"]
            episode = result.by_question()[question_id]
            rows.append(Trace(step, self._book.text(question_id), episode).as_row())
        self._add(rows)
        if self._ranks.main:
            append_lines(self._record, rows)

    def _add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._traces += [Trace.from_row(row) for row in rows if "trace" in row]
        self._points += [row for row in rows if "train" in row]

    def _draw(self, state: Any, changed: set[str]) -> None:
        assert self._display is not None
        name = Path(self._config.model_name).name
        snapshot = LiveSnapshot(
            title=f"GRPO of {name}, seed {self._config.seed}",
            step=int(state.global_step),
            steps=int(state.max_steps),
            rows=list(self._rows() if self._rows is not None else state.log_history),
            points=tuple(self._points),
            questions={split: len(prompts) for split, prompts in self._prompts.items()},
            traces=tuple(self._traces),
            evaluations=self._evaluations,
        )
        self._display(snapshot, changed)

    def _resume(self, step: int) -> None:
        """Read the record of an earlier session and drop what is measured again from `step` on."""
        rows: list[dict[str, Any]] = []

        def read() -> None:
            try:
                keep_lines(self._record, lambda row: int(row["step"]) < step)
                rows.extend(read_lines(self._record))
            except (ValueError, KeyError, TypeError):
                # kept under another name; the run starts a new record
                self._record.replace(self._record.with_suffix(".damaged"))
                raise

        def read_safely() -> list[dict[str, Any]]:
            # An exception in the first process would leave the others waiting.
            self._try("reading its record", step, read)
            return rows

        recorded = self._ranks.first(read_safely)
        self.failures += sum("failed" in row for row in recorded)
        self._try("restoring its record", step, lambda: self._add(recorded))

    def _try(self, what: str, step: int, work: Callable[[], None]) -> None:
        try:
            work()
        except RankLost:
            raise  # the other processes are gone or about to stop
        except Exception as error:
            if isinstance(error, OOMError) and self._config.sharding != "none":
                raise  # the others may wait for this process's part of the weights
            self.failures += 1
            if self.failures == 1:
                log.warning(
                    "the live display failed at step %d, %s: %r. Training continues; further "
                    "failures are only counted",
                    *(step, what, error),
                )
            if self._ranks.main:
                row = {"step": step, "failed": what, "error": repr(error)}
                try:
                    append_lines(self._record, [row])
                except OSError as problem:
                    log.debug("can't write %s: %r", self._record, problem)
