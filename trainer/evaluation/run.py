"""One evaluation from its settings to its result."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console

from shared.models import ServerMetadata
from trainer.errors import RunError
from trainer.evaluation.analysis import analyse, compare_groups, usage
from trainer.evaluation.evaluate import PromptRow
from trainer.evaluation.inputs import Inputs, JobOptions, load_inputs
from trainer.evaluation.measure import connected
from trainer.evaluation.play import play_missing, player, questions_of, tasks
from trainer.evaluation.records import EvaluationFolder, Measured, read_measured
from trainer.evaluation.settings import EvaluationSettings
from trainer.evaluation.tables import behaviour_table, paired_table, success_table
from trainer.run.console import bar, number
from trainer.run.folder import check_writable, write_json
from trainer.run.summary import versions
from trainer.runtime.cpu_budget import limit_threads
from trainer.runtime.interrupt import Interrupts


def run_evaluation(settings: EvaluationSettings, console: Console) -> dict[str, Any]:
    """Play what is missing, print the tables and return what evaluation.json holds.

    Without `settings.out` nothing is kept. An interruption keeps the batches that were finished,
    and says how to go on.
    """
    other = None if settings.against is None else read_measured(settings.against, settings.mode)
    with Interrupts(), ExitStack() as stack:
        if settings.out is not None:
            check_writable(settings.out / "evaluation.json")
        folder = EvaluationFolder(
            settings.out or Path(stack.enter_context(TemporaryDirectory(prefix="sqlenv-eval-")))
        )
        limit_threads()
        model = settings.policy == "model"
        inputs = load_inputs(
            settings.config, JobOptions(), settings.split, training=False, with_model=model
        )
        rows = questions_of(settings, inputs)
        if other is not None:
            _check_comparable(other, inputs, rows)
        there = stack.enter_context(
            connected(settings.playing(), settings.servers, inputs, folder.server_log)
        )
        folder.begin(_settings(settings, inputs, there.metadata, rows))
        playing = stack.enter_context(player(settings, inputs, there.config, there.client))
        done = len(rows) * settings.samples - len(tasks(rows, settings.samples, folder.played()))
        right = sum(one.correct for one in folder.played().values())
        with bar(
            console, f"{settings.split} ({settings.policy})", len(rows) * settings.samples
        ) as shown:

            def on_batch(episodes: int, correct: int) -> None:
                nonlocal done, right
                done, right = done + episodes, right + correct
                shown.to(done, f"success {number(right / done, '.1%') if done else '-'}")

            try:
                play_missing(folder, settings, rows, inputs, playing, on_batch)
            except KeyboardInterrupt:
                if settings.out is not None:
                    said = f"{done} episodes are kept in {settings.out}: the same command goes on from there"
                    console.print(said, markup=False, highlight=False, soft_wrap=True)
                raise
        result = build_result(settings, folder, inputs, there.metadata, rows, other)
        show(result, console)
        if settings.out is not None:
            write_json(folder.result, result)
            console.print(
                f"written to {folder.result}", markup=False, highlight=False, soft_wrap=True
            )
        return result


def _check_comparable(other: Measured, inputs: Inputs, rows: Sequence[PromptRow]) -> None:
    """`RunError`, before anything is played, where another measurement has other data or none of
    the questions."""
    if other.data_digest != inputs.data_digest:
        raise RunError(
            f"{other.name} was measured on other data (digest {other.data_digest[:12]}) than this one "
            f"({inputs.data_digest[:12]}): the questions don't compare"
        )
    if other.success.keys().isdisjoint(row["question_id"] for row in rows):
        raise RunError(
            f"{other.name} has none of these questions: measure both on the same split and databases"
        )


def _settings(
    settings: EvaluationSettings,
    inputs: Inputs,
    metadata: ServerMetadata,
    rows: Sequence[PromptRow],
) -> dict[str, Any]:
    """config.json: what `EvaluationFolder.begin` compares, and what a replay reads of any run."""
    return {
        "evaluation": settings.identity(inputs, metadata, [row["question_id"] for row in rows]),
        "base_url": settings.base_url,
        "config": asdict(settings.playing()),
        "reward_version": metadata.reward_version,
        "data_digest": inputs.data_digest,
        "model_digest": inputs.model_digest,
        "server_digest": metadata.digest,
    }


def build_result(
    settings: EvaluationSettings,
    folder: EvaluationFolder,
    inputs: Inputs,
    metadata: ServerMetadata,
    rows: Sequence[PromptRow],
    other: Measured | None,
) -> dict[str, Any]:
    """The whole of evaluation.json, from the folder's lines alone: a resumed evaluation says what a
    whole one does."""
    asked = {(row["question_id"], sample) for row in rows for sample in range(settings.samples)}
    played = folder.played()
    episodes = [played[key] for key in sorted(asked & played.keys())]
    took = folder.took()
    result: dict[str, Any] = {
        "policy": settings.policy,
        "label": settings.label,
        "model": settings.config.model_name if settings.policy in ("model", "openai") else None,
        "base_url": settings.base_url or None,
        "mode": settings.mode,
        "temperature": settings.temperature if settings.policy in ("model", "openai") else None,
        "split": settings.split,
        "questions": len(rows),
        "samples": settings.samples,
        "seed": settings.seed,
        "success": analyse(episodes, settings.pass_ks),
        "episodes": len(episodes),
        # lost to infrastructure: the same command plays them
        "episodes_missing": len(asked) - len(episodes),
        "wall_s": round(took.get("wall_s", 0.0), 3),
        "model_server": usage(took) or None,
        "versions": versions(metadata.sqlite_version),
        "digests": {
            "data": inputs.data_digest,
            "server": metadata.digest,
            "model": inputs.model_digest or None,
        },
    }
    if other is not None:
        result["paired"] = _paired(
            settings, inputs, metadata, rows, other, compare_groups(other.success, episodes)
        )
    return result


def _paired(
    settings: EvaluationSettings,
    inputs: Inputs,
    metadata: ServerMetadata,
    rows: Sequence[PromptRow],
    other: Measured,
    found: dict[str, Any],
) -> dict[str, Any]:
    """The comparison with another measurement, and in which of the settings that both have the two
    differ."""
    own = settings.identity(inputs, metadata, [row["question_id"] for row in rows])
    differs = {
        name: {"before": other.settings[name], "after": own[name]}
        for name in own
        if name in other.settings and other.settings[name] != own[name]
    }
    return {"against": other.name, "differs": differs, **found}


def show(result: dict[str, Any], console: Console) -> None:
    """The tables, and what was lost or cut."""
    console.print(success_table(result, result["label"]))
    console.print(behaviour_table(result))
    if paired := result.get("paired"):
        console.print(paired_table(paired))
        names = ", ".join(paired["differs"]) or "none: it is the same measurement"
        console.print(
            f"settings that differ: {names}", markup=False, highlight=False, soft_wrap=True
        )
    if result["episodes_missing"]:
        said = f"{result['episodes_missing']} episodes were lost to infrastructure: the same command plays them"
        console.print(said, style="yellow", markup=False, highlight=False, soft_wrap=True)
    if counts := result["model_server"]:
        said = ", ".join(f"{name} {value:,}" for name, value in counts.items())
        console.print(f"model server: {said}", markup=False, highlight=False, soft_wrap=True)
