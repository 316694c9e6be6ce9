"""The episode loop: token-exact rows, streams, lost episodes, scripts and the random baseline."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from shared.errors import EpisodeTooLarge, Forbidden, UnknownQuestion
from tests.trainer.conftest import (
    AFTER,
    CHATML,
    NAMES,
    FakeClient,
    check_recorded,
    make_tokenizer,
    prompts_for,
)
from tests.trainer.model_families import FAMILIES, tiny_model, tiny_tokenizer
from trainer.config.settings import GRPOConfig
from trainer.errors import PromptError
from trainer.rollout.chat_codec import ChatCodec, codec_of
from trainer.rollout.loop import RolloutStats, play_episodes, play_scripted, sample_random_baseline
from trainer.rollout.transcript import Sample


class CutThought:
    """Samples a turn that ends within its thinking."""

    def __init__(self, ids: list[int]) -> None:
        self.turn = Sample(ids, [0.0] * len(ids))

    def start(self, streams: Sequence[tuple[int, ...]]) -> None: ...

    def restart(self, row: int, kept: int) -> None: ...

    def room(self, row: int) -> int:
        return 1000

    def sample(self, appended: Mapping[int, Sequence[int]]) -> dict[int, Sample]:
        return dict.fromkeys(appended, self.turn)


def test_a_cut_thought_behind_an_opened_block_is_no_action(config):
    tokenizer = make_tokenizer(CHATML.replace("assistant\n", "assistant\n<think>\n"))
    thought = "It may be\nANSWER: 42\nbut"
    generator = CutThought(tokenizer.encode(thought))
    prompts, client = prompts_for(config, "a"), FakeClient()
    (row,) = play_episodes(prompts, None, tokenizer, config, client=client, generator=generator)
    assert row.parse_failures == len(row.texts) > 1, "it did not answer"
    assert row.texts[0] == "<think>" + thought


def test_stats_count_everything(model, tokenizer, config):
    stats = RolloutStats()
    rows = play_episodes(
        prompts_for(config, *NAMES), model, tokenizer, config, client=FakeClient(), stats=stats
    )
    assert stats.episodes == len(rows)
    assert stats.steps == sum(row.steps for row in rows)
    # a random model writes no action
    assert stats.parse_failures == sum(row.parse_failures for row in rows) > 1
    assert sum(len(row.env_errors) for row in rows) > 0
    assert sum(row.sampled_tokens for row in rows) == sum(sum(row.env_mask) for row in rows)
    assert 0 < stats.generate_s < stats.rollout_s
    assert stats.env_wait_s > 0
    assert stats.episodes_lost == 0


@pytest.mark.parametrize("step", [0, 1, 3])
def test_a_lost_episode_is_one_masked_eos_without_rewards(model, tokenizer, config, step):
    lenient, stats = config.override(max_lost_fraction=0.5), RolloutStats()
    client = FakeClient(failing={"b": step})
    rows = play_episodes(
        prompts_for(config, "a", "b", "c"), model, tokenizer, lenient, client=client, stats=stats
    )
    lost = rows[1]
    assert lost.outcome == "infra_failed"
    assert lost.completion_ids == [tokenizer.eos_token_id]
    assert (lost.env_mask, lost.logprobs) == ([0], [0.0])
    assert lost.prompt_ids
    assert [lost.correctness, lost.progress, lost.operational, lost.reward] == [None] * 4
    assert stats.episodes_lost == 1
    assert [row.outcome for row in (rows[0], rows[2])] == ["budget", "budget"]


@pytest.mark.parametrize("step", [1, 3])
def test_an_episode_beyond_the_servers_bytes_ends_as_the_agents_own_doing(
    model, tokenizer, config, step
):
    stats = RolloutStats()
    client = FakeClient(failing={"b": step})
    client.error = EpisodeTooLarge
    rows = play_episodes(
        prompts_for(config, "a", "b", "c"), model, tokenizer, config, client=client, stats=stats
    )
    [large] = [row for row in rows if row.too_large]
    assert (large.question_id, large.outcome, large.steps) == ("b", "abandoned", step - 1)
    assert (large.lost, stats.episodes_lost) == (None, 0)
    assert len(client.closed) == 1, "its place is free again"
    assert None not in (large.correctness, large.progress, large.operational, large.reward)
    # the refused text was sampled, so it is trained on
    assert len(large.texts) == step == len(large.actions) + 1
    assert sum(large.env_mask) == large.sampled_tokens > 0
    assert len(large.rewards) == len(large.parts) == len(large.observations) - 1 == step - 1
    assert [row.outcome for row in rows if row is not large] == ["budget", "budget"]


def test_the_trainer_asks_for_the_reward_of_every_step(config):
    asked: list[Any] = []

    class Asked(FakeClient):
        def reset_many(self, requests: Any) -> Any:
            asked.extend(requests)
            return super().reset_many(asked)

    sample_random_baseline(prompts_for(config, "a", "b"), config, Asked())
    assert [request["rewards"] for request in asked] == ["step", "step"]


@pytest.mark.parametrize("error", [UnknownQuestion, Forbidden])
def test_what_all_other_episodes_would_meet_stops_the_run(config, error):
    """An agent's key is forbidden the reward of every step, which a trainer needs."""
    client = FakeClient(failing={"a": 0})
    client.error = error
    with pytest.raises(error):
        sample_random_baseline(
            prompts_for(config, *NAMES), config.override(max_lost_fraction=0.9), client
        )


