"""`python -m benchmarks.learning` controls, ablations, forms, seeds, curve, bases or publish."""

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from shared.console import print_line
from trainer.cli import console, guarded
from trainer.presets import TRAINED_MODEL

COMMAND = "python -m benchmarks.learning"
RATES = "1e-4,3e-4,1e-3"

app = typer.Typer(
    name=COMMAND,
    help="Controls and ablations of a run, its success by form of question, several seeds or base "
    "models side by side, and the model that ships.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

RunOption = Annotated[Path, typer.Option(help="Folder of a finished run of 'make train'.")]
OutOption = Annotated[
    Path, typer.Option(help="Write the page, the figure and the JSON to this folder.")
]
LATEST, FIGURES = Path("runs/latest"), Path("docs/figures")


@app.callback()
def main() -> None:
    # as `python -m trainer` sets them, so that times are comparable
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


@app.command()
def controls(
    run: RunOption = LATEST,
    only: Annotated[
        str,
        typer.Option(
            help="Measure some of imitation, sft, best_of_8, shuffled, comma-separated. Several "
            "commands may measure different ones at once.",
            show_default="all",
        ),
    ] = "",
    rates: Annotated[
        str,
        typer.Option(
            help="Learning rates that imitation and SFT try, each for a quarter of their time."
        ),
    ] = RATES,
    out: OutOption = FIGURES,
) -> None:
    """Compare the run with more imitation and SFT of equal CPU time, best of 8, shuffled rewards.

    Takes about as long as five runs. Results are kept in RUN/controls; the same command resumes
    after Ctrl-C.
    """
    try:
        tried = [float(rate) for rate in rates.split(",")]
    except ValueError:
        tried = []
    if not tried or min(tried) <= 0:
        raise typer.BadParameter(
            f"{rates!r} is not a list of rates such as 1e-4,3e-4", param_hint="--rates"
        )
    names = _names(only)
    options = [f"--rates {rates}"] if rates != RATES else []

    with guarded():
        from benchmarks.learning.controls import run_controls
        from benchmarks.learning.report import as_json, bars, page
        from trainer.report.tables import CONTROLS
        from trainer.run.folder import check_writable

        check_writable(out / "controls.md")
        result = run_controls(run, names, console=console, rates=tried)
        if set(result.notes) != set(CONTROLS):
            options.append(f"--only {','.join(result.notes)}")
        options.insert(0, f"{COMMAND} controls --run {_typed(result.finished.run.path)}")
        command = " ".join(options)
        title = f"Success on unseen databases, seed {result.finished.config.seed}"
        picture = bars(result.lines, title)
        _write(out, "controls", as_json(result, command), page(result, command), picture)


@app.command()
def ablations(
    run: RunOption = LATEST,
    only: Annotated[
        str,
        typer.Option(
            help="Train some ablations, such as baseline,one-update, comma-separated.",
            show_default="all",
        ),
    ] = "",
    seeds: Annotated[str, typer.Option(help="Seeds of the trainings, comma-separated.")] = "1,2,3",
    cpu_s: Annotated[
        float, typer.Option(min=1, help="CPU-seconds of each training, without evaluations.")
    ] = 600,
    out: OutOption = FIGURES,
) -> None:
    """Train again with one thing changed at a time, for equal CPU time, and compare.

    Results are kept in RUN/ablations; the same command resumes after Ctrl-C. Each training uses one
    core: two commands with different --only or --seeds can run side by side.
    """
    try:
        chosen = sorted({int(seed) for seed in seeds.split(",")})
    except ValueError:
        chosen = []
    if not chosen or chosen[0] < 0:
        raise typer.BadParameter(
            f"{seeds!r} is not a list of seeds such as 1,2,3", param_hint="--seeds"
        )
    names = _names(only)

    with guarded():
        from benchmarks.learning.ablations import run_ablations
        from benchmarks.learning.ablations_report import as_json, dots, page
        from trainer.run.folder import check_writable

        check_writable(out / "ablations.md")
        result = run_ablations(run, names, chosen, cpu_s, console=console)
        start = f"{COMMAND} ablations --run {_typed(result.finished.run.path)}"
        by_seeds: dict[str, list[str]] = {}
        for row in result.rows:
            by_seeds.setdefault(",".join(map(str, sorted(row.by_seed))), []).append(
                row.ablation.slug
            )
        commands = [
            f"{start} --only {','.join(slugs)} --seeds {trained} --cpu-s {cpu_s:g}"
            for trained, slugs in by_seeds.items()
        ]
        _write(out, "ablations", as_json(result, commands), page(result, commands), dots(result))


@app.command()
def seeds(
    runs: Annotated[
        list[Path], typer.Argument(help="Folders of finished runs of 'make train', one per seed.")
    ],
    out: OutOption = FIGURES,
) -> None:
    """Compare runs with different seeds: before and after, times, and all eval curves."""

    with guarded():
        from benchmarks.learning.bench import load_finished
        from benchmarks.learning.seeds import as_json, check_comparable, page, seed_curves

        finished = sorted(map(load_finished, runs), key=lambda one: one.config.seed)
        check_comparable(finished)
        command = " ".join([f"{COMMAND} seeds", *(_typed(one.run.path) for one in finished)])
        result = {"command": command, "runs": [as_json(one) for one in finished]}
        _write(out, "seeds", result, page(finished, command), seed_curves(finished))


@app.command()
def curve(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Finished runs, each started from the previous one's model."),
    ],
    out: Annotated[Path, typer.Option(help="PNG file.")],
    before: Annotated[
        list[Path], typer.Option(help="Evaluation of the first model; repeatable, one per mode.")
    ],
    after: Annotated[
        list[Path], typer.Option(help="Evaluation of the last model; repeatable, one per mode.")
    ],
    model: Annotated[str, typer.Option(help="Name of the model in the title.")] = "the model",
) -> None:
    """Draw one learning curve of consecutive runs, with evaluations of their start and end."""

    with guarded():
        from benchmarks.learning.bench import load_finished
        from benchmarks.learning.curve import joined_curve
        from trainer.run.folder import write_bytes

        write_bytes(out, joined_curve([load_finished(run) for run in runs], before, after, model))
        print_line(console, f"wrote {out}")


