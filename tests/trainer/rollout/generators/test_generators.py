"""The decode loop (log-probabilities, random streams, stops) and the policies that write text."""

from typing import Any

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Qwen3Config, Qwen3ForCausalLM

from shared.actions import ActionType
from tests.trainer.conftest import logprobs_of, observation
from trainer.errors import ModelLoadError
from trainer.rollout.episode import Episode
from trainer.rollout.generators.local import SHORTEST_SHARED, LocalGenerator
from trainer.rollout.generators.policies import RandomPolicy, read_cells, read_schema
from trainer.rollout.parsing import parse_model_output
from trainer.rollout.row import RolloutRow
from trainer.rollout.transcript import Sample

STOPS = frozenset(range(40))  # many stop ids, so that turns have uneven lengths


def generator_of(model: Any, stops: frozenset[int] = STOPS, **options: Any) -> LocalGenerator:
    return LocalGenerator(
        model, stops, **{"max_new_tokens": 9, "max_context_tokens": 512, **options}
    )


def play(
    generator: LocalGenerator,
    prompts: dict[int, list[int]],
    streams: list[tuple[int, ...]],
    turns: int = 4,
) -> dict[int, tuple[list[int], dict[int, float]]]:
    """Play several turns of uneven chunks; row i ends after turn i % turns.

    Return (ids, position -> logprob) by row.
    """
    generator.start(streams)
    contexts = {row: (list(ids), dict[int, float]()) for row, ids in prompts.items()}
    appended: dict[int, list[int]] = dict(prompts)
    for turn in range(turns):
        if not appended:
            break
        for row, sample in generator.sample(appended).items():
            ids, logprobs = contexts[row]
            logprobs |= dict(enumerate(sample.logprobs, start=len(ids)))
            ids += sample.ids
        appended = {}
        for row, (ids, _) in contexts.items():
            if streams[row][-1] % turns > turn:
                chunk = [
                    60 + (streams[row][-1] * 7 + n) % 300 for n in range(3 + 11 * (row % 3) + turn)
                ]
                appended[row] = chunk
                ids += chunk
    return contexts


