"""Run one evaluation, from its settings to its result: the episodes that are missing, by which
policy, and the tables."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, NamedTuple

import torch
from rich.console import Console

from shared.console import percent, print_line
from shared.dataset import OPEN, left_out, load_questions, split_path
from shared.models import DEFAULT_STANDARD, ServerMetadata
from trainer.config import GRPOConfig
from trainer.errors import ConfigError, RunError
from trainer.evaluation.analysis import analyse, paired_groups
from trainer.evaluation.evaluate import BATCH, Play, PromptRow, choose, play_tasks
from trainer.evaluation.inputs import Inputs, JobOptions, load_inputs
from trainer.evaluation.measure import EVAL_TEMPERATURE, batch_of, connected, model_play, play_with
from trainer.evaluation.records import EvaluationFolder, Measured, read_measured
from trainer.evaluation.settings import EvaluationSettings
from trainer.evaluation.tables import (
    agreement_line,
    attempts_table,
    behaviour_table,
    paired_table,
    success_table,
)
from trainer.rollout.generators.base import AnyPolicy
from trainer.rollout.generators.policies import RandomPolicy, oracle_policy
from trainer.rollout.loop import EpisodeClient
from trainer.rollout.prompts import NO_ROWS, NOTE
from trainer.rollout.row import RolloutRow
from trainer.rollout.vote import attempt_of
from trainer.run.folder import append_lines, check_writable, held, write_json
from trainer.run.progress import Pace, PlayProgress, bar
from trainer.run.records import append_observations, drop_observations
from trainer.run.summary import versions
from trainer.runtime.cpu_budget import limit_threads
from trainer.runtime.interrupt import Interrupts
from trainer.runtime.ranks import check_one_gpu

EvaluationResult = dict[str, Any]  # evaluation.json, which docs/evaluate.md describes


def run_evaluation(
    settings: EvaluationSettings, console: Console, on_pace: Callable[[Pace], None] | None = None
) -> EvaluationResult:
    """Play what is missing, print the tables and return the content of evaluation.json.

    Without `settings.out` nothing is kept. An interruption keeps the episodes that have ended.
    `on_pace` is that of a `PlayProgress`.
    """
    other = None if settings.against is None else read_measured(settings.against)
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
        started = monotonic()
        try:
            play_missing(folder, settings, rows, inputs, playing, console, on_pace)
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


class Playing(NamedTuple):
    """A policy ready to play, its batch size, and the running counts of a model server."""

    play: Play
    batch: int
    usage: Callable[[], dict[str, int]] = dict


def questions_of(settings: EvaluationSettings, inputs: Inputs) -> list[PromptRow]:
    """Return the filtered prompt rows. `ConfigError` if a database is unknown, or none is left."""
    rows = inputs.evaluation
    known = sorted({row["database_name"] for row in rows})
    if unknown := sorted(set(settings.databases) - set(known)):
        raise ConfigError(
            f"no {settings.split} question of database {unknown[0]!r}; "
            f"the databases are {', '.join(known)}"
        )
    kept = [
        row
        for row in rows
        if (not settings.question_ids or row["question_id"] in settings.question_ids)
        and (not settings.databases or row["database_name"] in settings.databases)
    ]
    if not kept:
        raise ConfigError(
            f"none of the {len(rows)} {settings.split} questions is left: change --db"
        )
    return choose(kept, settings.limit)


def play_missing(
    folder: EvaluationFolder,
    settings: EvaluationSettings,
    rows: Sequence[PromptRow],
    inputs: Inputs,
    playing: Playing,
    console: Console,
    on_pace: Callable[[Pace], None] | None = None,
) -> None:
    """Play the episodes that are not in the folder yet, and store each when it ends.

    Episodes lost to infrastructure are not stored, so that a resumed evaluation plays them.
    `RolloutError` if they are more than `max_lost_fraction` of all. `on_pace` is that of a
    `PlayProgress`.
    """
    stored = folder.played()
    # the samples of a question together: what they read alike is computed once
    tasks = [(sample, row) for row in rows for sample in range(settings.samples)]
    missing = [task for task in tasks if (task[1]["question_id"], task[0]) not in stored]
    done = len(tasks) - len(missing)
    # an earlier session may have played more samples
    right = sum(one.correct for one in stored.values() if one.sample < settings.samples)

    def keep(ended: Sequence[RolloutRow]) -> None:
        append_observations(folder.observations, 0, ended, [row.repeat for row in ended])
        lines = [
            inputs.book.episode(row).as_line(
                settings.split,
                settings.mode,
                0,
                sample=row.repeat,
                prompt_tokens=row.prompt_tokens,
                sampled_tokens=row.sampled_tokens,
                **seen_in(row),
            )
            for row in ended
        ]
        append_lines(folder.episodes, lines)

    remedy = "check the servers, then give the same command again"
    if settings.out is not None:
        remedy += ", which plays what is missing"
    with bar(console, f"{settings.split} ({settings.policy})", len(tasks), done) as shown:
        progress = PlayProgress(
            shown,
            settings.config.step_budget,
            total=len(tasks),
            done=done,
            correct=None if settings.split == OPEN else right,
            keep=keep,
            on_pace=on_pace,
        )
        play_tasks(
            playing.play,
            missing,
            progress,
            batch=playing.batch,
            total=len(tasks),
            max_lost_fraction=settings.config.max_lost_fraction,
            remedy=remedy,
        )
    # drops none, but writes them as one compressed member: a third of the size
    drop_observations(folder.observations, 0)


def seen_in(row: RolloutRow) -> dict[str, Any]:
    """Return the fields of a line by which the attempts at a question are compared."""
    attempt = attempt_of(row)
    read = (one["content"].split("\n") for one in row.transcript if one["role"] == "user")
    return {
        "answer": attempt.key,
        "logprob": attempt.logprob,
        "remarks": [line for lines in read for line in lines if line.startswith((NO_ROWS, NOTE))],
        "error_codes": row.env_errors,
    }


def player(
    settings: EvaluationSettings, inputs: Inputs, config: GRPOConfig, client: EpisodeClient
) -> Playing:
    """Return the policy of `settings`, ready to play on the servers of `client`."""
    seed = settings.seed
    if settings.policy == "model":
        mode, temperature = settings.mode, settings.temperature or EVAL_TEMPERATURE
        play = model_play(inputs.model, inputs.tokenizer, config, client, mode, seed, temperature)
        return Playing(play, batch_of(inputs.model, config))
    if settings.policy == "openai":
        from trainer.rollout.served import served_model

        server, options = served_model(
            config,
            settings.base_url,
            settings.api,
            settings.tokenizer,
            temperature=settings.temperature or 0.0,
            concurrency=settings.concurrency,
        )
        play = play_with(config, client, seed, **options)
        # two rounds of concurrent requests, so that a slow one doesn't hold up all
        return Playing(play, 2 * settings.concurrency, partial(asdict, server.usage))
    policy: AnyPolicy = RandomPolicy()
    if settings.policy == "oracle":
        golds = load_questions(split_path(config.questions_path, settings.split))
        policy = oracle_policy(golds, config.step_budget)
    return Playing(play_with(config, client, seed, policy=policy), BATCH)


def _check_comparable(other: Measured, inputs: Inputs, rows: Sequence[PromptRow]) -> None:
    """Raise `RunError` if another measurement has other data or none of the questions."""
    digest = other.settings["data_digest"]
    if digest != inputs.data_digest:
        raise RunError(
            f"{other.name} was measured on other data (digest {digest[:12]}) than this "
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
        **identity,
        "label": settings.label,
        "model": settings.config.model_name if settings.has_model else None,
        "base_url": settings.base_url or None,
        "success": analyse(episodes, settings.pass_ks, inputs.book.source_difficulties),
        "episodes": len(episodes),
        "episodes_missing": len(wanted) - len(episodes),
        "versions": versions(metadata.sqlite_version),
    }
    if (dropped := left_out(settings.config.data_dir, settings.split)) is not None:
        result["left_out"] = {"of": dropped[1], "reasons": dropped[0]}
    if other is not None:
        result["paired"] = {
            "against": other.name,
            "differs": {
                name: {"before": other.settings[name], "after": value}
                for name, value in identity.items()
                if name != "model_digest" and other.settings.get(name, value) != value
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
    if result["samples"] > 1:
        console.print(attempts_table(result["success"]["overall"]))
        print_line(console, agreement_line(result["success"]["overall"]))
    console.print(behaviour_table(result["success"]))
    if paired := result.get("paired"):
        console.print(paired_table(paired))
        if names := ", ".join(paired["differs"]):
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