@app.command()
def forms(run: RunOption = LATEST, out: OutOption = FIGURES) -> None:
    """Compare success before and after training by form of question, and on the hard questions.

    Takes about 5 minutes, to play the hard questions. Results are kept in RUN/forms.
    """

    with guarded():
        from benchmarks.learning.forms import as_json, page, run_forms
        from trainer.run.folder import check_writable

        check_writable(out / "forms.md")
        result = run_forms(run, console)
        command = f"{COMMAND} forms --run {_typed(result.finished.run.path)}"
        _write(out, "forms", as_json(result, command), page(result, command))


@app.command()
def bases(
    models: Annotated[
        list[Path], typer.Argument(help="Folders that 'python -m trainer pretrain' wrote.")
    ],
    out: OutOption = FIGURES,
) -> None:
    """Compare base models: success on unseen databases against tokens of pretraining."""

    with guarded():
        from benchmarks.learning.bases import curves, page, read_base

        found = [read_base(model) for model in models]
        command = " ".join([f"{COMMAND} bases", *map(_typed, models)])
        result = {"command": command, "bases": list(map(vars, found))}
        _write(out, "bases", result, page(found, command), curves(found))


@app.command()
def publish(
    run: RunOption = LATEST,
    out: Annotated[Path, typer.Option(help="Folder of the model.")] = Path(TRAINED_MODEL),
) -> None:
    """Write the trained model that ships: in bfloat16, measured for its card (about 10 minutes)."""

    with guarded():
        from benchmarks.learning.publish import write_published

        write_published(run, out, console)


def _names(only: str) -> list[str]:
    return [name.strip() for name in only.split(",") if name.strip()]


def _typed(path: Path) -> str:
    """Return a path as it can be typed in the current directory."""
    inside = path.is_absolute() and path.is_relative_to(Path.cwd())
    return shlex.quote(str(path.relative_to(Path.cwd()) if inside else path))


def _write(out: Path, name: str, result: object, page: str, picture: bytes = b"") -> None:
    """Write the page, the JSON and the picture, if there is one."""
    from trainer.run.folder import to_json, write_bytes

    files = {"md": page.encode(), "json": f"{to_json(result, indent=2)}\n".encode()}
    files |= {"png": picture} if picture else {}
    for kind, content in files.items():
        write_bytes(out / f"{name}.{kind}", content)
        print_line(console, f"wrote {out / f'{name}.{kind}'}")


if __name__ == "__main__":
    sys.exit(app())
