"""The controls as a page: a table with the command that gives it, and what its numbers say in
words. Pure functions."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.learning.bench import Modes
from benchmarks.learning.controls import Controls, Line
from shared.run_stats import MODES
from trainer.report.tables import POLICIES

LABELS = {**POLICIES, "grpo": f"**{POLICIES['after']}**"}
BEHAVIOUR = {  # key -> (heading, scale, format)
    "answered": ("answered, %", 100, ".0f"),
    "accuracy_when_answered": ("right when answered, %", 100, ".0f"),
    "describe_first": ("DESCRIBE first, %", 100, ".0f"),
    "steps": ("steps", 1, ".1f"),
    "repeats": ("repeats", 1, ".2f"),
}
NO_NUMBER = "-"


def percent(rate: Mapping[str, Any] | None) -> str:
    """`{rate, n, ci95}` as "45.0 [40.1, 50.0]"."""
    if not rate or rate["rate"] is None:
        return NO_NUMBER
    low, high = rate["ci95"]
    return f"{100 * rate['rate']:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def part_of(modes: Modes, mode: str, part: str) -> Mapping[str, Any] | None:
    return modes.get(mode, {}).get(part)


def behaviour_cell(modes: Modes, key: str) -> str:
    """Greedy / sampled, on unseen databases."""
    _, scale, form = BEHAVIOUR[key]
    cells = []
    for mode in MODES:
        value = modes.get(mode, {}).get("behaviour", {}).get("unseen", {}).get(key)
        cells.append(NO_NUMBER if value is None else format(scale * value, form))
    return " / ".join(cells)


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Text cells under headings; all but the first column aligned to the right."""
    lines = [headings, ["---", *["---:"] * (len(headings) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def table(lines: Sequence[Line]) -> str:
    headings = [
        "policy",
        *(f"{part}, {mode}" for part in ("unseen", "seen") for mode in MODES),
        *(heading for heading, _, _ in BEHAVIOUR.values()),
        "seconds",
    ]
    rows = [
        [
            LABELS[line.key],
            *(
                percent(part_of(line.modes, mode, part))
                for part in ("unseen", "seen")
                for mode in MODES
            ),
            *(behaviour_cell(line.modes, key) for key in BEHAVIOUR),
            NO_NUMBER if line.seconds is None else f"{line.seconds:,.0f}",
        ]
        for line in lines
    ]
    return markdown_table(headings, rows)


def compared(one: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> str:
    """How `one` stands to `other`, as "+12.3 points, intervals apart"; empty where one of them is
    missing."""
    if not one or not other or one["rate"] is None or other["rate"] is None:
        return ""
    points = 100 * (one["rate"] - other["rate"])
    apart = one["ci95"][0] > other["ci95"][1] or one["ci95"][1] < other["ci95"][0]
    return f"{points:+.1f} points, intervals {'apart' if apart else 'overlapping'}"


def against(controls: Controls, key: str, other: str, part: str = "unseen") -> str:
    """`key` compared with `other`, in each mode that both have."""
    one, two = controls.modes(key), controls.modes(other)
    found = {mode: compared(part_of(one, mode, part), part_of(two, mode, part)) for mode in MODES}
    return "; ".join(f"{mode} {text}" for mode, text in found.items() if text)


def reading(controls: Controls) -> list[str]:
    """What the table says of unseen databases, a sentence a comparison: differences and intervals,
    no more."""
    keys, notes = {line.key for line in controls.lines}, controls.notes
    said = [f"GRPO against its start: {against(controls, 'grpo', 'before')}."]
    if seen := against(controls, "grpo", "before", "seen"):
        said.append(f"The same on seen databases: {seen}.")
    if "shuffled" in keys:
        said.append(
            "Shuffled rewards against the start, which shows what the training loop does without the link between an "
            f"episode and its reward: {against(controls, 'shuffled', 'before')}."
        )
    if "sft" in keys:
        how = notes["sft"]
        trials = ", ".join(
            f"{one['rate']:g}: {100 * one['held_back_success']:.0f} %" for one in how["trials"]
        )
        said.append(
            f"GRPO against SFT: {against(controls, 'grpo', 'sft')}. SFT is shown the gold SQL and the gold answer of "
            f"{how['demonstrations']} training questions, which GRPO never sees: "
            f"{how['epochs']:.1f} epochs, {how['optimizer']} at {how['rate']:g}"
            + (
                f" (greedy success on {how['held_back']} held-back training questions in short trials: {trials})"
                * bool(trials)
            )
            + ", the weights of its best point on the held-back questions. The time to choose them, and to play the "
            "demonstrations, is not counted."
        )
    if "expert" in keys:
        said.append(
            f"GRPO against the expert-only base, which was never made untidy: {against(controls, 'grpo', 'expert')}."
        )
    if "pass_at_8" in keys:
        said.append(
            "GRPO, one episode a question, against eight sampled episodes of the start: "
            f"{against(controls, 'grpo', 'pass_at_8')} where the gold picks among the eight, an upper bound that "
            f"nobody can use; {against(controls, 'grpo', 'vote_of_8')} where the most frequent answer is taken. "
            "Behaviour is that of all eight."
        )
    return said


def page(controls: Controls, command: str) -> str:
    """controls.md."""
    config, summary = controls.finished.config, controls.finished.summary
    greedy = part_of(controls.modes("before"), "greedy", "unseen") or {"n": 0}
    seen = part_of(controls.modes("before"), "greedy", "seen") or {"n": 0}
    head = (
        "# Is the gain reinforcement learning's?\n\n"
        f"Run {controls.finished.run.id}: {controls.finished.steps} GRPO steps of {config.rollouts_per_step} episodes, "
        f"seed {config.seed}, {controls.finished.training_s:,.0f} s of training. Every policy played the same "
        f"{greedy['n']} questions on unseen databases and {seen['n']} on seen ones, with the same prompts and the same "
        "seed of sampling. Success in %, with 95 % Wilson intervals. Behaviour is greedy / sampled on unseen "
        "databases; steps and repeats are means an episode. Seconds are of training without evaluations, and of "
        "playing for best of 8.\n\n"
        f"    {command}\n"
    )
    words = "\n".join(f"- {sentence}" for sentence in reading(controls))
    versions = summary.get("versions", {})
    digests = controls.finished.digests
    foot = (
        f"Digest of the start {digests['model'][:12]}, of the data {digests['data'][:12]}; "
        f"torch {versions.get('torch', '?')}, trl {versions.get('trl', '?')}."
    )
    return f"{head}\n{table(controls.lines)}\n![Success on unseen databases](controls.png)\n\n{words}\n\n{foot}\n"


def as_json(controls: Controls, command: str) -> dict[str, Any]:
    """controls.json: everything behind the page."""
    return {
        "command": command,
        "run": controls.finished.run.id,
        "seed": controls.finished.config.seed,
        "steps": controls.finished.steps,
        "training_s": round(controls.finished.training_s, 3),
        "digests": controls.finished.digests,
        "policies": {line.key: {"seconds": line.seconds, **line.modes} for line in controls.lines},
        "notes": dict(controls.notes),
        "reading": reading(controls),
    }
