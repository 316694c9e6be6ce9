"""What a training run shows while it runs: reward, success on a few questions, whole episodes.

In a notebook they appear below the running cell and are replaced in place. Otherwise they are files
in the run's live/: live.png, traces.md, and measured.jsonl, which a resumed run reads.
"""

import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from textwrap import indent
from typing import Any, TypeVar

from transformers import TrainerCallback

from shared.console import counted
from shared.run_files import METRICS
from trainer.config import GRPOConfig
from trainer.errors import RankLost
from trainer.evaluation.evaluate import EvalResult, Play, choose, evaluate
from trainer.evaluation.inputs import Inputs
from trainer.run.charts import Point, Series, png
from trainer.run.folder import append_lines, keep_lines, read_lines, write_bytes, write_text
from trainer.run.plots import reward_chart, success_chart
from trainer.run.records import EpisodeRecord
from trainer.run.transcripts import verdict
from trainer.runtime.ranks import Ranks

T = TypeVar("T")

RECORD = "measured.jsonl"
COLOURS = {"train": "violet", "eval": "ochre"}  # of the splits that are measured
QUESTIONS = 3  # of each split in a measurement
DRAWN, MEASURED = 100, 10  # times in a run
LEAST_STEPS = 10  # between two measurements
log = logging.getLogger(__name__)


