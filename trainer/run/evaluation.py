"""Run one evaluation, a run of one phase: from its settings, which are checked before anything is
read or played, to the episodes that are missing and the result."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

import torch
from rich.console import Console

from shared.console import print_line
from shared.dataset import OPEN, left_out, load_questions, split_path
from shared.models import ServerMetadata
from shared.run_stats import Mode
from shared.seeds import EVAL_SEED
from trainer.config.presets import MODEL_SETTINGS
from trainer.config.settings import ApiName, ConfigError, GRPOConfig, PolicyName
from trainer.errors import RunError
from trainer.rollout.generators.base import AnyPolicy
from trainer.rollout.generators.policies import RandomPolicy, oracle_policy
from trainer.rollout.loop import EpisodeClient
from trainer.rollout.prompts import prompt_digest
from trainer.run.analysis import Tries, analyse, paired_groups, tries_of
from trainer.run.folder import Run, begin_or_resume, check_writable, held, read_json, write_json
from trainer.run.inputs import Inputs, JobOptions, as_saved, load_inputs
from trainer.run.measurement import BATCH, Play, PromptRow, Task, choose, key_of, play_missing
from trainer.run.players import EVAL_TEMPERATURE, batch_of, connected, model_play, play_with
from trainer.run.printed_tables import show
from trainer.run.progress import Pace
from trainer.run.records import EpisodeRecord, Key, append_records, keep_records, read_records
from trainer.run.summary import versions
from trainer.runtime.cpu_budget import limit_threads
from trainer.runtime.interrupt import Interrupts
from trainer.runtime.ranks import check_one_gpu

EvaluationResult = dict[str, Any]  # evaluation.json, which docs/evaluate.md describes


@dataclass(frozen=True, kw_only=True)
class EvaluationSettings:
    config: GRPOConfig
    policy: PolicyName = "model"
    base_url: str = ""  # of the model server, for openai
    api: ApiName = "chat"
    tokenizer: str | None = None  # for completions; None: that of the model's name
    split: str = "eval"
    databases: tuple[str, ...] = ()  # empty: all
    limit: int = 0  # questions; 0: all
    question_ids: tuple[str, ...] = ()  # empty: all
    samples: int = 1  # episodes per question
    temperature: float | None = EVAL_TEMPERATURE  # None: greedy
    seed: int = EVAL_SEED
    servers: tuple[str, ...] = ()  # empty: start one
    out: Path | None = None
    against: Path | None = None
    concurrency: int = 32

    def __post_init__(self) -> None:
        if self.policy == "openai" and not self.base_url:
            raise ConfigError(
                "the openai policy needs the model server's address: --base-url http://host:8000/v1"
            )
        if self.policy != "openai" and (self.base_url or self.api != "chat"):
            raise ConfigError(f"--base-url and --api are for --policy openai, not {self.policy}")
        if self.split == OPEN and (self.policy == "oracle" or self.against):
            named = "--policy oracle" if self.policy == "oracle" else "--against"
            raise ConfigError(f"open questions have no gold: leave out {named}")
        if self.tokenizer is not None and self.api != "completions":
            raise ConfigError("--tokenizer is for --api completions: a server's chat needs none")
        # a model server may be non-deterministic even when greedy
        if self.samples > 1 and self.mode == "greedy" and self.policy != "openai":
            remedy = "leave out --samples" + (" or --greedy" if self.policy == "model" else "")
            raise ConfigError(f"{self.samples} samples of a deterministic policy: {remedy}")

    @property
    def has_model(self) -> bool:
        return self.policy in ("model", "openai")

    @property
    def mode(self) -> Mode:
        greedy = self.policy == "oracle" or (self.has_model and self.temperature is None)
        return "greedy" if greedy else "sampled"

    @property
    def pass_ks(self) -> list[int]:
        """Return the k of pass@k: powers of 2 below `samples`, and `samples`."""
        return [2**n for n in range((self.samples - 1).bit_length())] + [self.samples]

    @property
    def label(self) -> str:
        if not self.has_model:
            return self.policy
        how = "greedy" if self.temperature is None else f"at temperature {self.temperature:g}"
        return f"{self.config.model_name} {how}"

    def identity(self, inputs: Inputs, metadata: ServerMetadata, questions: int) -> dict[str, Any]:
        """Return what decides the episodes, as JSON values, and a resumed evaluation must keep. A
        local model is identified by its digest, a model behind a server by its name."""
        named = ("policy", "api", "mode", "split", "limit", "samples", "seed", "temperature")
        of_config, config = ("step_budget", "standard", *MODEL_SETTINGS), self.config
        return {
            **{name: getattr(self, name) for name in named},
            **{name: getattr(config, name) for name in of_config},
            "model": config.model_name if self.policy == "openai" else None,
            "difficulty": sorted(config.difficulty_filter),
            "databases": sorted(self.databases),
            "question_ids": list(self.question_ids),
            "questions": questions,
            "data_digest": inputs.data_digest,
            "server_digest": metadata.digest,
            "prompt_digest": prompt_digest(config.system_prompt),
            "model_digest": inputs.model_digest,
        }


@dataclass(frozen=True)
class Measured:
    name: str
    settings: Mapping[str, Any]
    tries: Mapping[str, Tries]


def read_measured(path: Path) -> Measured:
    """Read an evaluation, or the greedy measurement of a run after its training."""
    folder = Run(path)
    saved = read_json(folder.config) if folder.config.is_file() else {}
    if "config" not in saved:
        raise RunError(f"no run and no evaluation at {path}: name the folder of one")
    settings = saved.get("evaluation")
    if settings is not None:
        if settings["split"] == OPEN:
            raise RunError(f"{path} has open questions: without a gold, no success is known")
        asked = settings["samples"]  # more may have been played before
        records = (one for one in read_records(folder, seen=False) if one.sample < asked)
    else:
        settings = {**saved["config"], **saved, "split": "eval", "mode": "greedy"}
        settings |= {"temperature": None}
        del settings["seed"]  # of training
        after = read_records(folder, lambda phase, step: phase == "after", seen=False)
        records = (one for one in after if one.mode == "greedy")
    tries = tries_of(records)
    if not tries:
        raise RunError(f"{folder.episodes} has no finished episode to compare with")
    return Measured(str(path), settings, tries)


def mixed_questions(path: Path, digest: str) -> list[str]:
    """Return the ids of an evaluation's training questions with both right and wrong episodes, if
    it was of the data with this digest."""
    found = read_measured(path)
    _check_data(found, digest)
    remedy = "make it with 'python -m trainer evaluate --split train --samples 8'"
    if found.settings["split"] != "train":
        raise RunError(f"{path} has no training questions: {remedy}")
    mixed = sorted(name for name, one in found.tries.items() if 0 < one.right < one.played)
    if not mixed:
        raise RunError(f"no question at {path} has both right and wrong episodes: {remedy}")
    return mixed


def run_evaluation(
    settings: EvaluationSettings, console: Console, on_pace: Callable[[Pace], None] | None = None
) -> EvaluationResult:
    """Play what is missing, print the tables and return the content of evaluation.json.

    Without `settings.out` nothing is kept. Episodes lost to infrastructure are not stored, so that
    a resumed evaluation plays them; `RolloutError` if they are more than `max_lost_fraction` of
    all.
    """
    other = None if settings.against is None else read_measured(settings.against)
    with Interrupts(), ExitStack() as stack:
        out, config = settings.out, settings.config
        folder = Run(out or Path(stack.enter_context(TemporaryDirectory(prefix="sqlenv-eval-"))))
        check_writable(folder.result)
        stack.enter_context(held(folder.path))
        limit_threads()
        model, split = settings.policy == "model", settings.split
        if model:
            check_one_gpu(config, torch.cuda.device_count(), training=False)
        inputs = load_inputs(config, JobOptions(), split, training=False, with_model=model)
        rows = questions_of(settings, inputs)
        if other is not None:
            _check_comparable(other, inputs, rows)
        if settings.temperature is not None:
            config = replace(config, temperature=settings.temperature)
        connection = stack.enter_context(
            connected(config, settings.servers, inputs, folder.server_log)
        )
        metadata = connection.metadata
        identity = settings.identity(inputs, metadata, len(rows))
        named = {"evaluation": identity, "base_url": settings.base_url}
        begin_or_resume(folder.config, as_saved(config, inputs, metadata, **named), _deciding)
        keep_records(folder, lambda row: True)  # without what a crash cut
        found = {one.key: one for one in read_records(folder, seen=False)}
        play, batch, usage = player(settings, inputs, connection.config, connection.client)
        # the samples of a question together: what they read alike is computed once
        tasks = [(row, sample) for row in rows for sample in range(settings.samples)]
        remedy = "check the servers, then give the same command again"
        started = monotonic()
        try:
            play_missing(
                play,
                tasks,
                found,
                partial(inputs.book.episode, phase=split, mode=settings.mode, logprobs=True),
                keep=partial(append_records, folder),
                batch=batch,
                max_lost_fraction=config.max_lost_fraction,
                remedy=remedy if out is None else f"{remedy}, which plays what is missing",
                step_budget=config.step_budget,
                title=f"{split} ({settings.policy})",
                console=console,
                on_pace=on_pace,
            )
        except KeyboardInterrupt:
            if out is not None:
                kept = f"{len(found)} episodes are kept in {out}: the same command resumes it"
                print_line(console, kept)
            raise
        keep_records(folder, lambda row: True)  # as one compressed member
        session = {"wall_s": round(monotonic() - started, 3), "model_server": usage() or None}
        result = build_result(settings, inputs, metadata, identity, tasks, found, other) | session
        show(result, console)
        if out is not None:
            write_json(folder.result, result)
            print_line(console, f"wrote {folder.result}")
        return result


def _deciding(settings: Mapping[str, Any]) -> dict[str, Any]:
    kept = settings.get("evaluation", {})
    return {name: value for name, value in kept.items() if name != "samples"}


def questions_of(settings: EvaluationSettings, inputs: Inputs) -> list[PromptRow]:
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


def player(
    settings: EvaluationSettings, inputs: Inputs, config: GRPOConfig, client: EpisodeClient
) -> tuple[Play, int, Callable[[], dict[str, int]]]:
    """Return the policy ready to play, its batch size, and the running counts of a model server."""
    seed = settings.seed
    if settings.policy == "model":
        mode, temperature = settings.mode, settings.temperature or EVAL_TEMPERATURE
        play = model_play(inputs.model, inputs.tokenizer, config, client, mode, seed, temperature)
        return play, batch_of(inputs.model, config), dict
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
        return play, 2 * settings.concurrency, partial(asdict, server.usage)
    policy: AnyPolicy = RandomPolicy()
    if settings.policy == "oracle":
        golds = load_questions(split_path(config.questions_path, settings.split))
        policy = oracle_policy(golds, config.step_budget)
    return play_with(config, client, seed, policy=policy), BATCH, dict


def _check_data(other: Measured, digest: str) -> None:
    of_other = other.settings["data_digest"]
    if of_other != digest:
        raise RunError(
            f"{other.name} was measured on other data (digest {of_other[:12]}) than these "
            f"({digest[:12]}): use the same --data"
        )


def _check_comparable(other: Measured, inputs: Inputs, rows: Sequence[PromptRow]) -> None:
    _check_data(other, inputs.data_digest)
    if other.tries.keys().isdisjoint(row["question_id"] for row in rows):
        raise RunError(
            f"{other.name} has none of these questions: measure both on the same split and "
            "databases"
        )


def build_result(
    settings: EvaluationSettings,
    inputs: Inputs,
    metadata: ServerMetadata,
    identity: Mapping[str, Any],
    tasks: Sequence[Task],
    found: Mapping[Key, EpisodeRecord],
    other: Measured | None,
) -> EvaluationResult:
    """Return what evaluation.json has of all sessions, from the `found` episodes alone: a resumed
    evaluation gives the same as an uninterrupted one."""
    wanted = set(map(key_of, tasks))
    episodes = [found[key] for key in sorted(wanted & found.keys())]
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
            **paired_groups(other.tries, episodes),
        }
    return result
