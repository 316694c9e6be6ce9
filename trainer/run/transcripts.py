"""transcripts.md: the same questions played at random, before and after training, side by side."""

import hashlib
import html
from collections.abc import Mapping

from shared.console import counted
from trainer.run.console import markdown
from trainer.run.records import EpisodeRecord

Episodes = Mapping[str, EpisodeRecord]  # by question_id

COUNT = 8  # questions shown
RESULT_CHARS = 300  # of an observation in a cell
ACTION_CHARS = 400

# (kind, correct (before, after), how many of COUNT). Each kind has its quota, so that failures are
# always shown.
KINDS: tuple[tuple[str, tuple[bool, bool], int], ...] = (
    ("learned: wrong before, right after", (False, True), 4),
    ("still wrong", (False, False), 2),
    ("unlearned: right before, wrong after", (True, False), 1),
    ("right before and after", (True, True), 1),
)
MARKS = {
    "correct": "✅ correct",
    "wrong": "❌ wrong answer",
    "budget": "⏳ no answer within the step budget",
}


def by_kind(before: Episodes, after: Episodes) -> dict[str, list[str]]:
    """Return kind -> ids of the questions that neither evaluation lost, sorted by a hash."""
    finished = sorted(
        (key for key in before if key in after and before[key].finished and after[key].finished),
        key=lambda key: hashlib.sha256(key.encode()).digest(),
    )
    return {
        label: [key for key in finished if (before[key].correct, after[key].correct) == pair]
        for label, pair, _ in KINDS
    }


def pick(before: Episodes, after: Episodes) -> list[tuple[str, str]]:
    """Return (question_id, kind) of the questions to show: each kind gets its quota, and unfilled
    places go to the kinds in order."""
    kinds = by_kind(before, after)
    taken = {label: kinds[label][:quota] for label, _, quota in KINDS}
    for label, keys in kinds.items():
        missing = COUNT - sum(map(len, taken.values()))
        taken[label] += keys[len(taken[label]) :][: max(0, missing)]
    return [(key, label) for label, keys in taken.items() for key in keys][:COUNT]


def _span(line: str) -> str:
    """Return a line as a Markdown code span for a table cell, which shows any text literally."""
    fence = "`"
    while fence in line:
        fence += "`"
    padding = " " if line.startswith("`") or line.endswith("`") or not line.strip() else ""
    # GFM takes the backslash out again
    return f"{fence}{padding}{line}{padding}{fence}".replace("|", "\\|")


def _cell(text: str, limit: int, mark: str = "") -> str:
    text = text if len(text) <= limit else text[: limit - 1] + "…"
    return "<br>".join(f"{mark}{_span(line)}{mark}" for line in text.splitlines() if line)


def _turn(episode: EpisodeRecord | None, index: int) -> str:
    if episode is None or index >= len(episode.turns):
        return ""
    action, observation = episode.turns[index]
    cells = _cell(action, ACTION_CHARS, "**"), _cell(observation, RESULT_CHARS)
    return "<br>".join(filter(None, cells))


def verdict(episode: EpisodeRecord | None) -> str:
    if episode is None:
        return "not played"
    mark = MARKS.get(episode.outcome, episode.outcome.replace("_", " "))
    reward = "" if episode.reward is None else f", reward {episode.reward:.2f}"
    return f"**{mark}**{reward}, {counted(episode.steps, 'step')}"


def transcripts(
    texts: Mapping[str, str], random: Episodes, before: Episodes, after: Episodes, *, heading: str
) -> str:
    policies = {"random": random} if random else {}
    policies |= {"before": before, "after": after}
    sections = []
    for key, kind in pick(before, after):
        episodes = [played.get(key) for played in policies.values()]
        length = max(len(one.turns) for one in episodes if one is not None)
        section = {
            "kind": kind,
            "text": html.escape(texts.get(key, key), quote=False),
            "question": before[key],
            "turns": [[_turn(one, at) for one in episodes] for at in range(length)],
            "verdicts": map(verdict, episodes),
        }
        sections.append(section)
    about = {"heading": heading, "kinds": by_kind(before, after), "policies": policies}
    return markdown("transcripts.md.j2", **about, sections=sections)
