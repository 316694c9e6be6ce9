"""The tables of `python -m trainer evaluate`, in about 80 columns each."""

from typing import TypeVar

from rich.console import RenderableType
from rich.markup import escape

from shared.actions import ActionType
from trainer.evaluation.analysis import ByGroup, GroupResult, Groups, PairedGroups
from trainer.run.console import number, percent_number, rate_text, table, titled

T = TypeVar("T")


def _named(groups: ByGroup[T]) -> list[tuple[str, T]]:
    """Return overall, seen, unseen and each difficulty, with its value."""
    first: list[tuple[str, T]] = [(name, groups[name]) for name in ("overall", "seen", "unseen")]
    return first + [(escape(name), group) for name, group in groups["by_difficulty"].items()]


def _results(groups: Groups) -> list[tuple[str, GroupResult]]:
    """Return the groups that have episodes."""
    return [(name, group) for name, group in _named(groups) if group["episodes"]]


def success_table(groups: Groups, title: str) -> RenderableType:
    """Return success and pass@k in percent with 95 % intervals, and what an episode took."""
    ks = [k for k in groups["overall"]["pass_at"] if k != "1"]
    made = table("", "n", "success", *(f"pass@{k}" for k in ks), "steps", "tokens", "reward")
    own = groups["by_source_difficulty"].items()
    rated = [(f"source: {escape(level)}", group) for level, group in own if group["episodes"]]
    for name, group in [*_results(groups), *rated]:
        made.add_row(
            name,
            str(group["success"]["n"]),
            rate_text(group["success"]),
            *(rate_text(group["pass_at"][k]) for k in ks),
            number(group["steps"]),
            number(group["sampled_tokens"] or None, ".0f"),
            number(group["mean_reward"]),
        )
    return titled(title, made)


def behaviour_table(groups: Groups) -> RenderableType:
    """Return an episode's actions by type, what failed, and the share of correct answers."""
    headings = (*map(str, ActionType), "errors", "parse failures", "repeats", "right of answers %")
    made = table("", *headings)
    for name, group in _results(groups):
        means = (group["errors"], group["fallbacks"], group["repeats"])
        made.add_row(
            name,
            *(number(group["actions"][kind]) for kind in ActionType),
            *map(number, means),
            percent_number(group["accuracy_when_answered"]),
        )
    return titled("Actions per episode", made)


def paired_table(paired: PairedGroups) -> RenderableType:
    """Return success of both sides in percent, the difference in points, and McNemar's p."""
    made = table("", "questions", "before", "after", "difference", "gained", "lost", "p")
    for name, group in _named(paired):
        if not group["n"]:
            continue
        low, high = (100 * end for end in group["ci95"])
        made.add_row(
            name,
            str(group["n"]),
            percent_number(group["before"]),
            percent_number(group["after"]),
            f"{100 * (group['difference'] or 0.0):+.1f} [{low:+.1f}, {high:+.1f}]",
            str(group["gained"]),
            str(group["lost"]),
            p_text(group["p_value"]),
        )
    return titled(f"Against {paired['against']}, question by question", made)


def p_text(p: float) -> str:
    """Format a p-value to two significant digits, and below 1e-4 to one."""
    return f"{p:.2g}" if p >= 1e-4 else f"{p:.0e}"
