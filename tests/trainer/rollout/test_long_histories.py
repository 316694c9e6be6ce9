"""Histories longer than the context window: the agent's context and the trained rows are exact."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from shared.actions import SQLAction
from shared.errors import SQLEnvError
from shared.models import StepResult
from tests.trainer.conftest import (
    AFTER,
    CHATML,
    NAMES,
    FakeClient,
    check_recorded,
    logprobs_of,
    make_tokenizer,
    prompts_for,
)
from tests.trainer.rollout.test_chat_codec import QWEN3
from trainer.config.settings import GRPOConfig
from trainer.rollout.chat_codec import codec_of
from trainer.rollout.loop import local_generator, play_episodes
from trainer.rollout.transcript import KEPT_PAIRS, Sample, pairs_kept

WINDOW = 330  # holds the prompt and three pairs, not four


@pytest.fixture
def long(config: GRPOConfig) -> GRPOConfig:
    return config.override(max_context_tokens=WINDOW, step_budget=9)


@dataclass
class Turn:
    """One sampled turn, with everything fed to its row since its context last started."""

    context: list[int]
    sample: Sample
    restarted: bool  # the context was cut down before it


@dataclass
class Recorder:
    """A generator that records what every turn was conditioned on."""

    inner: Any
    contexts: dict[int, list[int]] = field(default_factory=dict)
    turns: dict[int, list[Turn]] = field(default_factory=dict)
    cut: set[int] = field(default_factory=set)

    def start(self, streams: Sequence[tuple[int, ...]]) -> None:
        self.inner.start(streams)

    def room(self, row: int) -> int:
        return int(self.inner.room(row))

    def restart(self, row: int, kept: int) -> None:
        del self.contexts[row][kept:]
        self.cut.add(row)
        self.inner.restart(row, kept)

    def sample(self, appended: Mapping[int, Sequence[int]]) -> dict[int, Sample]:
        for row, ids in appended.items():
            self.contexts.setdefault(row, []).extend(ids)
        samples: dict[int, Sample] = self.inner.sample(appended)
        for row, sample in samples.items():
            turn = Turn(list(self.contexts[row]), sample, row in self.cut)
            self.turns.setdefault(row, []).append(turn)
            self.contexts[row] += sample.ids
        self.cut.difference_update(samples)  # other turns are under way
        return samples


def recorded(
    model: Any,
    tokenizer: Any,
    config: GRPOConfig,
    names: Sequence[str] = NAMES,
    client: FakeClient | None = None,
) -> tuple[list[dict[str, Any]], Recorder]:
    recorder = Recorder(local_generator(model, codec_of(tokenizer), config))
    options = {"client": client or FakeClient(after=AFTER), "generator": recorder}
    rows = play_episodes(prompts_for(config, *names), None, tokenizer, config, **options)
    return rows, recorder


@pytest.mark.parametrize("template", [CHATML, QWEN3], ids=["chatml", "qwen3"])
def test_what_is_trained_and_what_is_seen_are_exact(model, config, long, template):
    """Invariant 1; every turn after a cut is conditioned on the prompt and the last pairs' ids."""
    tokenizer = make_tokenizer(template)
    window = WINDOW if template == CHATML else WINDOW + 40
    rows, recorder = recorded(model, tokenizer, long.override(max_context_tokens=window))
    codec, cuts = codec_of(tokenizer), 0
    for index, row in enumerate(rows):
        assert len(row.ids) <= window + 1  # the masked EOS
        trained = [n for n, masked in enumerate(row.env_mask) if masked]
        check_recorded(model, row)
        turns = recorder.turns[index]
        first_cut = next((n for n, turn in enumerate(turns) if turn.restarted), len(turns))
        assert [row.completion_ids[n] for n in trained] == [
            i for turn in turns[:first_cut] for i in turn.sample.ids
        ]
        said = [message["content"] for message in row.transcript if message["role"] == "assistant"]
        assert said == [codec.text(turn.sample.ids) for turn in turns]  # the later ones too
        assert row.context_truncations == sum(turn.restarted for turn in turns)
        assert row.outcome != "abandoned"
        for number, turn in enumerate(turns):
            seen = logprobs_of(model, [*turn.context, *turn.sample.ids])[len(turn.context) - 1 :]
            assert turn.sample.logprobs == pytest.approx(seen.tolist(), rel=0, abs=1e-4)
            if turn.restarted:
                cuts += 1
                assert turn.context == pieces(codec, row, turns, number, KEPT_PAIRS)
    assert cuts >= 4
    # a context that was cut may fill again
    assert max(row.context_truncations for row in rows) > 1
    assert not any(row.context_overflow for row in rows)
    assert sum(row.sampled_tokens for row in rows) > sum(sum(row.env_mask) for row in rows)


