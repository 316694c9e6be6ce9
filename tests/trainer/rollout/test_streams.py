"""Every episode draws from a random stream of its own, which seed, step, question and occurrence
give: the same in a repeated run, another in every other episode."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from accelerate import Accelerator

from tests.trainer.conftest import FakeClient, prompts_for
from trainer.rollout.adapters import rollout_func
from trainer.rollout.episode import start_episodes
from trainer.rollout.generators.local import LocalGenerator

GROUPS = ("a", "a", "b", "b")


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Return a list that the streams of all sampled episodes are added to."""
    seen: list[tuple[int, ...]] = []
    start = LocalGenerator.start

    def recording(self: LocalGenerator, streams: Sequence[tuple[int, ...]]) -> None:
        seen.extend(streams)
        start(self, streams)

    monkeypatch.setattr(LocalGenerator, "start", recording)
    return seen


def test_no_two_episodes_of_a_run_share_a_stream(model, tokenizer, config, streams):
    """`rollout_func` at three optimiser steps with one model: each samples anew."""
    short = config.override(max_new_tokens=4, step_budget=1)

    def play(seed: int, step: int) -> list[Any]:
        trainer = SimpleNamespace(
            state=SimpleNamespace(global_step=step),
            model=model,
            model_wrapped=model,
            processing_class=tokenizer,
            accelerator=Accelerator(cpu=True),
        )
        prompts = prompts_for(short, *GROUPS)
        seeded = short.override(seed=seed)
        return rollout_func(prompts, trainer, config=seeded, client=FakeClient())["completion_ids"]

    texts = {(seed, step): play(seed, step) for seed in (0, 1) for step in (0, 1, 2)}
    assert len(set(streams)) == len(streams) == 6 * len(GROUPS)
    assert len({str(rows) for rows in texts.values()}) == 6
    assert play(0, 1) == texts[0, 1]
    assert streams[-len(GROUPS) :] == streams[len(GROUPS) : 2 * len(GROUPS)]


def test_a_stream_is_its_seed_question_and_occurrence(config):
    def streams_of(seed: int, *names: str, repeats: Any = None) -> list[tuple[int, ...]]:
        episodes = start_episodes(prompts_for(config, *names), seed, repeats)
        return [episode.stream for episode in episodes]

    a, again, b = streams_of(7, "a", "a", "b")
    assert len({a, again, b}) == 3
    assert streams_of(7, "b", "a") == [b, a]  # whatever the batch
    assert streams_of(7, "a", repeats=[1]) == [again]  # whichever process plays it
    assert set(streams_of(8, "a", "a", "b")).isdisjoint({a, again, b})


def test_every_turn_of_an_episode_draws_anew(model, config):
    """The same context, turn after turn: what is drawn depends on the turn as well."""
    generator = LocalGenerator(model, frozenset(), max_new_tokens=8, max_context_tokens=768)
    generator.start([(0, 1, 2)])
    turns = []
    for _ in range(3):
        turns.append(generator.sample({0: [5, 6, 7]})[0].ids)
        generator.restart(0, 0)
    assert len({str(ids) for ids in turns}) == 3
