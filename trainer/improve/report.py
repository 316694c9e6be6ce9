"""The result of an improvement: improvement.json, improvement.md and improvement.png."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from shared.console import percent
from shared.dataset import load_questions
from shared.run_stats import RateSummary
from trainer.config import GRPOConfig
from trainer.evaluation.records import EvaluationFolder
from trainer.evaluation.run import EvaluationResult
from trainer.evaluation.tables import p_text
from trainer.run.charts import Baseline, Chart, Point, Series, png
from trainer.run.folder import write_bytes, write_json, write_text
from trainer.run.transcripts import Episodes, transcripts

GROUPS = ("overall", "easy", "medium", "hard")


@dataclass(frozen=True)
class Round:
    """A round's model, its success on the development questions, and what it was taught."""

    number: int
    development: RateSummary
    taught: Mapping[str, Any]  # the key sft of its summary.json; empty for the start model
    model: Path | None  # None: the start model

    @property
    def demonstrations(self) -> dict[str, int]:
        """Return the number of demonstrations by the kind of their source."""
        counts: dict[str, int] = {}
        for source, count in self.taught.get("demonstrations", {}).items():
            kind = source.partition(":")[0]
            counts[kind] = counts.get(kind, 0) + count
        return counts


class Result(TypedDict):
    """improvement.json."""

    settings: Mapping[str, Any]
    rounds: list[dict[str, Any]]
    best_round: int
    seconds: dict[str, float]  # wall and CPU, of all phases and sessions
    before: EvaluationResult | None  # None: not measured yet
    after: EvaluationResult | None


def result_of(
    settings: Mapping[str, Any],
    rounds: Sequence[Round],
    best: Round,
    phases: Sequence[Mapping[str, Any]],
    before: EvaluationResult | None,
    after: EvaluationResult | None,
) -> Result:
    """Return the content of improvement.json. `phases` are the rows of phases.jsonl."""

    def spent(number: int, name: str) -> float:
        of_round = (row for row in phases if row["phase"].startswith(f"round {number} "))
        return round(sum(float(row[name]) for row in of_round), 1)

    return {
        "settings": settings,
        "rounds": [
            {
                "round": one.number,
                "development": one.development,
                "demonstrations": one.demonstrations,
                "wall_s": spent(one.number, "wall_s"),
                "cpu_s": spent(one.number, "cpu_s"),
            }
            for one in rounds
        ],
        "best_round": best.number,
        "seconds": {
            name: round(sum(row[name] for row in phases), 1) for name in ("wall_s", "cpu_s")
        },
        "before": before,
        "after": after,
    }


def write_report(out: Path, result: Result, config: GRPOConfig) -> None:
    """Write the three files; `config` names the questions."""
    write_json(out / "improvement.json", result)
    write_bytes(out / "improvement.png", png([curve(result)], title(result), dpi=120))
    write_text(out / "improvement.md", page(out, result, config))


def title(result: Result) -> str:
    """Return one line: the model, the method, and success before and after."""
    settings = result["settings"]
    how = "with gold queries" if settings["gold"] else "from rewards alone"
    line = f"{Path(settings['model']).name}, expert iteration {how}"
    if (before := result["before"]) and (after := result["after"]):
        rates = (one["success"]["overall"]["success"]["rate"] or 0.0 for one in (before, after))
        line += f": {' to '.join(map(percent, rates))} of {after['questions']} eval questions"
    return line


def curve(result: Result) -> Chart:
    """Return success over the rounds: development questions, and eval questions at both ends."""
    rounds = result["rounds"]
    points = [
        Point(row["round"], row["development"]["rate"] or 0.0, *row["development"]["ci95"])
        for row in rounds
    ]
    lines = [Series(f"{rounds[0]['development']['n']} development questions", points, "blue")]
    marks = [
        Point(number, success["rate"] or 0.0, *success["ci95"])
        for number, one in ((0, result["before"]), (result["best_round"], result["after"]))
        if one and (success := one["success"]["overall"]["success"])
    ]
    if marks:
        lines.append(Series("eval questions, before and after", marks, "orange", "diamonds"))
    return Chart(
        "rounds",
        "Success, greedy",
        lines,
        [Baseline("start model", points[0].y)],
        bounds=(0.0, 1.0),
        form=percent,
        x_label="round",
        note="Whiskers: 95 % Wilson intervals.",
    )


def page(out: Path, result: Result, config: GRPOConfig) -> str:
    """Return improvement.md: success before and after, the rounds, cost and transcripts."""
    lines = [f"# {title(result)}", "", "![Success over the rounds](improvement.png)", ""]
    if (before := result["before"]) and (after := result["after"]):
        lines += _success(before, after)
    lines += ["| round | development questions right in % | demonstrations | hours | CPU-hours |"]
    lines += ["|---|---|---|---|---|"]
    for row in result["rounds"]:
        taught = ", ".join(f"{n} {kind}" for kind, n in row["demonstrations"].items()) or "-"
        best = " (best)" if row["round"] == result["best_round"] else ""
        hours = " | ".join(f"{row[name] / 3600:.1f}" for name in ("wall_s", "cpu_s"))
        lines.append(f"| {row['round']}{best} | {_rate(row['development'])} | {taught} | {hours} |")
    wall, cpu = (result["seconds"][name] / 3600 for name in ("wall_s", "cpu_s"))
    lines += ["", f"All of it, with the measurements: {wall:.1f} hours, {cpu:.1f} CPU-hours.", ""]
    if before and after:
        questions = load_questions(Path(config.questions_path).with_name("questions_eval.json"))
        texts = {one.question_id: one.question_text for one in questions}
        lines.append(
            transcripts(
                texts, {}, _played(out / "before"), _played(out / "after"), heading="Transcripts"
            )
        )
    return "\n".join(lines)


def _success(before: EvaluationResult, after: EvaluationResult) -> list[str]:
    """Return the table of success on the eval questions, question by question."""
    lines = [
        "| eval questions | n | before | after | gained | lost | p |",
        "|---|---|---|---|---|---|---|",
    ]
    pairs = after.get("paired")
    for name in GROUPS:
        groups = [
            one["success"]["overall"]
            if name == "overall"
            else one["success"]["by_difficulty"].get(name)
            for one in (before, after)
        ]
        paired = pairs and (
            pairs["overall"] if name == "overall" else pairs["by_difficulty"].get(name)
        )
        if all(groups) and paired:
            cells = [name, str(paired["n"]), *(_rate(one["success"]) for one in groups if one)]
            cells += [str(paired["gained"]), str(paired["lost"]), p_text(paired["p_value"])]
            lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]


def _rate(rate: RateSummary) -> str:
    low, high = (100 * end for end in rate["ci95"])
    return f"{100 * (rate['rate'] or 0.0):.1f} [{low:.0f}, {high:.0f}]"


def _played(path: Path) -> Episodes:
    """Return an evaluation's episodes by question, with what their agents read."""
    return {one.question_id: one for one in EvaluationFolder(path).records()}
