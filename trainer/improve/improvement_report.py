"""The result of an improvement: improvement.json, improvement.md and improvement.png."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shared.console import percent
from shared.dataset import load_questions, split_path
from shared.run_stats import Rate
from trainer.charts import Baseline, Chart, Point, Series, png
from trainer.config.settings import GRPOConfig, LabelsName
from trainer.run.analysis import LABEL_WEIGHT
from trainer.run.console import markdown
from trainer.run.evaluation import EvaluationResult
from trainer.run.folder import Run, write_bytes, write_json, write_text
from trainer.run.printed_tables import named, p_text
from trainer.run.records import read_records
from trainer.run.transcripts import transcripts

Result = dict[str, Any]  # improvement.json: see `result_of`
HOW: Mapping[LabelsName, str] = {
    "gold": "with gold queries",
    "rewards": "from rewards alone",
    "agreement": "from agreement alone",
}


@dataclass(frozen=True)
class Round:
    """A round's model, what it reaches on the development questions, and what it was taught."""

    number: int
    development: Rate  # success
    agreement: Rate | None  # mean share of the winning answer; None where golds or rewards count
    labels: Rate | None  # that it was taught: their number, and the share of right ones
    taught: Mapping[str, Any]  # the key sft of its summary.json; empty for the start model
    model: Path | None  # None: the start model

    @property
    def measure(self) -> Rate:
        return self.agreement or self.development


def result_of(
    settings: Mapping[str, Any],
    rounds: Sequence[Round],
    best: Round,
    phases: Sequence[Mapping[str, Any]],
    before: EvaluationResult | None,
    after: EvaluationResult | None,
) -> Result:
    """Return the content of improvement.json; `before` and `after` are None until measured.
    `phases` are the rows of phases.jsonl."""

    def spent(prefix: str = "") -> dict[str, float]:
        rows = [row for row in phases if row["phase"].startswith(prefix)]
        return {name: round(sum(row[name] for row in rows), 1) for name in ("wall_s", "cpu_s")}

    return {
        "settings": settings,
        "rounds": [
            {
                "round": one.number,
                "development": one.development,
                "winning_share": one.agreement,
                "labels": one.labels,
                "demonstrations": _by_kind(one.taught.get("demonstrations", {})),
                **spent(f"round {one.number} "),
            }
            for one in rounds
        ],
        "best_round": best.number,
        "seconds": spent(),
        "before": before,
        "after": after,
    }


def _by_kind(demonstrations: Mapping[str, int]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for source, count in demonstrations.items():
        counts[source.partition(":")[0]] += count
    return counts


def write_report(out: Path, result: Result, config: GRPOConfig) -> None:
    write_json(out / "improvement.json", result)
    write_bytes(out / "improvement.png", png(charts(result), title(result), dpi=120))
    write_text(out / "improvement.md", page(out, result, config))


def title(result: Result) -> str:
    settings = result["settings"]
    how = HOW[settings["labels"]]
    line = f"{Path(settings['model_name']).name}, expert iteration {how}"
    if (before := result["before"]) and (after := result["after"]):
        rates = (one["success"]["overall"]["success"]["rate"] or 0.0 for one in (before, after))
        line += f": {' to '.join(map(percent, rates))} of {after['questions']} eval questions"
    return line


def charts(result: Result) -> list[Chart]:
    rounds = result["rounds"]
    asked = f"{rounds[0]['development']['n']} development questions"
    names, heading = {"development": (asked, "blue")}, "Success, greedy"
    if by_agreement := result["settings"]["labels"] == "agreement":
        heading = "Agreement, not accuracy: the best round is chosen by it"
        names = {
            "winning_share": (f"mean share of the winning answer, {asked}", "blue"),
            "labels": ("labels that are right, not used", "green"),
            "development": ("success of the same attempts, not used", "violet"),
        }
    lines = [
        Series(label, points, colour)
        for name, (label, colour) in names.items()
        if (points := [_point(row["round"], row[name]) for row in rounds if known(row[name])])
    ]
    lines[1:] = [  # whiskers of one curve are readable
        replace(one, points=[Point(point.x, point.y) for point in one.points]) for one in lines[1:]
    ]
    marks = [
        _point(number, one["success"]["overall"]["success"])
        for number, one in ((0, result["before"]), (result["best_round"], result["after"]))
        if one
    ]
    if marks:
        label = "success on eval questions, before and after"
        lines.append(Series(label, marks, "orange", "diamonds"))
    shown = Chart(
        "rounds",
        heading,
        lines,
        [Baseline("start model", lines[0].points[0].y)],
        bounds=(0.0, 1.0),
        form=percent,
        x_label="round",
        note="Whiskers: 95 % Wilson intervals.",
    )
    if not by_agreement:
        return [shown]
    counts = [Point(row["round"], row["labels"]["n"]) for row in rounds if row["labels"]]
    labels = Series("labels", counts, "green", "marked")
    last, name = rounds[-1]["round"], "New labels that the round learned from"
    found = Chart("labels", name, [labels], bounds=(0.0, None), x_label="round", steps=last)
    return [shown, found]


def known(rate: Rate | None) -> bool:
    return rate is not None and rate["rate"] is not None


def _point(number: int, rate: Rate) -> Point:
    return Point(number, rate["rate"] or 0.0, *rate["ci95"])


def page(out: Path, result: Result, config: GRPOConfig) -> str:
    played, paired = "", list[tuple[str, Any]]()
    if result["before"] and (after := result["after"]):
        paired = named(after["paired"])
        questions = load_questions(split_path(config.questions_path, "eval"))
        texts = {one.question_id: one.question_text for one in questions}
        first, last = (
            {one.question_id: one for one in read_records(Run(out / name))}
            for name in ("before", f"round-{result['best_round']}/after")
        )
        played = transcripts(texts, {}, first, last, heading="Transcripts")
    about = {"title": title(result), "paired": paired, "transcripts": played, "p_text": p_text}
    about |= {"bar": LABEL_WEIGHT, "known": known}
    return markdown("improvement.md.j2", **about, **result)
