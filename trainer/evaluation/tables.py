"""The tables of `python -m trainer evaluate`: success, behaviour and the comparison, in about 80
columns each."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.markup import escape

from shared.actions import ActionType
from trainer.evaluation.analysis import GroupResult, Groups, PairedGroups
from trainer.evaluation.paired import Paired
from trainer.run.console import number, percent, rate_text, table, titled


def _groups(groups: Groups) -> Iterator[tuple[str, GroupResult]]:
    """Yield overall, seen, unseen and each difficulty, with its result, if it has episodes."""
    named = {name: groups[name] for name in ("overall", "seen", "unseen")}
    for name, group in (named | groups["by_difficulty"]).items():
        if group["episodes"]:
            yield escape(name), group


def _paired(groups: PairedGroups) -> Iterator[tuple[str, Paired]]:
    named = {name: groups[name] for name in ("overall", "seen", "unseen")}
    for name, group in (named | groups["by_difficulty"]).items():
        if group["n"]:
            yield escape(name), group


def success_table(groups: Groups, title: str) -> RenderableType:
    """Return success and pass@k in percent with 95 % intervals, and what an episode took."""
    ks = [k for k in groups["overall"]["pass_at"] if k != "1"]
    made = table("", "n", "success", *(f"pass@{k}" for k in ks), "steps", "tokens", "reward")
    for name, group in _groups(groups):
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
    headings = (*map(str, ActionType), "errors", "fall-backs", "repeats", "right of answers %")
    made = table("", *headings)
    for name, group in _groups(groups):
        means = (group["errors"], group["fallbacks"], group["repeats"])
        made.add_row(
            name,
            *(number(group["actions"][kind]) for kind in ActionType),
            *map(number, means),
            percent(group["accuracy_when_answered"]),
        )
    return titled("Actions per episode", made)


def paired_table(paired: PairedGroups) -> RenderableType:
    """Return success of both sides in percent, the difference in points, and McNemar's p."""
    made = table("", "questions", "before", "after", "difference", "gained", "lost", "p")
    for name, group in _paired(paired):
        low, high = (100 * end for end in group["ci95"])
        made.add_row(
            name,
            str(group["n"]),
            percent(group["before"]),
            percent(group["after"]),
            f"{100 * (group['difference'] or 0.0):+.1f} [{low:+.1f}, {high:+.1f}]",
            str(group["gained"]),
            str(group["lost"]),
            p_text(group["p_value"]),
        )
    return titled(f"Against {paired['against']}, question by question", made)


def p_text(p: float) -> str:
    """Format a p-value to two significant digits, and below 1e-4 to one."""
    return f"{p:.2g}" if p >= 1e-4 else f"{p:.0e}"