def pieces(
    codec: Any, row: Mapping[str, Any], turns: Sequence[Turn], number: int, kept: int
) -> list[int]:
    """Return the prompt and the `kept` pairs before turn `number`, from the row's messages."""
    shown = [message["content"] for message in row.transcript if message["role"] == "user"][1:]
    ids = list(row.prompt_ids)
    for place in range(number - kept, number):
        ids += turns[place].sample.ids
        ids += codec.bridge(shown[place], turns[place].sample.ids[-1])
    return ids


def test_an_episode_does_not_depend_on_its_batch(model, tokenizer, long):
    together, _ = recorded(model, tokenizer, long)
    alone, _ = recorded(model, tokenizer, long, NAMES[3:5])
    assert any(row.context_truncations for row in alone)
    for name in ("texts", "completion_ids", "context_truncations"):
        found = [getattr(row, name) for row in alone]
        assert found == [getattr(row, name) for row in together[3:5]]


def test_without_room_for_three_pairs_fewer_are_kept():
    def kept(*pairs: int, window: int = 1000) -> int:
        return pairs_kept(100, pairs, window, 50)

    assert kept(200, 200, 200, 200) == 4  # 950 of 1000
    assert kept(200, 200, 200, 251) == 3
    assert kept(10, 300, 300, 251) == 2
    assert kept(10, 300, 300, 600) == 1
    assert kept(10, 10, 10, 10, 10, 850) == 1  # 850 is the most that fits with a whole turn
    assert kept(10, 10, 899) == 1  # a token still fits
    assert kept(10, 10, 900) == 0
    assert kept(880) == 1  # the whole history, as long as a token fits
    assert kept(900) == 0
    assert kept(1, 1, 1, 1, 1) == 5


class HugeClient(FakeClient):
    """Its third observation has `lines` lines."""

    def __init__(self, lines: int) -> None:
        super().__init__()
        self.lines = lines

    def _step(self, episode_id: str, action: SQLAction | str) -> StepResult | SQLEnvError:
        reply = super()._step(episode_id, action)
        if reply.observation.step_count != 3:
            return reply
        large = {"error": None, "result": "Ann | 12.5\n" * self.lines}
        shown = reply.observation.model_copy(update=large)
        return reply.model_copy(update={"observation": shown})


@pytest.mark.parametrize(("lines", "kept"), [(24, 2), (29, 1)])
def test_a_large_observation_takes_the_place_of_older_pairs(model, tokenizer, long, lines, kept):
    rows, recorder = recorded(model, tokenizer, long, ["a", "b"], HugeClient(lines))
    for index, row in enumerate(rows):
        turn = recorder.turns[index][3]
        assert turn.restarted
        assert turn.context == pieces(codec_of(tokenizer), row, recorder.turns[index], 3, kept)
        assert row.outcome == "budget"
        assert row.steps == 9
        assert row.context_truncations > 0
        assert not row.context_overflow


def test_an_observation_that_does_not_fit_alone_ends_the_episode(model, tokenizer, long):
    client = HugeClient(300)
    rows, _ = recorded(model, tokenizer, long, ["a", "b"], client)
    for row in rows:
        assert (row.outcome, row.steps) == ("abandoned", 3)
        assert (row.context_overflow, row.context_truncations) == (True, 0)
        assert row.correctness == 0.0
        assert len(row.ids) <= WINDOW + 1  # the masked EOS
        assert sum(row.env_mask) > 0
    assert len(client.closed) == 2


def test_a_prompt_that_does_not_fit_ends_the_episode(model, tokenizer, config):
    rows, _ = recorded(model, tokenizer, config.override(max_context_tokens=20), ["a"])
    assert (rows[0].outcome, rows[0].steps, sum(rows[0].env_mask)) == ("abandoned", 0, 0)
    assert rows[0].context_overflow