def test_prompts_must_name_their_question(config, model, tokenizer):
    for prompt in ([{"role": "user", "content": "How many?"}], "How many?"):
        with pytest.raises(PromptError, match="load_question_prompts"):
            play_episodes([prompt], model, tokenizer, config, client=FakeClient())  # type: ignore[list-item]


SCRIPTS = {
    "a": ["DESCRIBE: orders", "QUERY: SELECT COUNT(*) FROM orders", "ANSWER: 42"],
    "b": ["ANSWER: 7"],
    "c": ["SAMPLE: orders"],
}


def test_scripted_rows_hold_the_scripts_ids(tokenizer, config):
    client = FakeClient()
    rows = play_scripted(SCRIPTS, tokenizer, config, client)
    assert [row.question_id for row in rows] == list(SCRIPTS)
    assert [row.outcome for row in rows] == ["correct", "wrong", "abandoned"]
    assert len(client.closed) == 1
    for row, script in zip(rows, SCRIPTS.values(), strict=True):
        own = [i for i, masked in zip(row.completion_ids, row.env_mask, strict=True) if masked]
        assert tokenizer.decode(own) == "".join(f"{text}<|im_end|>" for text in script)
        assert row.actions == script
        assert set(row.logprobs) == {0.0}
    conversation = rows[0].transcript
    whole = tokenizer.apply_chat_template(conversation, tokenize=False)
    assert whole.rstrip("\n") == tokenizer.decode(rows[0].ids)


class Scripted(CutThought):
    """Samples the turns of scripts, row by row."""

    def __init__(self, scripts: Sequence[Sequence[str]], codec: ChatCodec) -> None:
        self.turns = [map(codec.action, script) for script in scripts]

    def sample(self, appended: Mapping[int, Sequence[int]]) -> dict[int, Sample]:
        turns = {row: next(self.turns[row]) for row in appended}
        return {row: Sample(ids, [0.0] * len(ids)) for row, ids in turns.items()}


def test_a_model_that_samples_a_script_has_the_scripts_rows(tokenizer, config):
    """So imitation trains on the contexts that are met in play."""
    answered = {name: SCRIPTS[name] for name in "ab"}
    scripted = play_scripted(answered, tokenizer, config, FakeClient())
    generator = Scripted(list(answered.values()), codec_of(tokenizer))
    prompts, client = prompts_for(config, *answered), FakeClient()
    rows = play_episodes(prompts, None, tokenizer, config, client=client, generator=generator)
    for row, expected in zip(rows, scripted, strict=True):
        for name in ("prompt_ids", "completion_ids", "env_mask", "outcome", "reward", "texts"):
            assert getattr(row, name) == getattr(expected, name)


def test_random_baseline_needs_no_model(config):
    rows = sample_random_baseline(prompts_for(config, *NAMES), config, FakeClient())
    again = sample_random_baseline(prompts_for(config, *NAMES), config, FakeClient())
    assert [row.actions for row in rows] == [row.actions for row in again]
    assert all(row.actions and row.prompt_ids == [] for row in rows)
    assert len({tuple(row.actions) for row in rows}) > 1


@pytest.mark.parametrize("window", [2048, 200], ids=["whole", "cut"])
@pytest.mark.parametrize("thinking", [False, True], ids=["acts", "thinks"])
@pytest.mark.parametrize("family", FAMILIES)
def test_recorded_log_probabilities_are_those_of_one_pass(config, family, thinking, window):
    model, tokenizer = tiny_model(family), tiny_tokenizer(family)
    config = config.override(thinking=thinking, max_context_tokens=window, step_budget=8)
    rows = play_episodes(
        prompts_for(config, *NAMES), model, tokenizer, config, client=FakeClient(after=AFTER)
    )
    assert len({row.steps for row in rows}) > 2
    assert any(row.context_truncations for row in rows) == (window == 200)
    for row in rows:
        check_row(model, tokenizer, config, row)


def check_row(model: Any, tokenizer: Any, config: GRPOConfig, row: Any) -> None:
    """The row begins with the template's prompt, and its sampled ids have their probabilities."""
    prompt = tokenizer.apply_chat_template(
        row.transcript[:2],
        add_generation_prompt=True,
        enable_thinking=config.thinking,
        return_dict=False,
    )
    assert row.prompt_ids == prompt
    check_recorded(model, row)
    first = codec_of(tokenizer, config.thinking).text(row.completion_ids[: row.env_mask.index(0)])
    assert first == row.texts[0]
