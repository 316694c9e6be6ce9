"""The contents of a live display: charts of reward and success, and an episode as text.

reward     each logged step's mean reward, its running mean, the 95 % t interval of the running mean
success    greedy success on a few fixed questions of train and of eval, with 95 % Wilson intervals
baselines  random actions and the model before training on the whole eval set
trace      one whole episode of the current model
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from shared.console import counted, percent
from shared.run_stats import Rate
from trainer.config import REWARD_WEIGHTS
from trainer.evaluation.evaluate import EvalResult
from trainer.run.charts import Baseline, Chart, Point, Series, value_text
from trainer.run.plots import SMOOTHING_STEPS, Row, curve_points, mean_interval, points, smoothed
from trainer.run.records import EpisodeRecord
from trainer.run.transcripts import MARKS

SPLITS = {"train": "blue", "eval": "orange"}  # with the colours of their curves
# phase of an evaluation -> its name and colour as a baseline
BASELINES = {"random": ("random", "grey"), "before": ("before training", "ochre")}

# phase (random, before) -> mode (greedy, sampled) -> evaluation
Evaluations = Mapping[str, Mapping[str, EvalResult]]


@dataclass(frozen=True)
class Trace:
    """One episode, played after `step` training steps."""

    step: int
    question: str
    episode: EpisodeRecord

    def as_row(self) -> dict[str, Any]:
        """Return the trace as a line of measured.jsonl."""
        return {"step": self.step, "question": self.question, "trace": self.episode.model_dump()}

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> "Trace":
        episode = EpisodeRecord.model_validate(row["trace"])
        return cls(int(row["step"]), str(row["question"]), episode)


@dataclass(frozen=True)
class LiveSnapshot:
    """The state of a training run at one moment.

    `rows` are TRL's log events or those of metrics.jsonl; `points` the measurements: `{step, train:
    {rate, n, ci95}, eval: ...}`, over `questions` of each split; `traces` the episodes, oldest
    first.
    """

    title: str = ""
    step: int = 0
    steps: int = 0  # of the whole training
    rows: Sequence[Row] = ()
    points: Sequence[Row] = ()
    questions: Mapping[str, int] = field(default_factory=dict)
    traces: Sequence[Trace] = ()
    evaluations: Evaluations = field(default_factory=dict)

    @property
    def heading(self) -> str:
        return f"{self.title}: step {self.step} of {self.steps}"


# Formats of an axis and, more exact, of a baseline.
TWO_DECIMALS, WHOLE_PERCENT = "{:.2f}".format, partial(percent, digits=0)


def reward_chart(snapshot: LiveSnapshot) -> Chart:
    """Return the reward of every log event, and its running mean with the band."""
    logged = points(snapshot.rows, "reward")
    baselines = []
    for phase, (name, colour) in BASELINES.items():
        result = snapshot.evaluations.get(phase, {}).get("sampled")  # as training's episodes are
        if result is not None and result.mean_reward is not None:
            rewards = [one.reward for one in result.episodes if one.reward is not None]
            interval = mean_interval(rewards)
            text = value_text(TWO_DECIMALS, result.mean_reward, *(interval or ()))
            label = f"{name} {text}, eval set, sampled"
            baselines.append(Baseline(label, result.mean_reward, colour, interval))
    # The bands don't count for the y axis: the first ones are far wider than any value.
    shown = [*(point.y for point in logged), *(line.y for line in baselines)] or [0.0, 1.0]
    mean_label = f"running mean of {SMOOTHING_STEPS} log events"
    margin = max(0.08 * (max(shown) - min(shown)), 0.02)
    return Chart(
        "reward",
        "Reward per episode of the training rollouts",
        [
            Series("mean reward of a log event's rollouts", logged, "blue", "faint"),
            Series(f"{mean_label} (95 % t interval)", smoothed(logged), "blue", band=True),
        ],
        baselines,
        bounds=(min(shown) - margin, max(shown) + margin),
        form=TWO_DECIMALS,
        steps=snapshot.steps,
    )


def success_chart(snapshot: LiveSnapshot) -> Chart:
    """Return success on a few questions of train and eval, and the job's own eval curve.

    A point at which every episode was lost is left out.
    """
    lines = []
    for split, colour in SPLITS.items():
        rates = [
            Point(float(row["step"]), row[split]["rate"], *row[split]["ci95"])
            for row in snapshot.points
            if (row.get(split) or {}).get("n")
        ]
        label = f"{split}, greedy, {counted(snapshot.questions.get(split, 0), 'question')}"
        lines.append(Series(label, rates, colour, "marked", band=True))
    if (job := _job_curve(snapshot.rows)) is not None:
        lines.append(job)
    baselines = []
    for phase, (name, colour) in BASELINES.items():
        modes = snapshot.evaluations.get(phase, {})
        result = modes.get("greedy") or modes.get("sampled")  # random actions are sampled only
        rate = result.rate() if result is not None else Rate(0, 0)
        if rate.rate is not None:
            label = f"{name} {value_text(percent, rate.rate, *rate.ci95)}, eval set"
            baselines.append(Baseline(label, rate.rate, colour, rate.ci95))
    return Chart(
        "success",
        "Success on train and eval (95 % Wilson intervals)",
        lines,
        baselines,
        bounds=(0.0, 1.0),
        form=WHOLE_PERCENT,
        steps=snapshot.steps,
    )


def _job_curve(rows: Sequence[Row]) -> Series | None:
    """Return the job's own eval curve, over more questions, if the rows hold one: greedy."""
    measured = curve_points(rows, "greedy")
    if not measured:
        return None
    n = next(int(row["eval_n"]) for row in rows if "eval_n" in row)
    return Series(
        f"eval, greedy, {counted(n, 'question')}", measured, "violet", "dashed", band=True
    )


def trace_heading(trace: Trace) -> str:
    one, after = trace.episode, counted(trace.step, "step")
    where = f"{one.question_id} on {one.database} ({one.part}), {one.difficulty}"
    return f"After {after}, greedy: {where}"


def trace_verdict(trace: Trace) -> str:
    """Return how the episode ended, and its rewards."""
    one = trace.episode
    mark = MARKS.get(one.outcome, one.outcome.replace("_", " "))
    reward = "no reward"
    if one.reward is not None:
        layers = ", ".join(f"{name} {getattr(one, name) or 0.0:.2f}" for name in REWARD_WEIGHTS)
        reward = f"reward {one.reward:.2f} ({layers})"
    return f"{mark} after {counted(one.steps, 'step')}, {reward}"


def trace_markdown(trace: Trace) -> str:
    """Return the whole episode, uncut."""
    lines = [f"## {trace_heading(trace)}", "", *_code(trace.question), ""]
    for number, turn in enumerate(trace.episode.turns, start=1):
        lines += [f"{number}.  The agent:", "", *_code(turn.action, 8), ""]
        if turn.observation:
            lines += ["    The environment:", "", *_code(turn.observation, 8), ""]
    return "\n".join([*lines, trace_verdict(trace), ""])


def _code(text: str, indent: int = 4) -> list[str]:
    """Return text as an indented code block, which shows any content as it is."""
    return [" " * indent + line for line in text.splitlines() or [""]]
