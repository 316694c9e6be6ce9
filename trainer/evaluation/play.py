"""Playing an evaluation: which episodes are missing, in what batches, by which policy."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from shared.dataset import load_questions
from trainer.config import GRPOConfig
from trainer.errors import ConfigError, RolloutError
from trainer.evaluation.evaluate import BATCH, PromptRow, choose
from trainer.evaluation.inputs import Inputs
from trainer.evaluation.measure import batch_of, sampling
from trainer.evaluation.records import EvaluationFolder, Key, line_of
from trainer.evaluation.settings import EvaluationSettings
from trainer.rollout.generators.base import Policy
from trainer.rollout.generators.policies import RandomPolicy, oracle_policy
from trainer.rollout.loop import EpisodeClient, play_episodes
from trainer.rollout.row import RolloutRow


class Player(Protocol):
    """Plays an episode a prompt. `before`: how many of each question's samples come before those of
    this batch."""

    def __call__(
        self, prompts: Sequence[Any], before: Mapping[str, int]
    ) -> Sequence[RolloutRow]: ...


class Playing(NamedTuple):
    """A policy that is ready to play: how, how many episodes at once, and the running counts of a
    model server."""

    play: Player
    batch: int
    counts: Callable[[], Mapping[str, int]] = dict


def questions_of(settings: EvaluationSettings, inputs: Inputs) -> list[PromptRow]:
    """The prompt rows to measure on, after the filters. `ConfigError` where a database is not there
    or none is left."""
    rows = list(inputs.evaluation)
    known = sorted({row["database_name"] for row in rows})
    if unknown := sorted(set(settings.databases) - set(known)):
        raise ConfigError(
            f"no {settings.split} question of database {unknown[0]!r}; there are {', '.join(known)}"
        )
    kept = [
        row
        for row in rows
        if (not settings.databases or row["database_name"] in settings.databases)
        and settings.part in ("all", inputs.book.part(row["database_name"]))
    ]
    if not kept:
        raise ConfigError(
            f"no {settings.split} question is left of {len(rows)}: change --part or --db"
        )
    return choose(kept, settings.limit)


def tasks(
    rows: Sequence[PromptRow], samples: int, played: Mapping[Key, Any]
) -> list[tuple[int, PromptRow]]:
    """The (sample, question) that are not played yet: the first sample of every question, then the
    second, ..."""
    return [
        (sample, row)
        for sample in range(samples)
        for row in rows
        if (row["question_id"], sample) not in played
    ]


def batches(
    missing: Sequence[tuple[int, PromptRow]], size: int
) -> Iterator[list[tuple[int, PromptRow]]]:
    """`missing` in parts of `size` or fewer, in order, where a question's samples in one part
    follow on each other.

    So each episode's random stream is that of its sample's number, whatever was played before.
    """
    part: list[tuple[int, PromptRow]] = []
    last: dict[str, int] = {}
    for sample, row in missing:
        name = row["question_id"]
        if len(part) == size or last.get(name, sample - 1) != sample - 1:
            yield part
            part, last = [], {}
        part.append((sample, row))
        last[name] = sample
    if part:
        yield part


def play_missing(
    folder: EvaluationFolder,
    settings: EvaluationSettings,
    rows: Sequence[PromptRow],
    inputs: Inputs,
    playing: Playing,
    on_batch: Callable[[int, int], None] = lambda played, right: None,
) -> None:
    """Play what is not in the folder yet, and keep every batch as it ends. `on_batch` hears
    (episodes, right ones).

    Episodes that the infrastructure lost are not kept: they are played when the evaluation goes on.
    `RolloutError` where they are more than `max_lost_fraction` of all.
    """
    every, lost = len(rows) * settings.samples, list[str]()
    for part in batches(tasks(rows, settings.samples, folder.played()), playing.batch):
        before: dict[str, int] = {}
        for sample, row in part:
            before.setdefault(row["question_id"], sample)
        began, counted = time.monotonic(), dict(playing.counts())
        played = playing.play([row["prompt"] for _, row in part], before)
        pairs = [
            (sample, row) for (sample, _), row in zip(part, played, strict=True) if row.lost is None
        ]
        lines = [
            line_of(row, inputs.book, settings.split, settings.mode, sample)
            for sample, row in pairs
        ]
        folder.add(
            lines,
            episodes=len(lines),
            lost=len(part) - len(lines),
            wall_s=round(time.monotonic() - began, 3),
            **{f"api_{name}": value - counted[name] for name, value in playing.counts().items()},
        )
        lost += [row.lost for row in played if row.lost is not None]
        on_batch(len(lines), sum(line["outcome"] == "correct" for line in lines))
        if len(lost) > settings.config.max_lost_fraction * every:
            raise RolloutError(
                f"{len(lost)} of {every} episodes were lost to infrastructure, more than "
                f"{settings.config.max_lost_fraction:.0%}: check the servers, then give the same command again, which "
                f"plays what is missing. The first error: {lost[0]}",
                lost=len(lost),
                episodes=every,
            )


@contextmanager
def player(
    settings: EvaluationSettings, inputs: Inputs, config: GRPOConfig, client: EpisodeClient
) -> Iterator[Playing]:
    """The policy that `settings` names, ready to play on the servers of `client` while the block
    lasts."""
    if settings.policy == "model":
        yield Playing(
            _model_player(settings, inputs, config, client), batch_of(inputs.model, config)
        )
    elif settings.policy == "openai":
        from trainer.rollout.generators.openai import OpenAIPolicy

        with OpenAIPolicy(
            config.model_name,
            settings.base_url,
            system_prompt=config.system_prompt,
            temperature=settings.temperature or 0.0,
            max_tokens=config.max_new_tokens,
            timeout_s=settings.timeout_s,
            concurrency=settings.concurrency,
        ) as policy:
            policy.check()
            # two rounds of requests at once, so that a slow one doesn't hold up all
            size = 2 * settings.concurrency
            yield Playing(
                _policy_player(policy, settings, config, client), size, policy.usage.as_dict
            )
    else:
        path = Path(config.questions_path).with_name(f"questions_{settings.split}.json")
        oracle = settings.policy == "oracle"
        text: Policy = (
            oracle_policy(load_questions(path), config.step_budget) if oracle else RandomPolicy()
        )
        yield Playing(_policy_player(text, settings, config, client), BATCH)


def _policy_player(
    policy: Policy, settings: EvaluationSettings, config: GRPOConfig, client: EpisodeClient
) -> Player:
    def play(prompts: Sequence[Any], before: Mapping[str, int]) -> Sequence[RolloutRow]:
        return play_episodes(
            prompts,
            None,
            None,
            config,
            client=client,
            policy=policy,
            seed=settings.seed,
            check_lost=False,
            before=before,
        )

    return play


def _model_player(
    settings: EvaluationSettings, inputs: Inputs, config: GRPOConfig, client: EpisodeClient
) -> Player:
    def play(prompts: Sequence[Any], before: Mapping[str, int]) -> Sequence[RolloutRow]:
        with sampling(inputs.model, config, len(prompts)):
            return play_episodes(
                prompts,
                inputs.model,
                inputs.tokenizer,
                config,
                client=client,
                greedy=settings.temperature is None,
                seed=settings.seed,
                check_lost=False,
                before=before,
            )

    return play
