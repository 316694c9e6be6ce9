"""The wired initial weights: an untrained model copies what followed a token before."""

import pytest
import torch

from trainer.pretraining.imitation import PretrainConfig, build_model
from trainer.pretraining.induction_head import wire_induction
from trainer.pretraining.tokenizer import train_tokenizer


def hits(model, length: int = 40, rows: int = 8) -> float:
    """Return the share of correct predictions in the second half of a repeated random sequence."""
    vocabulary = model.config.vocab_size
    stream = torch.Generator().manual_seed(1)
    half = torch.stack(
        [3 + torch.randperm(vocabulary - 3, generator=stream)[:length] for _ in range(rows)]
    )
    ids = torch.cat([half, half], dim=1)
    with torch.no_grad():
        guessed = model(ids).logits.argmax(-1)
    return (guessed[:, length:-1] == ids[:, length + 1 :]).float().mean().item()


@pytest.mark.parametrize("hidden_size", [64, 128, 192])
def test_wired_model_copies_without_training_and_a_random_one_does_not(hidden_size):
    texts = ["a few words of text to make merges from, and then some more of them"] * 10
    tokenizer = train_tokenizer(texts, vocab_size=512, max_length=256)
    config = PretrainConfig(hidden_size=hidden_size)
    model = build_model(config, tokenizer)
    assert hits(model) < 0.05
    wire_induction(model)
    assert hits(model) > 0.9
