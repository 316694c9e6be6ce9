"""Tree rollouts: half of a group's episodes begin as the first turns of the other half.

The first half is played from the start. Each of these episodes is then forked once, after a turn
drawn at random: the environment server replays its actions up to there, the model reads the same
ids, and the fork plays on. So every turn has an advantage of its own. That of a turn before the
fork is the mean advantage of the two episodes. That of a later turn is the difference between its
episode's advantage and this mean, so the state after the fork is its baseline.
"""

import functools
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from trl.models import unwrap_model_for_generation

from shared.errors import SQLEnvError
from shared.run_files import observation_digest
from trainer.config import GRPOConfig
from trainer.grpo.length_sorting import LengthSortedGRPOTrainer
from trainer.rollout.adapters import TRL_COLUMNS, OnRows, step_seed
from trainer.rollout.batch import EpisodeBatch, EpisodeClient
from trainer.rollout.dataset import Prompt, question_id_of
from trainer.rollout.episode import Episode
from trainer.rollout.generators.base import Contexts
from trainer.rollout.loop import RolloutStats, check_lost_rows, local_generator, sampling
from trainer.rollout.row import RolloutRow
from trainer.rollout.tokens import ChatCodec, Transcript, codec_of

Tensor = torch.Tensor
Fork = tuple[int, int, int]  # rows of the forked episode and of its fork, their common completion


def forked(transcript: Transcript, turns: int) -> Transcript:
    """Return a transcript of the first turns of one that was never cut, which ends with the last of
    them."""
    first = sum(map(len, transcript.pairs[: turns - 1]))
    last = transcript.pairs[turns - 1]
    mask = transcript.env_mask[first : first + len(last)]
    length = mask.index(0) if 0 in mask else len(mask)
    end = first + length
    return Transcript(
        transcript.prompt_ids,
        transcript.completion_ids[:end],
        transcript.env_mask[:end],
        transcript.logprobs[:end],
        [*map(list, transcript.pairs[: turns - 1]), list(last[:length])],
    )


