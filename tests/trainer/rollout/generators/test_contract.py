"""What a model server's episodes share with those of a model in this process: by chat completions,
and by token ids of vLLM's and llama.cpp's form."""

from typing import Any

import pytest

from tests.trainer.chat_server import ModelBehind, served
from tests.trainer.conftest import FakeClient, prompts_for
from tests.trainer.model_families import tiny_model, tiny_tokenizer
from trainer.config.settings import GRPOConfig
from trainer.rollout.chat_codec import codec_of
from trainer.rollout.generators.model_server import ModelServer
from trainer.rollout.generators.openai_players import OpenAIPolicy
from trainer.rollout.loop import play_episodes
from trainer.rollout.row import RolloutRow
from trainer.rollout.served import completions_generator

KINDS = ("chat", "vllm ids", "llama.cpp ids")


@pytest.fixture
def config(config: GRPOConfig) -> GRPOConfig:
    return config.override(step_budget=4, max_new_tokens=10, thinking=True, model_name="fake")


def play(
    config: GRPOConfig, tokenizer: Any, url: str, chat: bool
) -> tuple[RolloutRow, ModelServer]:
    options: dict[str, Any] = {"client": FakeClient()}
    server: ModelServer
    if chat:
        server = OpenAIPolicy(
            config.model_name,
            url,
            thinking=config.thinking,
            temperature=0.0,
            max_tokens=config.max_new_tokens,
        )
        options["policy"] = server
    else:
        codec = codec_of(tokenizer, config.thinking)
        server = completions_generator(config, url, codec, temperature=0.0)
        options["generator"] = server
    server.check()
    prompts = prompts_for(config, "b")
    (row,) = play_episodes(prompts, None, None if chat else tokenizer, config, **options)
    return row, server


def read(row: RolloutRow, tokenizer: Any, config: GRPOConfig) -> list[list[int]]:
    """Return what the model should have read before each turn: the template's ids of the messages,
    or the row's ids so far."""
    conversations: list[list[int]] = [
        tokenizer.apply_chat_template(
            row.transcript[: 2 + 2 * turn],
            add_generation_prompt=True,
            enable_thinking=config.thinking,
            return_dict=False,
        )
        for turn in range(row.steps)
    ]
    if not row.completion_ids:
        return conversations
    sampled = [n for n, mask in enumerate(row.env_mask) if mask]
    starts = [n for n in sampled if n == 0 or not row.env_mask[n - 1]]
    ids = [[*row.prompt_ids, *row.completion_ids[:start]] for start in starts]
    assert ids[0] == conversations[0]
    return ids


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_reads_and_writes_what_the_model_in_this_process_does(config, kind):
    model, tokenizer = tiny_model("qwen3"), tiny_tokenizer("qwen3")
    prompts = prompts_for(config, "b")
    (local,) = play_episodes(prompts, model, tokenizer, config, client=FakeClient(), greedy=True)
    with served(ModelBehind(model, tokenizer, ids=kind.split()[0])) as behind:
        row, server = play(config, tokenizer, behind.url, kind == "chat")
    expected = read(row, tokenizer, config)
    assert behind.prompts == expected
    assert server.usage.prompt_tokens == sum(map(len, expected))
    assert row.texts[0] == local.texts[0]
    if kind != "chat":
        assert (row.ids, row.env_mask, row.texts) == (local.ids, local.env_mask, local.texts)
        assert row.logprobs == pytest.approx(local.logprobs, abs=1e-4)
        assert row.prompt_tokens == local.prompt_tokens
