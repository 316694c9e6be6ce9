"""The tables of `python -m trainer evaluate`, in about 80 columns each."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console, RenderableType
from rich.markup import escape

from shared.actions import ActionType
from shared.console import percent, print_line
from shared.models import DEFAULT_STANDARD
from trainer.run.analysis import LABEL_WEIGHT, LEAST_ATTEMPTS
from trainer.run.console import number, percent_number, rate_text, table


def named(groups: Mapping[str, Any]) -> list[tuple[str, Any]]:
    first = [(name, groups[name]) for name in ("overall", "seen", "unseen")]
    return first + list(groups["by_difficulty"].items())


def success_table(groups: Mapping[str, Any], title: str) -> RenderableType:
    ks = [k for k in groups["overall"]["pass_at"] if k != "1"][-1:]
    headings = ("", "n", "success", *(f"pass@{k}" for k in ks), "steps", "tokens", "reward")
    own = groups["by_source_difficulty"].items()
    rows = [
        (
            name,
            str(group["success"]["n"]),
            rate_text(group["success"]),
            *(rate_text(group["pass_at"][k]) for k in ks),
            number(group["steps"]),
            number(group["sampled_tokens"] or None, ".0f"),
            number(group["mean_reward"]),
        )
        for name, group in [*named(groups), *((f"source: {escape(one)}", g) for one, g in own)]
        if group["episodes"]
    ]
    return table(title, headings, rows)


def attempts_table(group: Mapping[str, Any]) -> RenderableType:
    asked = group["success"]["n"]
    headings = ("k", "pass@k", "vote@k", "at least k agree", "% of all", "right %")
    rows = [
        (
            k,
            *(rate_text(group[name].get(k)) for name in ("pass_at", "vote_at")),
            str(rate["n"]),
            percent_number(rate["n"] / asked if asked else None),
            rate_text(rate),
        )
        for k, rate in group["agreement"].items()
    ]
    return table(f"Votes of attempts: {asked} questions", headings, rows)


def agreement_line(group: Mapping[str, Any]) -> str:
    share, labels = percent_number(group["winning_share"]["rate"]), group["labels"]
    line = f"the winning answer has {share} % of the attempts (mean)"
    if max(map(int, group["agreement"]), default=0) < LEAST_ATTEMPTS:
        return line
    line += f", and more than {LABEL_WEIGHT:.0%} of the weighed votes on {labels['n']} of "
    line += f"{group['success']['n']} questions"
    known = labels["rate"] is not None
    return f"{line}, of which {percent_number(labels['rate'])} % are right" if known else line


def behaviour_table(groups: Mapping[str, Any]) -> RenderableType:
    headings = ("", *ActionType, "errors", "parse failures", "repeats", "right of answers %")
    rows = [
        (
            name,
            *(number(group["actions"][kind]) for kind in ActionType),
            *map(number, (group["errors"], group["fallbacks"], group["repeats"])),
            percent_number(group["accuracy_when_answered"]),
        )
        for name, group in named(groups)
        if group["episodes"]
    ]
    return table("Actions per episode", headings, rows)


def paired_table(paired: Mapping[str, Any]) -> RenderableType:
    headings = ("", "questions", "before", "after", "difference", "gained", "lost", "p")
    rows = [
        (
            *(name, str(group["n"])),
            *map(percent_number, (group["before"], group["after"])),
            *paired_cells(group),
        )
        for name, group in named(paired)
        if group["n"]
    ]
    return table(f"Against {paired['against']}, question by question", headings, rows)


def paired_cells(group: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """Return the difference with its interval, gained, lost and p of a `compare` with questions."""
    low, high = (100 * end for end in group["ci95"])
    difference = f"{100 * group['difference']:+.1f} [{low:+.1f}, {high:+.1f}]"
    return difference, str(group["gained"]), str(group["lost"]), p_text(group["p_value"])


def p_text(p: float | None) -> str:
    """Format a p-value to two significant digits, and below 1e-4 to one; `-` for none."""
    if p is None:
        return "-"
    return f"{p:.2g}" if p >= 1e-4 else f"{p:.0e}"


def show(result: Mapping[str, Any], console: Console) -> None:
    questions = f"{result['questions']} {result['split']} questions"
    title = f"{result['label']}: success in % [95 %] on {questions}"
    if result["standard"] != DEFAULT_STANDARD:
        title += f", standard {result['standard']}"
    console.print(success_table(result["success"], title))
    if result["samples"] > 1:
        console.print(attempts_table(result["success"]["overall"]))
        print_line(console, agreement_line(result["success"]["overall"]))
    console.print(behaviour_table(result["success"]))
    if paired := result.get("paired"):
        console.print(paired_table(paired))
        if names := ", ".join(paired["differs"]):
            print_line(console, f"settings that differ: {names}")
    if (dropped := result.get("left_out")) and dropped["reasons"]:
        reasons = ", ".join(f"{count} {reason}" for reason, count in dropped["reasons"].items())
        count = sum(dropped["reasons"].values())
        share = percent(count / dropped["of"])
        print_line(console, f"the import left out {count} of {dropped['of']} ({share}): {reasons}")
    if missing := result["episodes_missing"]:
        lost = (
            f"{missing} episodes were lost to infrastructure: with --out DIR, the same command "
            "plays only them"
        )
        print_line(console, lost, style="yellow")
    if usage := result["model_server"]:
        counts = ", ".join(f"{name} {value:,}" for name, value in usage.items())
        print_line(console, f"model server: {counts}")
