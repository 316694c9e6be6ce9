"""The episode loop and its TRL adapter."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM
from trl import GRPOTrainer

from shared.actions import ActionType, SQLAction
from shared.client import ClientLimits, SQLEnvClient
from shared.errors import EpisodeTooLarge, Forbidden, ServerUnreachable, UnknownQuestion
from shared.server_process import running_server
from tests.trainer.conftest import CHATML, FakeClient, make_tokenizer
from tests.trainer.rollout.test_tokens import QWEN3
from trainer.config import GRPOConfig
from trainer.errors import PromptError, RolloutError
from trainer.grpo.trl_config import trl_config
from trainer.rollout.adapters import rollout_func
from trainer.rollout.dataset import load_question_prompts, prompt_of
from trainer.rollout.generators.base import Sample, StopReason
from trainer.rollout.loop import RolloutStats, play_episodes, play_scripted, sample_random_baseline
from trainer.rollout.parsing import (
    FallbackWarnings,
    ParsedAction,
    parse_model_output,
    parse_with_fallback,
)
from trainer.rollout.rewards import REWARD_FUNCTIONS
from trainer.rollout.row import RolloutRow

pytestmark = [
    pytest.mark.filterwarnings("ignore:You are using 'rollout_func'"),
    # TRL asks by the old name
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning"),
]


def prompts_for(config: GRPOConfig, *question_ids: str) -> list[Any]:
    return [
        prompt_of(question_id, "How many orders are there?", config) for question_id in question_ids
    ]


NAMES = ("a", "a", "b", "c", "c", "c", "d", "e")
AFTER = {"a": 1, "b": 2, "c": 6, "d": 3}


@pytest.mark.parametrize("template", [CHATML, QWEN3], ids=["chatml", "qwen3"])
def test_rows_are_token_exact(model: Qwen3ForCausalLM, config: GRPOConfig, template: str) -> None:
    """Invariant 1: one pass over prompt_ids + completion_ids gives the sampled logprobs on every
    trained id."""
    tokenizer = make_tokenizer(template)
    rows = play_episodes(
        prompts_for(config, *NAMES), model, tokenizer, config, client=FakeClient(after=AFTER)
    )
    assert len({len(row.completion_ids) for row in rows}) > 4
    assert len({row.steps for row in rows}) > 2
    for row in rows:
        ids = row.ids
        with torch.no_grad():
            logprobs = model(torch.tensor([ids])).logits[0, :-1].float().log_softmax(-1)
        expected = logprobs.gather(-1, torch.tensor(ids[1:])[:, None])[len(row.prompt_ids) - 1 :, 0]
        for value, own, masked in zip(row.logprobs, expected.tolist(), row.env_mask, strict=True):
            assert abs(value - own) < 1e-4 if masked else value == 0.0


class CutThought:
    """Samples a turn that ends within its thinking."""

    def __init__(self, ids: list[int]) -> None:
        self.turn = Sample(ids, [0.0] * len(ids), StopReason.LENGTH)

    def start(self, streams: Sequence[tuple[int, ...]]) -> None: ...

    def restart(self, row: int) -> None: ...

    def room(self, row: int) -> int:
        return 1000

    def sample(self, appended: Mapping[int, Sequence[int]]) -> dict[int, Sample]:
        return dict.fromkeys(appended, self.turn)


def test_a_cut_thought_behind_an_opened_block_is_no_action(config: GRPOConfig) -> None:
    tokenizer = make_tokenizer(CHATML.replace("assistant\n", "assistant\n<think>\n"))
    thought = "It may be\nANSWER: 42\nbut"
    generator = CutThought(tokenizer.encode(thought))
    prompts, client = prompts_for(config, "a"), FakeClient()
    (row,) = play_episodes(prompts, None, tokenizer, config, client=client, generator=generator)
    assert row.parse_failures == len(row.texts) > 1, "it did not answer"
    assert row.texts[0] == "<think>" + thought


def test_row_decodes_to_its_own_transcript(model: Qwen3ForCausalLM, config: GRPOConfig) -> None:
    tokenizer = make_tokenizer(CHATML)
    client = FakeClient(after=AFTER)
    for row in play_episodes(prompts_for(config, *NAMES), model, tokenizer, config, client=client):
        messages = row.transcript
        # the last observation is only in the transcript
        while messages[-1]["role"] == "user":
            messages = messages[:-1]
        assert [m["role"] for m in messages[:3]] == ["system", "user", "assistant"]
        turns = [
            tokenizer.decode([i for i, _ in turn], skip_special_tokens=True)
            for masked, turn in groupby(
                zip(row.completion_ids, row.env_mask, strict=True), key=lambda pair: pair[1]
            )
            if masked
        ]
        assert turns == [
            message["content"] for message in messages if message["role"] == "assistant"
        ]
        assert row.completion_ids[-1] in (tokenizer.eos_token_id, tokenizer.pad_token_id)
        assert row.texts == [m["content"] for m in messages if m["role"] == "assistant"]


def test_an_episode_does_not_depend_on_its_batch(
    model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, config: GRPOConfig
) -> None:
    together = play_episodes(
        prompts_for(config, *NAMES), model, tokenizer, config, client=FakeClient(after=AFTER)
    )
    alone = play_episodes(
        prompts_for(config, "c", "c"), model, tokenizer, config, client=FakeClient(after=AFTER)
    )
    assert [row.completion_ids for row in alone] == [row.completion_ids for row in together[3:5]]
    assert alone[0].completion_ids != alone[1].completion_ids
    other = play_episodes(
        prompts_for(config, "c"), model, tokenizer, config, client=FakeClient(after=AFTER), seed=7
    )
    assert other[0].completion_ids != alone[0].completion_ids


def test_greedy_episodes_of_one_question_are_equal(
    model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, config: GRPOConfig
) -> None:
    rows = play_episodes(
        prompts_for(config, "c", "c"), model, tokenizer, config, client=FakeClient(), greedy=True
    )
    assert rows[0].completion_ids == rows[1].completion_ids


def test_stats_count_everything(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    config: GRPOConfig,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trainer.rollout.batch.fallback_warnings", FallbackWarnings())
    caplog.set_level("WARNING", logger="trainer.rollout.parsing")  # commands hide it
    stats = RolloutStats()
    rows = play_episodes(
        prompts_for(config, *NAMES), model, tokenizer, config, client=FakeClient(), stats=stats
    )
    assert stats.episodes == len(rows)
    assert stats.steps == sum(row.steps for row in rows)
    # a random model writes no action
    assert stats.parse_failures == sum(row.parse_failures for row in rows) > 1
    # and says so once a minute, not once per text
    assert caplog.text.count("were no action and were sent as a QUERY") == 1
    assert stats.env_errors == sum(len(row.env_errors) for row in rows) > 0
    assert stats.sampled_tokens == sum(sum(row.env_mask) for row in rows)
    assert 0 < stats.generate_s < stats.rollout_s
    assert stats.env_wait_s > 0
    assert stats.episodes_lost == 0


@pytest.mark.parametrize("step", [0, 1, 3])
def test_a_lost_episode_is_one_masked_eos_without_rewards(
    model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, config: GRPOConfig, step: int
) -> None:
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
    model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, config: GRPOConfig, step: int
) -> None:
    stats = RolloutStats()
    client = FakeClient(failing={"b": step})
    client.error = EpisodeTooLarge
    rows = play_episodes(
        prompts_for(config, "a", "b", "c"), model, tokenizer, config, client=client, stats=stats
    )
    [large] = [row for row in rows if row.too_large]
    assert (large.question_id, large.outcome, large.steps) == ("b", "abandoned", step - 1)
    assert (large.lost, stats.episodes_lost, stats.episodes_too_large) == (None, 0, 1)
    assert len(client.closed) == 1, "its place is free again"
    assert None not in (large.correctness, large.progress, large.operational, large.reward)
    # the refused text was sampled, so it is trained on
    assert len(large.texts) == step == len(large.actions) + 1
    assert sum(large.env_mask) == large.sampled_tokens > 0
    assert len(large.rewards) == len(large.parts) == len(large.observations) - 1 == step - 1
    assert [row.outcome for row in rows if row is not large] == ["budget", "budget"]


def test_an_agents_key_stops_the_run_with_its_remedy(config: GRPOConfig) -> None:
    """A trainer needs the reward of every step, which such a key does not get."""
    client = FakeClient(failing={"a": 0})
    client.error = Forbidden
    with pytest.raises(Forbidden):
        sample_random_baseline(prompts_for(config, "a"), config, client)


def test_the_trainer_asks_for_the_reward_of_every_step(config: GRPOConfig) -> None:
    asked: list[Any] = []

    class Asked(FakeClient):
        def reset_many(self, requests: Any) -> Any:
            asked.extend(requests)
            return super().reset_many(asked)

    sample_random_baseline(prompts_for(config, "a", "b"), config, Asked())
    assert [request["rewards"] for request in asked] == ["step", "step"]


def test_too_many_lost_episodes_stop_the_run(
    model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, config: GRPOConfig
) -> None:
    client = FakeClient(failing={"a": 1})
    with pytest.raises(
        RolloutError, match=r"2 of 8 episodes were lost .*127\.0\.0\.1:1 does not answer"
    ):
        play_episodes(prompts_for(config, *NAMES), model, tokenizer, config, client=client)


def test_a_question_that_the_server_lacks_is_no_lost_episode(
    model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, config: GRPOConfig
) -> None:
    client = FakeClient(failing={"a": 0})
    client.error = UnknownQuestion
    with pytest.raises(UnknownQuestion):
        play_episodes(
            prompts_for(config, *NAMES),
            model,
            tokenizer,
            config.override(max_lost_fraction=0.9),
            client=client,
        )


def test_prompts_must_name_their_question(
    config: GRPOConfig, model: Qwen3ForCausalLM, tokenizer: Any
) -> None:
    for prompt in ([{"role": "user", "content": "How many?"}], "How many?"):
        with pytest.raises(PromptError, match="load_question_prompts"):
            play_episodes([prompt], model, tokenizer, config, client=FakeClient())  # type: ignore[list-item]


SCRIPTS = {
    "a": ["DESCRIBE: orders", "QUERY: SELECT COUNT(*) FROM orders", "ANSWER: 42"],
    "b": ["ANSWER: 7"],
    "c": ["SAMPLE: orders"],
}


def test_scripted_rows_hold_the_scripts_ids(
    tokenizer: PreTrainedTokenizerFast, config: GRPOConfig
) -> None:
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


def test_random_baseline_needs_no_model(config: GRPOConfig) -> None:
    rows = sample_random_baseline(prompts_for(config, *NAMES), config, FakeClient())
    again = sample_random_baseline(prompts_for(config, *NAMES), config, FakeClient())
    assert [row.actions for row in rows] == [row.actions for row in again]
    assert all(row.actions and row.prompt_ids == [] for row in rows)
    assert len({tuple(row.actions) for row in rows}) > 1


def test_rollout_func(
    model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, config: GRPOConfig, tmp_path: Path
) -> None:
    """TRL trains on the rows: real GRPOTrainer steps, in which the policy's log-probabilities are
    the sampled ones."""
    check_rollout_func(model, tokenizer, config, tmp_path, bound=1e-4)


def test_rollout_func_under_autocast(
    model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, config: GRPOConfig, tmp_path: Path
) -> None:
    check_rollout_func(model, tokenizer, config.override(dtype="bfloat16"), tmp_path, bound=0.1)


def check_rollout_func(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    config: GRPOConfig,
    tmp_path: Path,
    bound: float,
) -> None:
    seen: list[RolloutRow] = []
    differences: list[float] = []
    stats = RolloutStats()
    lenient = config.override(max_lost_fraction=0.5, learning_rate=1e-3)

    class Checked(GRPOTrainer):  # type: ignore[misc]
        def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
            ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
            mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
            own, *_ = self._get_per_token_logps_and_entropies(
                model, ids, mask, inputs["completion_ids"].shape[1]
            )
            trained = (inputs["completion_mask"] * inputs["tool_mask"]).bool()
            differences.extend((own - inputs["sampling_per_token_logps"])[trained].abs().tolist())
            return super()._compute_loss(model, inputs)

    before = {name: value.clone() for name, value in model.named_parameters()}
    trainer = Checked(
        model=model,
        processing_class=tokenizer,
        reward_funcs=list(REWARD_FUNCTIONS),
        args=trl_config(
            lenient, output_dir=str(tmp_path), max_steps=2, logging_steps=1, disable_tqdm=True
        ),
        train_dataset=Dataset.from_list(
            [{"prompt": prompt} for prompt in prompts_for(config, "a", "b", "c", "d")]
        ),
        rollout_func=partial(
            rollout_func,
            config=lenient,
            client=FakeClient(after=AFTER, failing={"b": 1}),
            stats=stats,
            on_rows=lambda rows, trainer: seen.extend(rows),
        ),
    )
    trainer.train()
    assert stats.episodes == len(seen) == 2 * config.rollouts_per_step
    assert model.training  # TRL's own mode is given back after each rollout
    groups = [
        [row.question_id for row in seen[start : start + 4]] for start in range(0, len(seen), 4)
    ]
    assert all(len(set(group)) == 1 for group in groups)
    # each draws its own
    assert len({tuple(row.completion_ids) for row in seen if row.question_id != "b"}) > 8
    logged = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert len(logged) == 2
    assert {
        f"rewards/reward_{name}/mean" for name in ("correctness", "progress", "operational")
    } <= set(logged[0])
    rewards = [row.reward for row in seen[: config.rollouts_per_step] if row.reward is not None]
    assert logged[0]["reward"] == pytest.approx(sum(rewards) / len(rewards), abs=1e-5)
    assert len(differences) == sum(sum(row.env_mask) for row in seen)
    assert max(differences) < bound
    assert any(not torch.equal(before[name], value) for name, value in model.named_parameters())


@pytest.fixture(scope="module")
def server_url(tiny_data: Path) -> Iterator[str]:
    with running_server(tiny_data) as server:
        yield server.url


EXPERT = {
    "shop-1": ["DESCRIBE: customers", "QUERY: SELECT count(*) FROM customers", "ANSWER: 5"],
    "shop-2": ["SAMPLE: products", "ANSWER: 24.5"],
    "shop-3": [
        "DESCRIBE: products",
        "QUERY: SELECT title FROM products ORDER BY price DESC",
        "ANSWER: desk",
    ],
    "shop-4": ["QUERY: SELECT name FROM customers WHERE city = 'Oslo'", 'ANSWER: ["Zoë", "Ann"]'],
}


def imitate(model: Qwen3ForCausalLM, rows: list[RolloutRow], steps: int) -> None:
    """Overfit the model to the rows' own ids."""
    ids = [torch.tensor(row.ids) for row in rows]
    own = [torch.tensor(row.learn_mask) for row in rows]
    ids_R_T = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True)
    labels_R_T = ids_R_T.where(torch.nn.utils.rnn.pad_sequence(own, batch_first=True) == 1, -100)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    model.train()
    for _ in range(steps):
        # right padding: causal attention never sees it
        loss = model(ids_R_T, labels=labels_R_T).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()


