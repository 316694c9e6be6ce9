"""`python -m benchmarks.learning controls | seeds`."""

import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from shared.errors import SQLEnvError

app = typer.Typer(
    name="python -m benchmarks.learning",
    help="Controls of a finished run, and several seeds side by side.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
console = Console()
errors = Console(stderr=True)

OutOption = Annotated[Path, typer.Option(help="Folder of the page, the figures and the JSON.")]


@app.callback()
def main() -> None:
    # as `python -m trainer` sets them, so that times compare
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


@app.command()
def controls(
    run: Annotated[Path, typer.Option(help="A finished run of 'make train'.")] = Path(
        "runs/latest"
    ),
    expert: Annotated[Path, typer.Option(help="The base before its untidy stage.")] = Path(
        "data/models/sqlenv-tiny-expert"
    ),
    only: Annotated[
        str,
        typer.Option(
            help="Some of expert, sft, best_of_8, shuffled, comma-separated.", show_default="all"
        ),
    ] = "",
    sft_rates: Annotated[
        str,
        typer.Option(
            help="Learning rates that SFT chooses from, in trials of a quarter of its time."
        ),
    ] = "1e-4,3e-4,1e-3",
    out: OutOption = Path("docs/figures"),
) -> None:
    """Is the gain RL's? The run beside the expert-only base, SFT of equal time, best of 8, and
    shuffled rewards.

    Takes about as long as three runs. Results are kept in RUN/controls; the same command goes on
    after Ctrl-C.
    """
    try:
        rates = [float(rate) for rate in sft_rates.split(",")]
    except ValueError:
        rates = []
    if not rates or min(rates) <= 0:
        raise typer.BadParameter(
            f"{sft_rates!r} is not a list of rates such as 1e-4,3e-4", param_hint="--sft-rates"
        )
    names = [name.strip() for name in only.split(",") if name.strip()]
    options = (
        [f"--expert {shown(expert)}"] if expert != Path("data/models/sqlenv-tiny-expert") else []
    )
    options += [f"--sft-rates {sft_rates}"] if sft_rates != "1e-4,3e-4,1e-3" else []

    def job() -> None:
        from benchmarks.learning.controls import CONTROLS, run_controls
        from benchmarks.learning.figures import bars
        from benchmarks.learning.report import LABELS, as_json, page
        from trainer.run.folder import check_writable, write_bytes, write_json, write_text

        check_writable(out / "controls.md")
        found = run_controls(run, expert, names, console=console, rates=rates)
        measured = "" if set(found.notes) == set(CONTROLS) else f"--only {','.join(found.notes)}"
        at = f"--run {shown(found.finished.run.path)}"
        command = command_of("controls", [at, *options, *filter(None, [measured])])
        write_json(out / "controls.json", as_json(found, command))
        write_text(out / "controls.md", page(found, command))
        policies = [(LABELS[line.key].strip("*"), line.modes) for line in found.lines]
        title = f"Success on unseen databases, seed {found.finished.config.seed}"
        write_bytes(out / "controls.png", bars(policies, title))
        say(out, "controls")

    guarded(job)


@app.command()
def seeds(
    runs: Annotated[
        list[Path], typer.Argument(help="Finished runs of 'make train' with different seeds.")
    ],
    out: OutOption = Path("docs/figures"),
) -> None:
    """The same training with other seeds: before and after, with intervals, times, and all eval
    curves."""

    def job() -> None:
        from benchmarks.learning import seeds as side
        from benchmarks.learning.bench import load_finished
        from benchmarks.learning.figures import seed_curves
        from trainer.run.folder import read_lines, write_bytes, write_json, write_text

        found = sorted((load_finished(path) for path in runs), key=lambda one: one.config.seed)
        side.check_comparable(found)
        lines = [side.seed_line(one) for one in found]
        command = command_of("seeds", [shown(one.run.path) for one in found])
        write_json(out / "seeds.json", {"command": command, "runs": lines})
        write_text(out / "seeds.md", side.page(lines, command))
        curves = [
            (f"seed {one.config.seed}", list(read_lines(one.run.metrics)), one.summary)
            for one in found
        ]
        write_bytes(out / "seeds.png", seed_curves(curves))
        say(out, "seeds")

    guarded(job)


def command_of(name: str, options: Sequence[str]) -> str:
    return " ".join(["python -m benchmarks.learning", name, *options])


def shown(path: Path) -> str:
    """A path as it can be typed from here."""
    inside = path.is_absolute() and path.is_relative_to(Path.cwd())
    return shlex.quote(str(path.relative_to(Path.cwd()) if inside else path))


def say(out: Path, name: str) -> None:
    for kind in ("md", "json", "png"):
        console.print(escape(str(out / f"{name}.{kind}")), highlight=False, soft_wrap=True)


def guarded(job: Callable[[], None]) -> None:
    """Known errors become one line and exit code 1, an interruption exit code 130."""
    from trainer.runtime.interrupt import EXIT_CODE

    try:
        job()
    except SQLEnvError as error:
        errors.print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(1) from error
    except KeyboardInterrupt:
        errors.print("stopped; the same command goes on", style="red")
        raise typer.Exit(EXIT_CODE) from None


if __name__ == "__main__":
    sys.exit(app())
