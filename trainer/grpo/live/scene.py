"""What a live view shows, as numbers: curves with their bands, baselines, the latest episode. Pure
functions of it.

reward     each logged step's mean reward, its running mean, and the 95 % t interval of that running mean
success    greedy success on a few fixed questions of train and of eval, with 95 % Wilson intervals
baselines  random actions and the untrained model on the whole measured eval set
trace      one whole episode of the model as it stands
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shared.run_stats import Rate
from trainer.evaluation.evaluate import EvalResult
from trainer.run.console import counted
from trainer.run.plots import SMOOTHING_STEPS, Row, running_mean, series
from trainer.run.records import EpisodeRecord
from trainer.run.statistics import mean_interval
from trainer.run.transcripts import MARKS

SPLITS = ("train", "eval")
# of a run's measurements, and how they are called here
PHASES = {"random": "random", "before": "untrained"}
SMOOTHING = f"running mean of {SMOOTHING_STEPS} log events"
BAND = "band: 95 % t interval"
INTERVAL = "band: 95 % Wilson interval"
LEAST_VALUES = 3  # in a window, for a band: with two, t's interval is wider than any plot

# phase (random, before) -> mode (greedy, sampled) -> measurement
Baselines = Mapping[str, Mapping[str, EvalResult]]


@dataclass(frozen=True)
class Trace:
    """One episode, as it was played after `step` steps."""

    step: int
    question: str
    episode: EpisodeRecord


@dataclass(frozen=True)
class Curve:
    """`values` over `steps`; `band` has (step, low, high) where an interval is known."""

    label: str
    steps: tuple[float, ...]
    values: tuple[float, ...]
    band: tuple[tuple[float, float, float], ...] = ()


@dataclass(frozen=True)
class Level:
    """A baseline: a value that doesn't change with the steps, and its 95 % interval."""

    name: str  # random, untrained
    value: float
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class Scene:
    """All that is known at one moment. `rows` are trl's log events (or metrics.jsonl's), `points`
    the measurements: `{step, train: {rate, n, ci95}, eval: ...}`, `questions` how many of each
    split they are of."""

    title: str = ""
    step: int = 0
    steps: int = 0  # of the whole training
    rows: Sequence[Row] = ()
    points: Sequence[Row] = ()
    questions: Mapping[str, int] = field(default_factory=dict)
    traces: Sequence[Trace] = ()  # oldest first
    baselines: Baselines = field(default_factory=dict)


def reward_curves(scene: Scene) -> tuple[Curve, Curve]:
    """The reward of every log event, and its running mean with the band."""
    steps, values = series(scene.rows, "reward")
    half = SMOOTHING_STEPS // 2
    band = []
    for index, step in enumerate(steps):
        near = values[max(0, index - half) : index + half + 1]
        if len(near) >= LEAST_VALUES and (found := mean_interval(near)) is not None:
            band.append((step, *found))
    return (
        Curve("mean reward of a log event's rollouts", tuple(steps), tuple(values)),
        Curve(f"{SMOOTHING}, {BAND} of it", tuple(steps), tuple(running_mean(values)), tuple(band)),
    )


def success_curves(scene: Scene) -> dict[str, Curve]:
    """Split -> its curve. What the infrastructure lost is in no rate; a point without any rate is
    left out."""
    curves = {}
    for split in SPLITS:
        known = [
            (float(row["step"]), row[split])
            for row in scene.points
            if (row.get(split) or {}).get("n")
        ]
        curves[split] = Curve(
            f"{split}, greedy, {scene.questions.get(split, 0)} questions",
            tuple(step for step, _ in known),
            tuple(float(rate["rate"]) for _, rate in known),
            tuple((step, float(rate["ci95"][0]), float(rate["ci95"][1])) for step, rate in known),
        )
    return curves


def job_curve(scene: Scene) -> Curve | None:
    """The job's own eval curve, over more questions, where the rows hold one: greedy."""
    steps, values = series(scene.rows, "eval_greedy_success")
    if not steps:
        return None
    n = next(int(row["eval_n"]) for row in scene.rows if "eval_n" in row)
    intervals = (Rate(round(value * n), n).ci95 for value in values)
    band = tuple((step, *interval) for step, interval in zip(steps, intervals, strict=True))
    return Curve(f"eval, greedy, {n} questions", tuple(steps), tuple(values), band)


def reward_levels(scene: Scene) -> list[Level]:
    """Mean rewards of whole evaluations, sampled as training's episodes are, with t intervals over
    the episodes."""
    levels = []
    for phase, name in PHASES.items():
        result = scene.baselines.get(phase, {}).get("sampled")
        if result is not None and result.mean_reward is not None:
            rewards = [one.reward for one in result.finished if one.reward is not None]
            levels.append(Level(name, result.mean_reward, mean_interval(rewards)))
    return levels


def success_levels(scene: Scene) -> list[Level]:
    """Success of whole evaluations with Wilson intervals: greedy, as the curves are; random actions
    know no other."""
    levels = []
    for phase, name in PHASES.items():
        modes = scene.baselines.get(phase, {})
        result = modes.get("greedy") or modes.get("sampled")
        rate = result.rate() if result is not None else Rate(0, 0)
        if rate.rate is not None:
            levels.append(Level(name, rate.rate, rate.ci95))
    return levels


def level_text(level: Level, form: str) -> str:
    """`untrained 39.1% [34.4%, 43.9%]`: a baseline's name, value and interval in one number format."""
    if level.interval is None:
        return f"{level.name} {level.value:{form}}"
    low, high = level.interval
    return f"{level.name} {level.value:{form}} [{low:{form}}, {high:{form}}]"


def trace_heading(trace: Trace) -> str:
    one, after = trace.episode, counted(trace.step, "step")
    return (
        f"After {after}, greedy: {one.question_id} on {one.database} ({one.part}), {one.difficulty}"
    )


def trace_verdict(trace: Trace) -> str:
    """How it ended, and what it earned."""
    one = trace.episode
    parts = {
        "correctness": one.correctness,
        "progress": one.progress,
        "operational": one.operational,
    }
    ledger = ", ".join(f"{name} {value:.2f}" for name, value in parts.items() if value is not None)
    mark = MARKS.get(one.outcome, one.outcome.replace("_", " "))
    reward = "no reward" if one.reward is None else f"reward {one.reward:.2f} ({ledger})"
    return f"{mark} after {counted(one.steps, 'step')}, {reward}"


def trace_markdown(trace: Trace) -> str:
    """The whole episode, nothing cut."""
    lines = [f"## {trace_heading(trace)}", "", *_code(trace.question), ""]
    for number, turn in enumerate(trace.episode.turns, start=1):
        lines += [f"{number}.  The agent:", "", *_code(turn.action, 8), ""]
        if turn.observation:
            lines += ["    The environment:", "", *_code(turn.observation, 8), ""]
    return "\n".join([*lines, trace_verdict(trace), ""])


def _code(text: str, indent: int = 4) -> list[str]:
    """Text as an indented code block, which shows whatever it holds."""
    return [" " * indent + line for line in text.splitlines() or [""]]


def as_row(trace: Trace, fields: Mapping[str, Any]) -> dict[str, Any]:
    """A trace as a line of the record; `fields` is its episode's `dataclasses.asdict`."""
    return {"step": trace.step, "question": trace.question, "trace": dict(fields)}


def from_row(row: Mapping[str, Any]) -> Trace:
    return Trace(int(row["step"]), str(row["question"]), EpisodeRecord.from_dict(row["trace"]))
