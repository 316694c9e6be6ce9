"""Imitation: the order of the rows, the loss, that the model learns; its initial weights and its
tokenizer."""

import random
from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch.optim import _muon
from transformers import PreTrainedTokenizerFast

from trainer.config.presets import OFFLINE_MODEL
from trainer.pretraining import imitation
from trainer.pretraining.imitation import (
    PretrainConfig,
    Row,
    collate,
    fit,
    imitation_loss,
    lr_factor,
    orthogonalize,
    plan_passes,
    use_float32,
)
from trainer.pretraining.model import build_model, train_tokenizer, wire_induction

ARGUMENTS = ((3.4445, -4.775, 2.0315), 5, 1e-7)  # torch's defaults of Muon
IN_BFLOAT16 = _muon._zeropower_via_newtonschulz
SMALL = PretrainConfig(hidden_size=32, layers=2, head_dim=16, batch_tokens=128)


def rows(count: int, seed: int = 0) -> list[Row]:
    stream = random.Random(seed)
    made = []
    for index in range(count):
        ids = [stream.randrange(3, 200) for _ in range(stream.randint(5, 40))]
        made.append(Row(ids, [0] * 3 + [1] * (len(ids) - 3), easy=index % 2 == 0))
    return made


def small_tokenizer():
    return train_tokenizer(["some words to learn from"], vocab_size=300, max_length=64)


def test_the_other_sizes_follow_from_the_hidden_size():
    config = PretrainConfig()
    assert (config.heads, config.intermediate_size) == (6, 512)
    model = build_model(config, PreTrainedTokenizerFast.from_pretrained(OFFLINE_MODEL))
    assert model.num_parameters() == 2_164_672


def test_each_pass_holds_every_row_and_the_first_starts_easy():
    given = rows(60)
    plan = plan_passes(given, SMALL)
    assert all(len(batch) * max(len(row.ids) for row in batch) <= 128 for batch in plan)
    assert sorted(id(row) for batch in plan for row in batch) == sorted(map(id, given))
    assert all(row.easy for batch in plan[: int(0.2 * len(plan))] for row in batch)
    twice = plan_passes(given, replace(SMALL, passes=2.0))
    times = Counter(id(row) for batch in twice for row in batch)
    assert len(times) == 60
    assert sum(times.values()) / 60 == pytest.approx(2, abs=0.1)


@pytest.mark.parametrize("number_format", [torch.bfloat16, torch.float32])
def test_it_computes_in_the_format_of_the_device(monkeypatch, number_format):
    seen = []

    def loss(*arguments):
        seen.append(torch.is_autocast_enabled("cpu"))
        return imitation_loss(*arguments)

    monkeypatch.setattr(imitation, "precision", lambda *_: ("cpu", number_format))
    monkeypatch.setattr(imitation, "imitation_loss", loss)
    replaced: list[bool] = []
    monkeypatch.setattr(imitation, "use_float32", lambda: replaced.append(True))
    fit(build_model(SMALL, small_tokenizer()), [rows(2)], SMALL, 0)
    assert seen == [number_format is torch.bfloat16]
    assert bool(replaced) == (number_format is torch.float32), "Muon's own function is in bfloat16"


def test_loss_depends_on_marked_tokens_alone():
    model = build_model(SMALL, small_tokenizer())
    ids = torch.tensor([[5, 6, 7, 8]])
    learn = torch.tensor([[False, False, True, False]])
    other = ids.clone()
    other[0, 3] = 9
    assert imitation_loss(model, ids, learn).item() == imitation_loss(model, other, learn).item()
    other[0, 2] = 10
    assert imitation_loss(model, ids, learn).item() != imitation_loss(model, other, learn).item()


def test_rate_warms_up_and_decays_to_nearly_zero():
    factors = [lr_factor(step, 100, SMALL) for step in range(100)]
    assert factors[0] < factors[2] == 1.0
    assert factors[-1] < 0.05
    assert factors[40] == 1.0


def test_fit_learns_and_counts_what_a_row_is_changed_to():
    row, other = Row([5, 6, 7], [0, 0, 1], True), Row([5, 6, 9, 10], [0, 0, 1, 1], True)
    model = build_model(SMALL, small_tokenizer())
    figures = fit(model, [[row] * 4] * 60, SMALL, 0, change=lambda row, stream: other)
    losses = [
        imitation_loss(model, *collate([one], 0, torch.device("cpu"))).item()
        for one in (row, other)
    ]
    assert losses[1] < 1 < losses[0]
    assert figures["tokens"] == 60 * 4 * len(other.ids)


@pytest.mark.parametrize("shape", [(24, 64), (64, 24), (32, 32)])
def test_it_differs_from_torchs_own_by_bfloat16s_rounding_only(shape):
    gradient = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    expected = IN_BFLOAT16(gradient, *ARGUMENTS).float()
    found = orthogonalize(gradient, *ARGUMENTS)
    assert found.dtype == torch.float32
    assert torch.allclose(found, expected, atol=0.02)
    assert torch.linalg.svdvals(found).sub(1).abs().max() < 0.5
    assert torch.equal(orthogonalize(torch.zeros(shape), *ARGUMENTS), torch.zeros(shape))


def test_muon_uses_it(monkeypatch):
    monkeypatch.setattr(_muon, "_zeropower_via_newtonschulz", IN_BFLOAT16)  # put back afterwards
    use_float32()
    weights = torch.nn.Parameter(torch.zeros(24, 64))
    gradient = torch.randn(weights.shape, generator=torch.Generator().manual_seed(1))
    weights.grad = gradient.clone()
    torch.optim.Muon([weights], lr=1.0, weight_decay=0.0, momentum=0.0, nesterov=False).step()
    assert torch.equal(weights.detach(), -orthogonalize(gradient, *ARGUMENTS))


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


TEXTS = [
    "How many orders have a unit price over 120?",
    "QUERY: SELECT unit_price FROM orders",
    "orders: 120 rows\n",
] * 20


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS, vocab_size=400, max_length=512)


@pytest.mark.parametrize(
    "text", ["unit_price = 12.50", "São Paulo | 東京 | NULL\n", "  two  spaces\t", 'it\'s "quoted"']
)
def test_any_text_comes_back_to_the_byte(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text), skip_special_tokens=True) == text


@pytest.mark.parametrize(
    ("text", "pieces"), [("unit_price", ["unit", "_", "price"]), ("2024", list("2024"))]
)
def test_names_split_into_the_words_that_a_question_says_and_numbers_into_digits(
    tokenizer, text, pieces
):
    assert tokenizer.convert_ids_to_tokens(tokenizer.encode(text)) == pieces
