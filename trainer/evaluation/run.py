"""Run one evaluation, from its settings to its result."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

import torch
from rich.console import Console

from shared.console import percent, print_line
from shared.dataset import left_out
from shared.models import DEFAULT_STANDARD, ServerMetadata
from trainer.errors import RunError
from trainer.evaluation.analysis import analyse, paired_groups
from trainer.evaluation.evaluate import PromptRow
from trainer.evaluation.inputs import Inputs, JobOptions, load_inputs
from trainer.evaluation.measure import connected
from trainer.evaluation.play import play_missing, player, questions_of
from trainer.evaluation.records import EvaluationFolder, Measured, read_measured
from trainer.evaluation.settings import EvaluationSettings
from trainer.evaluation.tables import behaviour_table, paired_table, success_table
from trainer.run.console import bar
from trainer.run.folder import check_writable, write_json
from trainer.run.lock import held
from trainer.run.summary import versions
from trainer.runtime.cpu_budget import limit_threads
from trainer.runtime.interrupt import Interrupts
from trainer.runtime.ranks import check_one_gpu

EvaluationResult = dict[str, Any]  # evaluation.json, which docs/evaluate.md describes


def run_evaluation(settings: EvaluationSettings, console: Console) -> EvaluationResult:
    """Play what is missing, print the tables and return the content of evaluation.json.

    Without `settings.out` nothing is kept. An interruption keeps the completed batches.
    """
    other = None if settings.against is None else read_measured(settings.against, settings.mode)
    with Interrupts(), ExitStack() as stack:
        out = settings.out
        folder = EvaluationFolder(
            out or Path(stack.enter_context(TemporaryDirectory(prefix="sqlenv-eval-")))
        )
        check_writable(folder.result)
        stack.enter_context(held(folder.path))
        limit_threads()
        model = settings.policy == "model"
        if model:
            check_one_gpu(settings.config, torch.cuda.device_count(), training=False)
        inputs = load_inputs(
            settings.config, JobOptions(), settings.split, training=False, with_model=model
        )
        rows = questions_of(settings, inputs)
        if other is not None:
            _check_comparable(other, inputs, rows)
        config = settings.config
        if settings.temperature is not None:
            config = replace(config, temperature=settings.temperature)
        servers, log = settings.servers, folder.server_log
        connection = stack.enter_context(connected(config, servers, inputs, log))
        metadata = connection.metadata
        identity = settings.identity(inputs, metadata, len(rows))
        folder.start(
            {
                "evaluation": identity,
                "base_url": settings.base_url,
                "config": asdict(config),
                "reward_version": metadata.reward_version,
                "data_digest": inputs.data_digest,
                "model_digest": inputs.model_digest,
                "server_digest": metadata.digest,
            }
        )
        playing = player(settings, inputs, connection.config, connection.client)
        started, total = monotonic(), len(rows) * settings.samples
        with bar(console, f"{settings.split} ({settings.policy})", total) as progress:
            try:
                play_missing(folder, settings, rows, inputs, playing, progress)
            except KeyboardInterrupt:
                if out is not None:
                    done = len(folder.played())
                    kept = f"{done} episodes are kept in {out}: the same command resumes it"
                    print_line(console, kept)
                raise
        session = {
            "wall_s": round(monotonic() - started, 3),
            "model_server": playing.usage() or None,
        }
        result = build_result(settings, folder, inputs, metadata, identity, rows, other) | session
        show(result, console)
        if out is not None:
            write_json(folder.result, result)
            print_line(console, f"wrote {folder.result}")
        return result


def _check_comparable(other: Measured, inputs: Inputs, rows: Sequence[PromptRow]) -> None:
    """Raise `RunError` if another measurement has other data or none of the questions."""
    if other.data_digest != inputs.data_digest:
        raise RunError(
            f"{other.name} was measured on other data (digest {other.data_digest[:12]}) than this "
            f"evaluation ({inputs.data_digest[:12]}): use the same --data to compare them"
        )
    if other.success.keys().isdisjoint(row["question_id"] for row in rows):
        raise RunError(
            f"{other.name} has none of these questions: measure both on the same split and "
            "databases"
        )


def build_result(
    settings: EvaluationSettings,
    folder: EvaluationFolder,
    inputs: Inputs,
    metadata: ServerMetadata,
    identity: Mapping[str, Any],
    rows: Sequence[PromptRow],
    other: Measured | None,
) -> EvaluationResult:
    """Return what evaluation.json has of all sessions, from the folder's lines alone: a resumed
    evaluation gives the same as an uninterrupted one."""
    wanted = {(row["question_id"], sample) for row in rows for sample in range(settings.samples)}
    played = folder.played()
    episodes = [played[key] for key in sorted(wanted & played.keys())]
    result: EvaluationResult = {
        "policy": settings.policy,
        "label": settings.label,
        "model": settings.config.model_name if settings.has_model else None,
        "base_url": settings.base_url or None,
        "mode": settings.mode,
        "temperature": settings.temperature if settings.has_model else None,
        "split": settings.split,
        "questions": len(rows),
        "samples": settings.samples,
        "seed": settings.seed,
        "standard": settings.config.standard,
        "success": analyse(episodes, settings.pass_ks, inputs.book.source_difficulties),
        "episodes": len(episodes),
        "episodes_missing": len(wanted) - len(episodes),
        "versions": versions(metadata.sqlite_version),
        "digests": {
            "data": inputs.data_digest,
            "server": metadata.digest,
            "model": inputs.model_digest or None,
        },
    }
    if (dropped := left_out(settings.config.data_dir, settings.split)) is not None:
        result["left_out"] = {"of": dropped[1], "reasons": dropped[0]}
    if other is not None:
        result["paired"] = {
            "against": other.name,
            "differs": {
                name: {"before": other.settings[name], "after": value}
                for name, value in identity.items()
                if other.settings.get(name, value) != value
            },
            **paired_groups(other.success, episodes),
        }
    return result


def show(result: EvaluationResult, console: Console) -> None:
    """Print the tables, and what was lost or cut."""
    questions = f"{result['questions']} {result['split']} questions"
    title = f"{result['label']}: success in % [95 %] on {questions}"
    if result["standard"] != DEFAULT_STANDARD:
        title += f", standard {result['standard']}"
    console.print(success_table(result["success"], title))
    console.print(behaviour_table(result["success"]))
    if paired := result.get("paired"):
        console.print(paired_table(paired))
        names = ", ".join(paired["differs"]) or "none: it is the same measurement"
        print_line(console, f"settings that differ: {names}")
    if (dropped := result.get("left_out")) and dropped["reasons"]:
        reasons = ", ".join(f"{count} {reason}" for reason, count in dropped["reasons"].items())
        count = sum(dropped["reasons"].values())
        share = percent(count / dropped["of"])
        print_line(console, f"the import left out {count} of {dropped['of']} ({share}): {reasons}")
    if missing := result["episodes_missing"]:
        lost = (
            f"{missing} episodes were lost to infrastructure: with --out DIR, the same command "
            "plays only them"
        )
        print_line(console, lost, style="yellow")
    if usage := result["model_server"]:
        counts = ", ".join(f"{name} {value:,}" for name, value in usage.items())
        print_line(console, f"model server: {counts}")
