"""controls.md, .json and .png: the table of the controls, the command that made it, its reading."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from benchmarks.learning.bench import Modes
from benchmarks.learning.controls import Controls, Line
from shared.run_stats import MODES
from trainer.pretraining.model_card import rate_text
from trainer.report.tables import POLICIES, change
from trainer.run.charts import COLOURS, png_bytes
from trainer.run.plots import COLOURS as MODE_COLOURS
from trainer.run.plots import rate_of

LABELS = {**POLICIES, "grpo": f"**{POLICIES['after']}**"}
BEHAVIOUR = {  # key -> (heading, scale, format)
    "answered": ("answered, %", 100, ".0f"),
    "accuracy_when_answered": ("right when answered, %", 100, ".0f"),
    "describe_first": ("DESCRIBE first, %", 100, ".0f"),
    "steps": ("steps", 1, ".1f"),
    "repeats": ("repeats", 1, ".2f"),
}
COLUMNS = [(part, mode) for part in ("unseen", "seen") for mode in MODES]
NO_NUMBER = "-"
BAR = 0.38  # height of a bar; the two of a policy take one unit


def percent(rate: Mapping[str, Any] | None) -> str:
    """Format a rate as "45.0 [40.1, 50.0]"."""
    if not rate or rate["rate"] is None:
        return NO_NUMBER
    return rate_text(rate)


def behaviour_cell(modes: Modes, key: str) -> str:
    """Format a share or mean on unseen databases, greedy / sampled."""
    _, scale, form = BEHAVIOUR[key]
    values = (modes.get(one, {}).get("behaviour", {}).get("unseen", {}).get(key) for one in MODES)
    return " / ".join(NO_NUMBER if one is None else format(scale * one, form) for one in values)


def wrapped(text: str) -> str:
    """Wrap a paragraph, or an item of a list, at 100 columns."""
    options: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
    indent = "  " if text.startswith("- ") else ""
    return textwrap.fill(text, 100, subsequent_indent=indent, **options)


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; all columns but the first are aligned to the right."""
    lines = [headings, ["---", *["---:"] * (len(headings) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def table(lines: Sequence[Line]) -> str:
    successes = [f"{part}, {mode}" for part, mode in COLUMNS]
    behaviours = [heading for heading, _, _ in BEHAVIOUR.values()]
    rows = [
        [
            LABELS[line.key],
            *(percent(line.modes.get(mode, {}).get(part)) for part, mode in COLUMNS),
            *(behaviour_cell(line.modes, key) for key in BEHAVIOUR),
            NO_NUMBER if line.seconds is None else f"{line.seconds:,.0f}",
        ]
        for line in lines
    ]
    return markdown_table(["policy", *successes, *behaviours, "CPU s"], rows)


def against(controls: Controls, start: str, end: str = "grpo", part: str = "unseen") -> str:
    """Compare two policies in each mode that both have."""
    one, two = controls.modes(start), controls.modes(end)
    texts = {
        mode: change(one.get(mode, {}).get(part), two.get(mode, {}).get(part)) for mode in MODES
    }
    return "; ".join(f"{mode} {text}" for mode, text in texts.items() if text)


def reading(controls: Controls) -> list[str]:
    """Return one sentence per comparison on unseen databases: differences and intervals."""
    keys = {line.key for line in controls.lines}
    sentences = [f"GRPO against its start: {against(controls, 'before')}."]
    if seen := against(controls, "before", part="seen"):
        sentences.append(f"The same on seen databases: {seen}.")
    if "shuffled" in keys:
        sentences.append(
            "Shuffled rewards against the start, which shows the effect of the training loop "
            "without the link between an episode and its reward: "
            f"{against(controls, 'before', 'shuffled')}."
        )
    if "sft" in keys:
        notes = controls.notes["sft"]
        sentences.append(
            f"GRPO against SFT: {against(controls, 'sft')}. SFT is shown the gold SQL and the gold "
            f"answer of {notes['demonstrations']} training questions, which GRPO never sees: "
            f"{_training(notes)}"
        )
    if "imitation" in keys:
        notes = controls.notes["imitation"]
        sentences.append(
            f"GRPO against more imitation: {against(controls, 'imitation')}. It continues the last "
            f"stage of pretraining on {notes['demonstrations']:,} demonstrations over "
            f"{notes['databases']} new generated databases: {_training(notes)}"
        )
    if "pass_at_8" in keys:
        sentences.append(
            "GRPO, one episode per question, against eight sampled episodes of the start: "
            f"{against(controls, 'pass_at_8')} if the gold picks among the eight, an upper bound "
            f"that no policy can reach; {against(controls, 'vote_of_8')} if the most frequent "
            "answer is taken. Behaviour is that of all eight."
        )
    return sentences


def _training(notes: Mapping[str, Any]) -> str:
    """Describe the training of a supervised control from the notes of `supervised.train`."""
    trials = ", ".join(
        f"{one['rate']:g}: {100 * one['held_back_success']:.0f} %" for one in notes["trials"]
    )
    held_back = f"greedy success on {notes['held_back']} held-back training questions"
    return (
        f"{notes['epochs']:.1f} epochs, {notes['optimizer']} at {notes['rate']:g}"
        f"{f' ({held_back} in short trials: {trials})' if trials else ''}, "
        "the weights of its best point on the held-back questions. "
        "The time to choose them, and to make the demonstrations, is not counted."
    )


def page(controls: Controls, command: str) -> str:
    """Return controls.md."""
    finished = controls.finished
    start = controls.modes("before").get("greedy", {})
    unseen, seen = (start.get(part, {"n": 0})["n"] for part in ("unseen", "seen"))
    head = wrapped(
        f"Run {finished.run.id}: {finished.steps} GRPO steps of "
        f"{finished.config.rollouts_per_step} episodes, seed {finished.config.seed}, "
        f"{finished.training_cpu_s:,.0f} CPU-seconds of training. Every policy played the same "
        f"{unseen} questions on unseen databases and {seen} on seen ones, with the same prompts "
        "and the same sampling seed. Success in %, with 95 % Wilson intervals. Behaviour is greedy "
        "/ sampled on unseen databases; steps and repeats are means per episode. CPU s are "
        "the CPU-seconds of the trainer's processes: of training without evaluations, and of "
        "playing for best of 8; the environment server's are not counted."
    )
    words = "\n".join(wrapped(f"- {sentence}") for sentence in reading(controls))
    versions, digests = finished.summary.get("versions", {}), finished.digests
    foot = (
        f"Digest of the start {digests['model'][:12]}, of the data {digests['data'][:12]}; "
        f"torch {versions.get('torch', '?')}, trl {versions.get('trl', '?')}."
    )
    figure = "![Success on unseen databases](controls.png)"
    parts = [f"# Is the gain reinforcement learning's?\n\n{head}", f"    {command}"]
    return "\n\n".join([*parts, table(controls.lines) + f"\n{figure}", words, foot]) + "\n"


def as_json(controls: Controls, command: str) -> dict[str, Any]:
    """Return controls.json: everything behind the page."""
    finished = controls.finished
    return {
        "command": command,
        "run": finished.run.id,
        "seed": finished.config.seed,
        "steps": finished.steps,
        "training_s": round(finished.training_s, 3),
        "training_cpu_s": round(finished.training_cpu_s, 3),
        "digests": finished.digests,
        "policies": {line.key: {"cpu_s": line.seconds, **line.modes} for line in controls.lines},
        "notes": dict(controls.notes),
        "reading": reading(controls),
    }


def bars(lines: Sequence[Line], title: str) -> bytes:
    """Return a PNG with a bar and its 95 % interval per policy and mode, the first at the top."""
    figure = Figure(figsize=(9, 0.62 * len(lines) + 1.4), dpi=120, layout="constrained")
    axes = figure.subplots()
    for mode, offset in zip(MODES, (-BAR / 2, BAR / 2), strict=True):
        style: dict[str, Any] = {"color": COLOURS[MODE_COLOURS[mode]], "alpha": 0.85}
        style |= {"capsize": 3, "label": mode}
        for place, line in enumerate(lines):
            if rate := rate_of({"": line.modes}, "", mode, "unseen"):
                value, (low, high) = 100 * rate["rate"], (100 * end for end in rate["ci95"])
                error = [[max(0.0, value - low)], [max(0.0, high - value)]]
                axes.barh(place + offset, value, BAR, xerr=error, **style)
                axes.text(high + 1, place + offset, f"{value:.1f}", va="center", fontsize=8)
                style["label"] = None
    axes.set_yticks(range(len(lines)), [LABELS[line.key].strip("*") for line in lines])
    axes.invert_yaxis()
    axes.set(xlim=(0, 108), xticks=range(0, 101, 20), title=title)
    axes.set_xlabel("success on unseen databases, %, with 95 % intervals")
    axes.grid(axis="x", alpha=0.25)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper right", fontsize=8)
    return png_bytes(figure)
