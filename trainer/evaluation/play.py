"""Play an evaluation: which episodes are missing, and by which policy."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import NamedTuple

from shared.console import percent
from shared.dataset import load_questions
from shared.models import Outcome
from trainer.config import GRPOConfig
from trainer.errors import ConfigError
from trainer.evaluation.evaluate import BATCH, Play, PromptRow, choose
from trainer.evaluation.inputs import Inputs
from trainer.evaluation.measure import EVAL_TEMPERATURE, batch_of, model_play, play_with
from trainer.evaluation.records import EvaluationFolder
from trainer.evaluation.settings import EvaluationSettings
from trainer.rollout.generators.base import AnyPolicy
from trainer.rollout.generators.policies import RandomPolicy, oracle_policy
from trainer.rollout.loop import EpisodeClient, raise_if_lost
from trainer.rollout.row import RolloutRow
from trainer.run.console import Bar
from trainer.run.folder import append_lines
from trainer.run.observations import append_observations


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
        and settings.part in ("all", inputs.book.part(row["database_name"]))
    ]
    if not kept:
        raise ConfigError(
            f"none of the {len(rows)} {settings.split} questions is left: change --part or --db"
        )
    return choose(kept, settings.limit)


def play_missing(
    folder: EvaluationFolder,
    settings: EvaluationSettings,
    rows: Sequence[PromptRow],
    inputs: Inputs,
    playing: Playing,
    progress: Bar,
) -> None:
    """Play the episodes that are not in the folder yet, and store every batch when it ends.

    Episodes lost to infrastructure are not stored, so that a resumed evaluation plays them.
    `RolloutError` if they are more than `max_lost_fraction` of all.
    """
    stored = folder.played()
    # the first sample of every question, then the second, ...
    tasks = [(sample, row) for sample in range(settings.samples) for row in rows]
    missing = [task for task in tasks if (task[1]["question_id"], task[0]) not in stored]
    done, lost = len(tasks) - len(missing), list[RolloutRow]()
    # an earlier session may have played more samples
    correct = sum(one.correct for one in stored.values() if one.sample < settings.samples)
    for start in range(0, len(missing), playing.batch):
        batch = missing[start : start + playing.batch]
        samples = [sample for sample, _ in batch]
        played = playing.play([row["prompt"] for _, row in batch], samples)
        lost += [row for row in played if row.lost is not None]
        kept = [
            (row, sample) for row, sample in zip(played, samples, strict=True) if row.lost is None
        ]
        lines = [
            inputs.book.episode(row).as_line(
                settings.split,
                settings.mode,
                0,
                sample=sample,
                prompt_tokens=row.prompt_tokens,
                sampled_tokens=row.sampled_tokens,
            )
            for row, sample in kept
        ]
        append_observations(
            folder.observations, 0, [row for row, _ in kept], [sample for _, sample in kept]
        )
        append_lines(folder.episodes, lines)
        done += len(lines)
        correct += sum(line["outcome"] == Outcome.CORRECT for line in lines)
        progress.to(done, f"success {percent(correct / done) if done else '-'}")
        remedy = "check the servers, then give the same command again"
        if settings.out is not None:
            remedy += ", which plays what is missing"
        raise_if_lost(lost, len(tasks), settings.config.max_lost_fraction, remedy)


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

        served = served_model(
            config,
            settings.base_url,
            settings.api,
            settings.tokenizer,
            temperature=settings.temperature or 0.0,
            concurrency=settings.concurrency,
        )
        play = play_with(
            config,
            client,
            seed,
            tokenizer=served.tokenizer,
            policy=served.policy,
            generator=served.generator,
        )
        # two rounds of concurrent requests, so that a slow one doesn't hold up all
        return Playing(play, 2 * settings.concurrency, partial(asdict, served.server.usage))
    policy: AnyPolicy = RandomPolicy()
    if settings.policy == "oracle":
        path = Path(config.questions_path).with_name(f"questions_{settings.split}.json")
        policy = oracle_policy(load_questions(path), config.step_budget)
    return Playing(play_with(config, client, seed, policy=policy), BATCH)
