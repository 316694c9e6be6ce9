"""Several runs side by side as one HTML page: success, curves in one figure, settings that differ,
every question."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from shared.console import percent
from shared.run_stats import MODES
from trainer.errors import RunError
from trainer.report.browser import browser
from trainer.report.questions import facets_of, policies_of, question_items
from trainer.report.run_reader import Gap, LoadedRun, read_run
from trainer.report.shell import environment, plain
from trainer.report.tables import PATHS
from trainer.run.charts import Chart, Point, Series
from trainer.run.folder import how_to_resume, is_evaluation
from trainer.run.plots import RUNNING, curve_points, points, rate_of, smoothed

COMPARISON = "comparison"  # the names of the files of comparisons start with it
FILE_NAME_CHARS = 200  # of the runs' names, as a file system allows 255 bytes
COLOURS = ("blue", "orange", "green", "violet", "ochre", "grey")  # of the runs, in their order


def comparison_page(paths: Sequence[Path], data: Path | None = None) -> tuple[str, str, list[Gap]]:
    """Return the page that compares the runs in these folders, the name of its file, and what it
    can't compare."""
    if len(paths) > len(COLOURS):
        raise RunError(
            f"{len(paths)} runs are too many for one figure: name {len(COLOURS)} or fewer"
        )
    if evaluation := next(filter(is_evaluation, paths), None):
        raise RunError(
            f"{evaluation} is an evaluation, and a comparison is of training runs: leave it out, "
            f"or make its own page: python -m trainer report {evaluation}"
        )
    runs = [read_run(path, data) for path in paths]
    if len({run.folder.path for run in runs}) < len(runs):
        raise RunError("a run is named twice: name different runs to compare them")
    names = names_of(runs)
    questions = {key: one for run in runs for key, one in run.questions.items()}
    policies = {
        f"{name}, {policy}": played
        for name, run in zip(names, runs, strict=True)
        for policy, played in list(policies_of(run).items())[:2]
        if policy.startswith("after") or "after" not in run.evaluations
    }
    templates, gaps = environment(), [*_gaps(names, runs)]
    items = question_items(templates, policies, questions, {})
    page = templates.get_template("comparison.html.j2").render(
        names=names,
        runs=runs,
        colours=COLOURS,
        cells=[_cells(run) for run in runs],
        charts=charts(names, runs),
        differing=differing(runs),
        questions=browser(templates, "question", facets_of({}), items, list(policies)),
        question_count=len(items),
        gaps=gaps,
    )
    joined = "-".join(names).replace("/", "-")  # so that none replaces that of others
    return page, f"{COMPARISON}-{joined[:FILE_NAME_CHARS]}.html", gaps


def names_of(runs: Sequence[LoadedRun]) -> list[str]:
    """Return the names of the runs' folders, with their parents' where two are the same."""
    names = [run.folder.id for run in runs]
    if len(set(names)) == len(names):
        return names
    return [f"{run.folder.path.parent.name}/{run.folder.id}" for run in runs]


def _gaps(names: Sequence[str], runs: Sequence[LoadedRun]) -> Iterator[Gap]:
    digests = ("data_digest", "server_digest")
    if any(len({run.settings.get(name) for run in runs}) > 1 for name in digests):
        yield Gap("the runs have other data or rules: their rates are not of the same questions")
    for name, run in zip(names, runs, strict=True):
        if not run.finished:
            what = f"{name} is not finished: it is at step {run.last_step}"
            yield Gap(what, how_to_resume(run.folder.path, run.settings))


def _cells(run: LoadedRun) -> list[Mapping[str, Any] | None]:
    """Return the rates of the table: before and after, greedy and sampled, then unseen after."""
    rates = [rate_of(run.summaries, phase, mode) for mode in MODES for phase in ("before", "after")]
    return [*rates, *(rate_of(run.summaries, "after", mode, "unseen") for mode in MODES)]


def differing(runs: Sequence[LoadedRun]) -> list[tuple[str, list[str]]]:
    """Return (setting, its value in each run) of the settings that are not the same in all."""
    settings: list[dict[str, Any]] = [
        {
            "command": run.settings.get("command", "train"),
            "preset": run.settings.get("preset"),
            **run.config,
            **(run.settings.get("options") or {}),
        }
        for run in runs
    ]
    table = {
        name: [plain(one[name]) if name in one else "–" for one in settings]
        for name in dict.fromkeys(name for one in settings for name in one if name not in PATHS)
    }
    return [(name, values) for name, values in table.items() if len(set(values)) > 1]


def charts(names: Sequence[str], runs: Sequence[LoadedRun]) -> list[Chart]:
    """Return success of the runs' training episodes and on eval questions, and their reward."""
    trained: dict[str, list[Series]] = {"success": [], "reward": []}
    measured = list[Series]()
    for number, (name, run) in enumerate(zip(names, runs, strict=True)):
        colour = COLOURS[number]
        for key, lines in trained.items():
            # the first is solid below the dashes of the others, so that equal curves are both seen
            kind: Any = "broken" if number else "line"
            lines.append(Series(name, smoothed(points(run.metrics, key)), colour, kind, band=True))
        curve = curve_points(run.metrics, "greedy")
        measured.append(Series(f"{name}, eval curve", curve, colour, "dashed"))
        whole = [
            Point(step, rate["rate"], *rate["ci95"])
            for phase, step in (("before", 0), ("after", run.last_step))
            if (rate := rate_of(run.summaries, phase, "greedy"))
        ]
        measured.append(Series(f"{name}, before and after", whole, colour, "diamonds"))
    shares: dict[str, Any] = {"form": percent, "bounds": (0.0, 1.0)}
    whiskers = "Whiskers: 95 % Wilson intervals."
    success, evaluated = "Success of the training episodes", "Success on eval questions, greedy"
    return [
        Chart("success", success, trained["success"], note=RUNNING, **shares),
        Chart("eval", evaluated, measured, note=whiskers, **shares),
        Chart("reward", "Reward per training episode", trained["reward"], note=RUNNING),
    ]
