"""What `python -m trainer evaluate` prints: success, behaviour and the comparison, each a table of
80 columns or so."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from shared.actions import ActionType
from trainer.run.console import number, rate_text

Result = Mapping[str, Any]


def _table(*headings: str) -> Table:
    table = Table(
        box=SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 0, 0, 1),  # two columns apart: it all has to fit 80
    )
    table.add_column("", no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right", min_width=len(max(heading.split(), key=len)))
    return table


def _titled(title: str, table: Table) -> RenderableType:
    """The table under a line of its own, which rich's own title would wrap at the table's width."""
    return Group(Text(title, style="italic"), table, "")


def rows_of(result: Result) -> Iterator[tuple[str, Any]]:
    """(name, group) of the groups that hold a question: overall, seen, unseen, and each difficulty."""
    named = [(name, result[name]) for name in ("overall", "seen", "unseen")]
    for name, group in [*named, *result["by_difficulty"].items()]:
        if group.get("n", group.get("episodes")):
            yield name, group


def success_table(result: Result, label: str) -> RenderableType:
    """Success and pass@k in percent with their 95 % intervals, over `n` questions, and what an
    episode took."""
    groups = result["success"]
    ks = [k for k in groups["overall"]["pass_at"] if k != "1"]
    table = _table("n", "success", *(f"pass@{k}" for k in ks), "steps", "tokens", "reward")
    for name, group in rows_of(groups):
        tokens = group["sampled_tokens"] or None
        table.add_row(
            escape(name),
            str(group["success"]["n"]),
            rate_text(group["success"]),
            *(rate_text(group["pass_at"][k]) for k in ks),
            number(group["steps"]),
            number(tokens, ".0f"),
            number(group["mean_reward"]),
        )
    title = f"{label}: success in % [95 %] on {result['questions']} {result['split']} questions"
    return _titled(title, table)


def behaviour_table(result: Result) -> RenderableType:
    """What an episode does: its actions by type, what went wrong with them, and how many of its
    answers are right."""
    kinds = list(ActionType)
    headings = (*map(str, kinds), "errors", "fall-backs", "repeats", "right of answers %")
    table = _table(*headings)
    for name, group in rows_of(result["success"]):
        right = group["accuracy_when_answered"]
        table.add_row(
            escape(name),
            *(number(group["actions"][kind]) for kind in kinds),
            *(number(group[key]) for key in ("errors", "fallbacks", "repeats")),
            number(None if right is None else 100 * right, ".1f"),
        )
    return _titled("Actions an episode", table)


def paired_table(paired: Result) -> RenderableType:
    """The comparison, question by question: success of both in percent, the difference in points,
    McNemar's p."""
    table = _table("questions", "before", "after", "difference", "gained", "lost", "p")
    for name, group in rows_of(paired):
        sides = (100 * group[key] for key in ("before", "after"))
        low, high = (100 * end for end in group["ci95"])
        table.add_row(
            escape(name),
            str(group["n"]),
            *(f"{side:.1f}" for side in sides),
            f"{100 * group['difference']:+.1f} [{low:+.1f}, {high:+.1f}]",
            str(group["gained"]),
            str(group["lost"]),
            p_text(group["p_value"]),
        )
    return _titled(f"Against {paired['against']}, question by question", table)


def p_text(p: float) -> str:
    """Two digits that count, and powers of ten below a ten-thousandth."""
    return f"{p:.2g}" if p >= 1e-4 else f"{p:.0e}"