class LiveVisualizationCallback(TrainerCallback):  # type: ignore[misc]
    """Shows a running training: reward, success on train and eval, and whole episodes.

    `play` plays prompts greedily with the current model (`trainer.evaluation.measure.model_play`),
    from random streams of its own: weights and metrics are the same with and without this callback.
    `baselines` are the whole evaluations by phase and mode, `folder` is the run's live/. Several
    processes play together, and the first one draws.

    It works at the start of a step, when the step before is logged and saved, and once at the end.
    A failure here never ends the training: the first one is logged, all are counted in `failures`.
    """

    def __init__(
        self,
        config: GRPOConfig,
        inputs: Inputs,
        play: Play,
        *,
        baselines: Mapping[str, Mapping[str, EvalResult]],
        folder: Path,
        ranks: Ranks | None = None,
    ) -> None:
        self._config, self._book, self._play = config, inputs.book, play
        self._baselines, self._folder = baselines, folder
        self._ranks = ranks or Ranks()
        self._prompts = {
            "train": choose(inputs.train, QUESTIONS),
            "eval": choose(inputs.evaluation, QUESTIONS),
        }
        self._measured: list[dict[str, Any]] = []
        self._started = False
        self._cells: dict[str, Any] = {}  # what a notebook shows
        self.failures = 0

    @cached_property
    def _summaries(self) -> dict[str, dict[str, Any]]:
        return {
            phase: {mode: result.summary() for mode, result in modes.items()}
            for phase, modes in self._baselines.items()
        }

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not self._config.live_view:
            return
        step, steps = int(state.global_step), int(state.max_steps)
        with self._ranks.interruptible():
            if not self._started:
                self._started = True
                self._resume(step)
            if step % max(LEAST_STEPS, steps // MEASURED) == 0:
                self._try("measuring", step, lambda: self._measure(step))
            if step % max(1, steps // DRAWN) == 0:
                self._draw(state)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        step = int(state.global_step)
        if self._started and step >= state.max_steps:  # a signal has not ended the training
            with self._ranks.interruptible():
                self._try("measuring", step, lambda: self._measure(step))
                self._draw(state)

    def _resume(self, step: int) -> None:
        """Read the record of an earlier session and drop what is measured again from `step` on."""

        def read() -> list[dict[str, Any]]:
            keep_lines(self._folder / RECORD, lambda row: int(row["step"]) < step)
            return list(read_lines(self._folder / RECORD))

        # inside `_try`, as an exception in the first process would leave the others waiting
        rows = self._ranks.first(lambda: self._try("reading its record", step, read)) or []
        self._measured = rows

    def _measure(self, step: int) -> None:
        """Play the questions of both splits in one batch; record success and one episode."""
        played = [row for prompts in self._prompts.values() for row in prompts]
        # Lost episodes count in no rate; training itself stops if too many are lost.
        result = evaluate(self._play, played, self._book, mode="greedy", max_lost_fraction=1.0)
        rates = {
            split: result.subset({str(row["question_id"]) for row in prompts}).rate().as_dict()
            for split, prompts in self._prompts.items()
        }
        traced = self._prompts["eval"][len(self._measured) % len(self._prompts["eval"])]
        row = {
            "step": step,
            "lost": result.lost,
            **rates,
            "question": self._book.text(traced["question_id"]),
            "trace": result.by_question()[traced["question_id"]].model_dump(),
        }
        self._measured.append(row)
        if self._ranks.main:
            append_lines(self._folder / RECORD, [row])

    def _draw(self, state: Any) -> None:
        if self._ranks.main:
            shown = self._show_cells if in_notebook() else self._write_files
            self._try("drawing", int(state.global_step), lambda: shown(self._picture(state)))

    def _picture(self, state: Any) -> bytes:
        """Return the charts of reward and success as a PNG."""
        rows = list(read_lines(self._folder.parent / METRICS))
        step, steps = int(state.global_step), int(state.max_steps)
        lines = []
        for split, colour in COLOURS.items():
            rates = [(row["step"], row[split]) for row in self._measured if row[split]["n"]]
            points = [Point(at, rate["rate"], *rate["ci95"]) for at, rate in rates]
            asked = counted(len(self._prompts[split]), "question")
            lines.append(Series(f"{split}, greedy, {asked}", points, colour, "marked", band=True))
        success = success_chart(rows, self._summaries, step)
        charts = [
            reward_chart(rows, self._summaries),
            replace(success, series=[*success.series, *lines]),
        ]
        name = Path(self._config.model_name).name
        title = f"GRPO of {name}, seed {self._config.seed}: step {step} of {steps}"
        return png([replace(chart, steps=steps) for chart in charts], title)

    def _write_files(self, picture: bytes) -> None:
        write_bytes(self._folder / "live.png", picture)
        traces = "\n".join(map(trace_markdown, self._measured))
        write_text(self._folder / "traces.md", f"# Episodes of the model in training\n\n{traces}")

    def _show_cells(self, picture: bytes) -> None:
        from IPython.display import Image, Markdown, display

        shown: dict[str, Any] = {"picture": Image(picture, format="png")}
        if self._measured:
            shown["trace"] = Markdown(trace_markdown(self._measured[-1]))
        for name, content in shown.items():
            if name in self._cells:
                self._cells[name].update(content)
            else:
                self._cells[name] = display(content, display_id=True)

    def _try(self, what: str, step: int, work: Callable[[], T]) -> T | None:
        """Return what `work` returns; count a failure in place of raising it."""
        try:
            return work()
        except RankLost:
            raise  # the other processes are gone or about to stop
        except Exception as error:
            self.failures += 1
            if self.failures == 1:
                log.warning(
                    "the live view failed at step %d, %s: %r. Training continues; further "
                    "failures are only counted",
                    *(step, what, error),
                )
            return None


def in_notebook() -> bool:
    """Return whether an IPython kernel runs this process, as in Jupyter, VS Code and Colab."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return getattr(shell, "kernel", None) is not None


def trace_markdown(row: Mapping[str, Any]) -> str:
    """Return the whole episode of a row of measured.jsonl, in a code block that shows any text."""
    one = EpisodeRecord.model_validate(row["trace"])
    texts = [row["question"]]
    for turn in one.turns:
        texts += [indent(turn.action, "> "), turn.observation]
    where = f"{one.question_id} on {one.database} ({one.part}), {one.difficulty}"
    heading = f"## After {counted(row['step'], 'step')}, greedy: {where}"
    block = indent("\n".join(filter(None, texts)), "    ", lambda line: True)
    return f"{heading}\n\n{block}\n\n{verdict(one)}\n"