class ForkBatch(EpisodeBatch):
    """Episodes that each begin with the first turns of another, or from the start after 0 turns."""

    def __init__(
        self, origins: Sequence[tuple[Episode, int]], *arguments: Any, **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self._origins = origins
        self._fed: set[int] = set()

    def reset(self) -> None:
        requests = []
        for one, (origin, turns) in zip(self.episodes, self._origins, strict=True):
            assert origin.latest is not None
            request = {
                "question_id": one.view.question_id,
                "step_budget": self._config.step_budget,
                "rewards": "step",
                "actions": origin.latest.observation.action_history[:turns],
            }
            requests.append(request)
        with self._timed("env_wait_s"):
            replies = self._client.reset_many(requests)
        for episode, (origin, turns), reply in zip(
            self.episodes, self._origins, replies, strict=True
        ):
            if isinstance(reply, SQLEnvError):
                self._lose(episode, reply)
                continue
            episode.episode_id, episode.latest = reply.episode_id, reply
            episode.view.observations = origin.view.observations[: turns + 1]
            episode.view.actions = origin.view.actions[:turns]
            episode.digests = origin.digests[: turns + 1]
            assert episode.digests[-1] == observation_digest(reply.observation)
            episode.rewards, episode.parts = origin.rewards[:turns], origin.parts[:turns]
            opening = len(episode.prompt)
            episode.messages = [dict(one) for one in origin.messages[: opening + 2 * turns]]
            episode.transcript = (
                forked(origin.transcript, turns)
                if turns
                else Transcript(origin.transcript.prompt_ids)
            )

    def _appended(
        self, generator: Contexts, codec: ChatCodec, episode: Episode
    ) -> list[int] | None:
        transcript = episode.transcript
        if episode.index in self._fed or not transcript.pairs:
            self._fed.add(episode.index)
            return super()._appended(generator, codec, episode)
        self._fed.add(episode.index)
        transcript.add_environment(self._bridge(codec, episode))
        return [*transcript.prompt_ids, *chain.from_iterable(transcript.pairs)]


def turns_before_fork(episode: Episode, rng: np.random.Generator) -> int:
    """Return after how many turns to fork an episode: at least one less than it has, 0 if it can't
    be forked."""
    turns = len(episode.view.actions)
    if episode.transcript.truncations or turns < 2:
        return 0
    return int(rng.integers(1, turns))


def play_tree(
    prompts: Sequence[Prompt],
    trainer: Any,
    *,
    config: GRPOConfig,
    client: EpisodeClient,
    stats: RolloutStats,
    on_rows: OnRows,
) -> dict[str, list[Any]]:
    """Play whole groups for TRL, as `rollout_func` does; leave `forks` on the trainer."""
    size, seed = config.num_generations, step_seed(config, trainer.state.global_step)
    codec = codec_of(trainer.processing_class, config.thinking)
    trunks = [prompts[row] for row in range(len(prompts)) if row % size < size // 2]
    rng = np.random.default_rng((seed, 1))
    with (
        unwrap_model_for_generation(trainer.model_wrapped, trainer.accelerator) as model,
        sampling(model, config, "playing a tree", trainer.accelerator.autocast()),
    ):

        def played(batch: EpisodeBatch) -> EpisodeBatch:
            batch.reset()
            batch.play_generator(local_generator(model, codec, config), codec)
            return batch

        began = time.perf_counter()
        options = (seed, codec, config, client, stats)
        first = played(EpisodeBatch(trunks, *options))
        for one in first.episodes:
            if one.lost is not None:
                raise one.lost
        origins = [(one, turns_before_fork(one, rng)) for one in first.episodes]
        before: Mapping[str, int] = Counter(map(question_id_of, trunks))
        second = played(ForkBatch(origins, trunks, *options, before))
        common = [
            len(forked(one.transcript, turns).completion_ids) if turns else 0
            for one, turns in origins
        ]
        halves = [first.rows(), second.rows()]
        stats.rollout_s += time.perf_counter() - began
    rows, forks = list[RolloutRow](), list[Fork]()
    for begin in range(0, len(trunks), size // 2):
        own = range(begin, begin + size // 2)
        forks += [
            (len(rows) + n, len(rows) + size // 2 + n, common[row])
            for n, row in enumerate(own)
            if common[row] and second.episodes[row].lost is None
        ]
        rows += [half[row] for half in halves for row in own]
    trainer.forks = forks
    check_lost_rows(rows, config)
    on_rows(rows, trainer)
    return {name: [getattr(row, name) for row in rows] for name in TRL_COLUMNS}


def by_turn(advantages: Tensor, width: int, forks: Sequence[Fork]) -> Tensor:
    """Return the advantages of all tokens, [B, C], from those of the episodes, [B]."""
    found = advantages[:, None].repeat(1, width)
    for trunk, fork, common in forks:
        mean = (advantages[trunk] + advantages[fork]) / 2
        for row in (trunk, fork):
            found[row, :common] = mean
            found[row, common:] = advantages[row] - mean
    return found


class TreeTrainer(LengthSortedGRPOTrainer):
    """A trainer whose rollouts are trees; with `turn_advantages`, each turn has its own."""

    forks: Sequence[Fork] = ()
    turn_advantages = True

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        rows = super()._generate_and_score_completions(inputs)
        if self.model.training and self.turn_advantages:
            width = rows["completion_mask"].shape[1]
            rows["advantages"] = by_turn(rows["advantages"], width, self.forks)
        return rows


def use_trees(trainer: Any, turn_advantages: bool, **options: Any) -> None:
    """Let a trainer of `build_trainer`, in a single process, play trees.

    `options` are those of `play_tree`.
    """
    trainer.__class__ = TreeTrainer
    trainer.turn_advantages = turn_advantages
    trainer.rollout_func = functools.partial(play_tree, **options)
