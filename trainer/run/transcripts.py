"""transcripts.md: the same questions played at random, before and after training, side by side."""

import hashlib
import html
from collections.abc import Iterator, Mapping, Sequence

from trainer.run.console import counted
from trainer.run.records import EpisodeRecord

COUNT = 8  # questions shown
RESULT_CHARS = 300  # of an observation shown in a cell
ACTION_CHARS = 400

# (what the pair (before, after) shows, how many of COUNT). Failures have fixed places, so that they
# can't be left out.
KINDS: tuple[tuple[str, tuple[bool, bool], int], ...] = (
    ("learnt: wrong before, right after", (False, True), 4),
    ("still wrong", (False, False), 2),
    ("unlearnt: right before, wrong after", (True, False), 1),
    ("right before and after", (True, True), 1),
)
MARKS = {
    "correct": "✅ correct",
    "wrong": "❌ wrong answer",
    "budget": "⏳ no answer within the step budget",
}


def pick(
    before: Mapping[str, EpisodeRecord], after: Mapping[str, EpisodeRecord], count: int = COUNT
) -> list[tuple[str, str]]:
    """(question_id, kind) of the questions to show: each kind's share, empty places filled from the
    kinds in order.

    Within a kind the order is that of a hash of the question's id: the same from run to run and
    nobody's choice. Questions that were lost in either evaluation are left out.
    """
    shared = [
        key for key in before if key in after and before[key].finished and after[key].finished
    ]
    shared.sort(key=lambda key: hashlib.sha256(key.encode()).digest())
    by_kind = {
        label: [key for key in shared if (before[key].correct, after[key].correct) == pair]
        for label, pair, _ in KINDS
    }
    taken = {label: by_kind[label][:share] for label, _, share in KINDS}
    for label, _, _ in KINDS:
        missing = count - sum(map(len, taken.values()))
        taken[label] += by_kind[label][len(taken[label]) :][: max(0, missing)]
    return [(key, label) for label, _, _ in KINDS for key in taken[label]][:count]


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _span(line: str) -> str:
    """One line as a Markdown code span in a table cell: shown letter by letter, whatever it holds."""
    fence = "`"
    while fence in line:
        fence += "`"
    padding = " " if line.startswith("`") or line.endswith("`") or not line.strip() else ""
    # GFM takes the backslash out again
    return f"{fence}{padding}{line}{padding}{fence}".replace("|", "\\|")


def _cell(text: str) -> str:
    """Text as one table cell, with its line breaks."""
    return "<br>".join(_span(line) for line in text.splitlines() if line)


def _turn(episode: EpisodeRecord | None, index: int) -> str:
    if episode is None or index >= len(episode.turns):
        return ""
    turn = episode.turns[index]
    action = "<br>".join(
        f"**{_span(line)}**" for line in _cut(turn.action, ACTION_CHARS).splitlines() if line
    )
    return "<br>".join(filter(None, (action, _cell(_cut(turn.observation, RESULT_CHARS)))))


def _verdict(episode: EpisodeRecord | None) -> str:
    if episode is None:
        return "not played"
    mark = MARKS.get(episode.outcome, episode.outcome.replace("_", " "))
    reward = "" if episode.reward is None else f", reward {episode.reward:.2f}"
    return f"**{mark}**{reward}, {counted(episode.steps, 'step')}"


def _section(
    number: int,
    kind: str,
    texts: Mapping[str, str],
    columns: Sequence[tuple[str, EpisodeRecord | None]],
) -> str:
    known = next(episode for _, episode in columns if episode is not None)
    lines = [
        f"## {number}. {kind}",
        "",
        f"> {html.escape(texts.get(known.question_id, known.question_id), quote=False)}",
        "",
        f"Database `{known.database}` ({known.part}), {known.difficulty}, `{known.question_id}`",
        "",
        "| step | " + " | ".join(name for name, _ in columns) + " |",
        "|---" * (len(columns) + 1) + "|",
    ]
    length = max(len(episode.turns) for _, episode in columns if episode is not None)
    for index in range(length):
        lines.append(
            f"| {index + 1} | " + " | ".join(_turn(episode, index) for _, episode in columns) + " |"
        )
    lines.append("| end | " + " | ".join(_verdict(episode) for _, episode in columns) + " |")
    return "\n".join(lines)


def transcripts(
    texts: Mapping[str, str],
    random: Mapping[str, EpisodeRecord],
    before: Mapping[str, EpisodeRecord],
    after: Mapping[str, EpisodeRecord],
    *,
    heading: str,
) -> str:
    """The Markdown page. `texts` are the questions, the others episodes, by question_id; all but
    `random` greedy."""
    return "\n".join(_page(texts, random, before, after, heading))


def _page(
    texts: Mapping[str, str],
    random: Mapping[str, EpisodeRecord],
    before: Mapping[str, EpisodeRecord],
    after: Mapping[str, EpisodeRecord],
    heading: str,
) -> Iterator[str]:
    shown = pick(before, after)
    whole = [key for key in before if key in after and before[key].finished and after[key].finished]
    yield f"# {heading}\n"
    yield "The same questions played at random, by the untrained model and by the trained one (greedy both).\n"
    yield "| kind | questions of the eval set | shown here |\n|---|---|---|"
    for label, pair, _ in KINDS:
        count = sum((before[key].correct, after[key].correct) == pair for key in whole)
        yield f"| {label} | {count} | {sum(kind == label for _, kind in shown)} |"
    yield (
        "\nEach kind has fixed places: "
        + ", ".join(f"{share} {label.split(':')[0]}" for label, _, share in KINDS)
        + ". What one can't fill goes to the next. Within a kind the order is that of a hash of the question's id.\n"
    )
    for number, (key, label) in enumerate(shown, start=1):
        columns = [("random", random.get(key)), ("before", before[key]), ("after", after[key])]
        yield _section(number, label, texts, columns) + "\n"
