"""What a notebook shows while it trains: reward, success on a few eval questions, episodes."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from textwrap import indent
from typing import Any

from transformers import TrainerCallback

from shared.console import counted
from shared.run_stats import success
from trainer.charts import Point, Series, png, reward_chart, success_chart
from trainer.config.settings import GRPOConfig
from trainer.run.inputs import Inputs
from trainer.run.measurement import EvalResult, Play, choose, evaluate, summaries_of
from trainer.run.records import EpisodeRecord
from trainer.run.transcripts import verdict

QUESTIONS = 4  # in a measurement
DRAWN, MEASURED = 100, 10  # times in a run
LEAST_STEPS = 10  # between two measurements
log = logging.getLogger(__name__)


class LiveVisualizationCallback(TrainerCallback):  # type: ignore[misc]
    """Redraws a picture and the latest episode below the running cell of a notebook. `play` has
    random streams of its own: training is the same with and without this callback. A failure here
    never ends the training: the first is logged, all are counted."""

    def __init__(
        self,
        config: GRPOConfig,
        inputs: Inputs,
        play: Play,
        *,
        baselines: Mapping[str, Mapping[str, EvalResult]],
    ) -> None:
        self._book, self._play = inputs.book, play
        self._name = f"GRPO of {Path(config.model_name).name}, seed {config.seed}"
        self._summaries = summaries_of(baselines)
        self._prompts = choose(inputs.evaluation, QUESTIONS)
        self._measured: list[tuple[int, EvalResult]] = []  # with their steps
        self._cells: dict[str, Any] = {}  # what the notebook shows
        self.failures = 0

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        step, steps = int(state.global_step), int(state.max_steps)
        measures = step % max(LEAST_STEPS, steps // MEASURED) == 0
        self._update(state, measures, draws=step % max(1, steps // DRAWN) == 0)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._update(state, measures=True, draws=True)

    def _update(self, state: Any, measures: bool, draws: bool) -> None:
        for wanted, work in ((measures, self._measure), (draws, self._draw)):
            try:
                if wanted:
                    work(state)
            except Exception as error:
                self.failures += 1
                if self.failures == 1:
                    log.warning(
                        "the live view failed at step %d: %r. Training continues; further "
                        "failures are only counted",
                        *(state.global_step, error),
                    )

    def _measure(self, state: Any) -> None:
        # lost episodes count in no rate; training itself stops if too many are lost
        options: dict[str, Any] = {"mode": "greedy", "max_lost_fraction": 1.0}
        result = evaluate(self._play, self._prompts, self._book, **options)
        self._measured.append((int(state.global_step), result))

    def _draw(self, state: Any) -> None:
        from IPython.display import Image, Markdown, display

        shown: dict[str, Any] = {"picture": Image(self._picture(state), format="png")}
        if self._measured:
            step, result = self._measured[-1]
            # the questions take turns
            episode = result.episodes[(len(self._measured) - 1) % len(result.episodes)]
            question = self._book.text(episode.question_id)
            shown["episode"] = Markdown(episode_markdown(step, question, episode))
        for name, content in shown.items():
            if name in self._cells:
                self._cells[name].update(content)
            else:
                self._cells[name] = display(content, display_id=True)

    def _picture(self, state: Any) -> bytes:
        step, steps = int(state.global_step), int(state.max_steps)
        rates = [(at, success(result.episodes)) for at, result in self._measured]
        points = [
            Point(at, one["rate"], *one["ci95"]) for at, one in rates if one["rate"] is not None
        ]
        label = f"{counted(len(self._prompts), 'eval question')}, greedy"
        line = Series(label, points, "violet", "marked", band=True)
        measured = success_chart(state.log_history, self._summaries, step)
        charts = [
            reward_chart(state.log_history, self._summaries),
            replace(measured, series=[*measured.series, line]),
        ]
        title = f"{self._name}: step {step} of {steps}"
        return png([replace(chart, steps=steps) for chart in charts], title)


def episode_markdown(step: int, question: str, one: EpisodeRecord) -> str:
    texts = [question]
    for action, observation in one.turns:
        texts += [indent(action, "> "), observation]
    where = f"{one.question_id} on {one.database} ({one.part}), {one.difficulty}"
    heading = f"## After {counted(step, 'step')}, greedy: {where}"
    block = indent("\n".join(filter(None, texts)), "    ", lambda line: True)
    return f"{heading}\n\n{block}\n\n{verdict(one)}\n"