def prompts_of(rows: int) -> dict[int, list[int]]:
    """Return prompts of several lengths; rows 2n and 2n+1 share one."""
    return {
        row: [50 + (row // 2 * 13 + n) % 300 for n in range(5 + 9 * (row // 2))]
        for row in range(rows)
    }


def check_logprobs(model: Any, bound: float = 1e-4, temperature: float = 1.0) -> None:
    """Play eight rows, and compare their log-probabilities with those of one pass over each."""
    generator = generator_of(model, temperature=temperature)
    contexts = play(generator, prompts_of(8), [(1, row) for row in range(8)])
    assert len({len(ids) for ids, _ in contexts.values()}) > 3
    check_contexts(model, contexts, bound, temperature)


def check_contexts(
    model: Any, contexts: dict[int, Any], bound: float = 1e-4, temperature: float = 1.0
) -> None:
    for ids, logprobs in contexts.values():
        expected = logprobs_of(model, ids, temperature)
        assert all(abs(expected[at - 1].item() - one) < bound for at, one in logprobs.items())


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_are_those_of_one_pass_over_the_row(model, temperature):
    check_logprobs(model, temperature=temperature)


def test_other_number_formats_attention_and_architectures(model):
    with torch.autocast("cpu", torch.bfloat16):
        check_logprobs(model, bound=0.1)
    eager = Qwen3ForCausalLM._from_config(model.config, attn_implementation="eager").eval()
    check_logprobs(eager.float())
    torch.manual_seed(0)
    gpt2 = GPT2Config(vocab_size=400, n_embd=32, n_layer=2, n_head=2, n_positions=512)
    check_logprobs(GPT2LMHeadModel(gpt2).eval())
    check_logprobs(model.bfloat16(), bound=0.1)


def test_what_prompts_share_is_read_once_and_passes_are_small(model, monkeypatch):
    monkeypatch.setattr("trainer.rollout.generators.local.PASS_TOKENS", 40)
    shared = [50 + n * 7 % 300 for n in range(SHORTEST_SHARED + 3)]
    prompts = {row: [*shared, *ids] for row, ids in prompts_of(8).items()}
    prompts[8] = shared  # at least one token of each prompt is read apart
    counts: list[tuple[int, int, int]] = []
    generator = generator_of(model, on_tokens=lambda *one: counts.append(one))
    contexts = play(generator, prompts, [(1, row) for row in range(9)])
    check_contexts(model, contexts)
    read, written, turns = (sum(column) for column in zip(*counts, strict=True))
    sampled = sum(len(logprobs) for _, logprobs in contexts.values())
    assert written == sampled
    assert turns == sum(1 + row % 4 for row in range(9))
    assert counts[0] == (len(shared) - 1, 0, 0)
    assert max(one[0] for one in counts[1:]) <= 40
    # each distinct prompt's own tokens, once, and what follows; the last id of a turn is read late
    whole = sum(len(ids) for ids, _ in contexts.values())
    assert read < whole - 8 * (len(shared) - 1)


def test_the_cache_grows_with_a_long_turn(model):
    generator = generator_of(model, frozenset(), max_new_tokens=150)
    generator.start([(1, row) for row in range(3)])
    prompts = {row: [50 + row + n for n in range(40 + row)] for row in range(3)}
    capacities = []
    take = generator._cache.__class__.take

    def taken(cache: Any, *arguments: Any) -> None:
        take(cache, *arguments)
        capacities.append(cache.capacity)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(generator._cache.__class__, "take", taken)
        samples = generator.sample(prompts)
    assert capacities == [128, 192]
    for row, sample in samples.items():
        assert len(sample.ids) == 150
        expected = logprobs_of(model, prompts[row] + sample.ids)[-150:]
        assert sample.logprobs == pytest.approx(expected.tolist(), abs=1e-4)


def test_what_rows_of_one_context_read_is_computed_once(model):
    """Six greedy rows of two prompts: each context is that of three rows, up to the third turn."""
    counts: list[int] = []
    generator = generator_of(model, greedy=True, on_tokens=lambda read, *_: counts.append(read))
    generator.start([(1, row) for row in range(6)])
    prompts = [[50 + row % 2 * 40 + n for n in range(20 + row % 2)] for row in range(6)]
    contexts = [list(one) for one in prompts]
    appended = dict(enumerate(prompts))
    for turn in range(3):
        counts.clear()
        for row, sample in generator.sample(appended).items():
            contexts[row] += sample.ids
            expected = logprobs_of(model, contexts[row])[-len(sample.ids) :]
            assert sample.logprobs == pytest.approx(expected.tolist(), abs=1e-4)
        # a later turn's chunk begins with the last id of the turn before; in the third turn, the
        # chunks of all rows differ
        assert sum(counts) == (20 + 21, 2 * 4, 6 * 4)[turn]
        appended = {row: [90 + row % 2 + row * turn, 95, 96 + row % 2] for row in range(6)}
        for row, ids in appended.items():
            contexts[row] += ids


def test_a_row_can_be_drawn_again_at_another_temperature(model):
    generator = generator_of(model, greedy=True, temperature=0.5)
    generator.start([(1,), (2,)])
    prompt = [50, 51, 52]
    first = generator.sample({0: prompt, 1: prompt})
    assert first[0] == first[1]
    drawn = set()
    for _ in range(8):
        generator.restart(1, len(prompt) - 1)
        generator.heat(1, 5.0)
        again = generator.sample({0: [60], 1: prompt[-1:]})
        drawn.add(tuple(again[1].ids))
        expected = logprobs_of(model, [*prompt, *again[1].ids], temperature=5.0)
        assert again[1].logprobs == pytest.approx(expected[len(prompt) - 1 :].tolist(), abs=1e-4)
    assert len(drawn) > 4
    generator.restart(1, len(prompt) - 1)
    generator.heat(1, None)
    assert generator.sample({1: prompt[-1:]})[1] == Sample(
        first[1].ids, pytest.approx(first[1].logprobs, abs=1e-4)
    )


def test_greedy_takes_the_most_likely_id(model):
    generator = generator_of(model, greedy=True)
    generator.start([(1,), (2,)])
    samples = generator.sample({0: [60, 61, 62], 1: [60, 61, 62]})
    assert samples[0].ids == samples[1].ids
    ids = [60, 61, 62]
    for sampled in samples[0].ids:
        with torch.no_grad():
            assert model(torch.tensor([ids])).logits[0, -1].argmax().item() == sampled
        ids.append(sampled)


def test_sampling_follows_the_distribution(model):
    rows = 3000
    generator = LocalGenerator(model, frozenset(), max_new_tokens=1, max_context_tokens=64)
    generator.start([(3, row) for row in range(rows)])
    drawn = [
        sample.ids[0]
        for sample in generator.sample({row: [60, 70, 80] for row in range(rows)}).values()
    ]
    with torch.no_grad():
        expected = model(torch.tensor([[60, 70, 80]])).logits[0, -1].softmax(-1)
    counts = torch.bincount(torch.tensor(drawn), minlength=len(expected)) / rows
    assert (
        counts - expected
    ).abs().sum() < 0.5  # total variation x 2 of 400 ids by 3,000 draws; uniform draws give > 1
    top = expected.topk(3).indices
    assert torch.allclose(counts[top], expected[top], atol=0.03)


def test_what_ends_a_turn(model):
    generator = LocalGenerator(model, frozenset(), max_new_tokens=5, max_context_tokens=8)
    generator.start([(1,), (2,)])
    samples = generator.sample({0: [60], 1: [60, 61, 62, 63, 64]})
    assert len(samples[0].ids) == 5
    assert len(samples[1].ids) == 3
    assert generator.room(1) == 0
    ends = LocalGenerator(model, frozenset(range(1000)), max_new_tokens=5, max_context_tokens=8)
    ends.start([(1,)])
    assert len(ends.sample({0: [60]})[0].ids) == 1
    assert LocalGenerator(model, STOPS, max_new_tokens=5, max_context_tokens=10**6).limit == 1024


@pytest.mark.parametrize("share", [0.01, 0.25, 0.6])
@pytest.mark.parametrize("greedy", [False, True])
def test_turns_that_end_early_are_those_of_a_whole_round(model, share, greedy):
    """Each row plays 1 to 5 turns; a row's next turn starts while others are under way."""
    rows = 12

    def played(ended_share: float) -> tuple[dict[int, list[Sample]], int]:
        generator = generator_of(model, ended_share=ended_share, greedy=greedy)
        generator.start([(1, row) for row in range(rows)])
        found: dict[int, list[Sample]] = {row: [] for row in range(rows)}
        appended, calls = prompts_of(rows), 0
        while samples := generator.sample(appended):
            calls, appended = calls + 1, {}
            for row, sample in samples.items():
                found[row].append(sample)
                if len(found[row]) < 1 + row % 5:
                    appended[row] = [60 + (row * 7 + n) % 300 for n in range(3 + 11 * (row % 3))]
        return found, calls

    (expected, rounds), (found, calls) = played(1.0), played(share)
    assert calls >= rounds == 5
    assert calls > rounds or share > 0.5
    for row in range(rows):
        assert [one.ids for one in found[row]] == [one.ids for one in expected[row]]
        for one, other in zip(found[row], expected[row], strict=True):
            assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)


def test_sliding_window_attention_is_refused():
    config = Qwen3Config(
        vocab_size=64, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, head_dim=8,
        num_key_value_heads=2, intermediate_size=16, use_sliding_window=True, sliding_window=8,
        max_window_layers=1,
    )  # fmt: skip
    with pytest.raises(ModelLoadError, match="sliding"):
        LocalGenerator(Qwen3ForCausalLM(config), STOPS, max_new_tokens=2, max_context_tokens=8)


def view(question_id: str = "q", **latest: object) -> Episode:
    shown = [observation(0, 6, **latest)]  # type: ignore[arg-type]
    return Episode(RolloutRow(question_id), np.random.default_rng(0), shown)


def test_random_policy_writes_valid_actions_of_every_kind():
    policy = RandomPolicy()
    seen = view()
    seen.observations += [
        observation(
            1, 5, result="name | total\nAnn | 3\n(first 7 rows; there are more)",
            schema_info="Tables: orders, customers\norders(order_id, total)",
            action_history=["SAMPLE: orders"],
        )
    ]  # fmt: skip
    texts = [text for _ in range(200) for text in policy.act([seen])]
    parsed = [parse_model_output(text or "", strict=True) for text in texts]
    assert {action.action_type for action in parsed} == set(ActionType)
    assert {action.argument for action in parsed if action.action_type == "ANSWER"} == {"Ann", "3"}
    last = view()
    last.observations[-1] = observation(5, 1)
    assert policy.act([last]) == ["ANSWER: 1"]


def test_read_schema_and_cells():
    assert read_schema("Tables: a, b c\na(x, y)\nb c(z)") == (
        ["a", "b c"],
        {"a": ["x", "y"], "b c": ["z"]},
    )
    shown = observation(
        1, 5, result="n | m\nAnn | NULL\n(no rows)", action_history=["QUERY: SELECT 1"]
    )
    assert read_cells(shown) == ["Ann"]
    described = observation(1, 5, result="t: 3 rows", action_history=["DESCRIBE: t"])
    assert read_cells(described) == []