def test_demonstrations_imitation_and_grpo_over_http(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    config: GRPOConfig,
    server_url: str,
    tiny_data: Path,
    tmp_path: Path,
) -> None:
    """Against a real server, a model that was overfitted to scripted rows samples the same ids;
    then TRL trains it on its samples."""
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    config = config.override(
        server_urls=server_url, data_dir=tiny_data, max_new_tokens=40, learning_rate=1e-3
    )
    scripted = play_scripted(EXPERT, tokenizer, config)
    assert [row.outcome for row in scripted] == ["correct"] * 4
    assert all(row.reward > 1.0 for row in scripted)
    imitate(model, scripted, steps=60)

    rows = {row["question_id"]: row for row in load_question_prompts(config)}
    prompts = [rows[question_id]["prompt"] for question_id in EXPERT]
    played = play_episodes(prompts, model, tokenizer, config, greedy=True)
    assert [row.texts for row in played] == list(EXPERT.values())
    for own, demonstration in zip(played, scripted, strict=True):
        for key in ("prompt_ids", "completion_ids", "env_mask", "outcome", "reward", "transcript"):
            assert getattr(own, key) == getattr(demonstration, key)

    seen: list[RolloutRow] = []
    hot = config.override(temperature=1.5)  # so that a group's episodes differ
    trainer = GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        reward_funcs=list(REWARD_FUNCTIONS),
        args=trl_config(
            hot, output_dir=str(tmp_path), max_steps=1, logging_steps=1, disable_tqdm=True
        ),
        train_dataset=Dataset.from_list([{"prompt": prompt} for prompt in prompts]),
        rollout_func=partial(rollout_func, config=hot, on_rows=lambda batch, _: seen.extend(batch)),
    )
    trainer.train()
    assert {row.question_id for row in seen} <= set(EXPERT)
    rewards = [row.reward for row in seen]
    assert len(set(rewards)) > 1
    logged = next(entry for entry in trainer.state.log_history if "reward" in entry)
    assert logged["reward"] == pytest.approx(sum(rewards) / len(rewards), abs=1e-5)
    assert logged["grad_norm"] > 0


