"""Random Llama, Qwen2 and Qwen3 play episodes: their rows are exact, with and without thinking."""

from typing import Any

import pytest
import torch

from tests.trainer.conftest import FakeClient
from tests.trainer.model_families import FAMILIES, tiny_model, tiny_tokenizer
from tests.trainer.rollout.conftest import AFTER, NAMES, prompts_for
from trainer.config import GRPOConfig
from trainer.rollout.loop import play_episodes
from trainer.rollout.tokens import codec_of


@pytest.mark.parametrize("window", [2048, 200], ids=["whole", "cut"])
@pytest.mark.parametrize("thinking", [False, True], ids=["acts", "thinks"])
@pytest.mark.parametrize("family", FAMILIES)
def test_recorded_log_probabilities_are_those_of_one_pass(
    config: GRPOConfig, family: str, thinking: bool, window: int
) -> None:
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
    with torch.no_grad():
        logits = model(torch.tensor([row.ids])).logits[0, :-1].float()
    own = logits.log_softmax(-1).gather(-1, torch.tensor(row.ids[1:])[:, None])[:, 0]
    trained = [n for n, mask in enumerate(row.env_mask) if mask]
    assert trained
    found = [own[len(prompt) + n - 1].item() for n in trained]
    assert found == pytest.approx([row.logprobs[n] for n in trained], abs=1e-4)
    first = codec_of(tokenizer, config.thinking).text(row.completion_ids[: row.env_mask.index(0)])
    assert first == row.texts[0]