def test_an_unreachable_server_is_named(
    model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, config: GRPOConfig
) -> None:
    nowhere = config.override(server_urls="http://127.0.0.1:9", server_wait_s=0)
    with (
        SQLEnvClient(nowhere.server_urls, ClientLimits(max_attempts=1)).sync() as client,
        pytest.raises(RolloutError, match=r"http://127\.0\.0\.1:9") as caught,
    ):
        play_episodes(prompts_for(config, "a"), model, tokenizer, nowhere, client=client)
    assert isinstance(caught.value.__cause__, ServerUnreachable)


@pytest.mark.parametrize(
    ("text", "argument"),
    [
        ("I don't know", "I don't know"),
        ("  The answer is 42. ", "The answer is 42."),
        ("DESCRIBE:", "DESCRIBE:"),
        ("INSPECT: singer", "INSPECT: singer"),
        ('{"action_type": "DROP", "argument": "t"}', '{"action_type": "DROP", "argument": "t"}'),
        ("", "(empty)"),
        ("   \n", "(empty)"),
        ("<think>never closed", "<think>never closed"),
        ("DESCR\u0130BE: singer", "DESCR\u0130BE: singer"),
    ],
)
def test_parse_model_output_fallback(
    text: str, argument: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Text that is no action is a QUERY with the raw text, logged as a warning and counted."""
    monkeypatch.setattr("trainer.rollout.parsing.fallback_warnings", FallbackWarnings())
    with caplog.at_level("WARNING", logger="trainer.rollout.parsing"):
        action = parse_model_output(text)
    assert action == SQLAction(action_type=ActionType.QUERY, argument=argument)
    assert parse_with_fallback(text) == ParsedAction(action, fallback=True)
    assert "were no action and were sent as a QUERY" in caplog.text
