"""TRL's own loop over `SQLEnvTools`: schemas, tool calls, rewards and an update."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from env_server.app import create_app
from env_server.settings import Settings
from shared.agents.tools import SQLEnvTools
from shared.client import in_process
from shared.client.sync import SyncSQLEnvClient
from shared.errors import ServerUnreachable
from shared.models import Outcome
from tests.trainer.model_families import tiny_model, tiny_tokenizer

RIGHT = [("describe", {"table": "customers"}), ("answer", {"answer": "5"})]
WRONG = [
    ("query", {"sql": "SELECT nothing"}),
    ("sample", {"table": "x"}),
    ("answer", {"answer": "4"}),
]


@pytest.fixture
def client(tiny_data: Path) -> Iterator[SyncSQLEnvClient]:
    app = create_app(Settings(data_dir=tiny_data, sql_workers=1, capacity=4))
    with in_process(app).sync() as client:
        yield client


def test_an_episode(client: SyncSQLEnvClient) -> None:
    tools = SQLEnvTools(client, step_budget=5)
    text = tools.reset(prompt="not an option", question_id="shop-1", seed=None)
    assert "How many customers are there?" in text
    assert "Steps left: 5" in text
    assert "customer_id" in tools.describe("customers")
    assert "Ann" in tools.sample("customers")
    assert "Error: " in tools.query("SELECT nothing")
    assert tools.query(" ").startswith("Error: query needs an argument")
    assert tools.outcome is None
    assert "over" in tools.answer(5)  # type: ignore[arg-type]  # models send numbers
    assert tools.outcome == Outcome.CORRECT
    assert (tools.get_reward() or 0) > 0.9
    assert tools.query("SELECT 1") == "The episode is over."
    tools.reset(question_id="shop-1")
    missed = client.step(client.open_episodes[0], "QUERY: SELECT 1")  # as if it was cancelled
    tools.answer("4")
    assert tools.get_reward() == missed.reward != 0
    for _ in range(9):  # of the server's four places it takes one
        tools.reset(question_id="shop-2")
    assert tools.get_reward() == 0.0


def test_a_server_that_fails_gives_no_reward(
    client: SyncSQLEnvClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise ServerUnreachable("gone")

    tools = SQLEnvTools(client)
    tools.reset(question_id="shop-1")
    monkeypatch.setattr(client, "step", fail)
    with pytest.raises(ServerUnreachable):
        tools.describe("customers")
    assert tools.get_reward() is None
    assert tools.describe("customers") == "The episode is over."


def turn_of(text: str, right: bool) -> str:
    """Return the turn after a conversation's text: a call of a script, or none at its end."""
    turn, script = text.count("<tool_response>\n"), RIGHT if right else WRONG
    if turn == len(script):
        return "Done.<|im_end|>"
    call = {"name": script[turn][0], "arguments": script[turn][1]}
    return f"<tool_call>\n{json.dumps(call)}\n</tool_call><|im_end|>"


@pytest.mark.slow
def test_grpo_trains_on_tool_calls(client: SyncSQLEnvClient, tmp_path: Path) -> None:
    """The turns are scripted, as no tiny model calls tools: one row is right, the other wrong."""
    tokenizer, model = tiny_tokenizer("qwen3"), tiny_model("qwen3")
    seen: list[str] = []

    def generate(input_ids: torch.Tensor, **_: Any) -> torch.Tensor:
        turns = []
        for ids in input_ids:
            text = tokenizer.decode(ids)
            seen.append(text)
            # the right row describes first; a later call may hold fewer rows
            started = "<tool_response>\n" in text
            right = "customer_id" in text if started else len(turns) % 2 == 0
            turns.append(tokenizer(turn_of(text, right), return_tensors="pt").input_ids[0])
        padded = torch.nn.utils.rnn.pad_sequence(
            turns, batch_first=True, padding_value=tokenizer.pad_token_id
        )
        return torch.cat([input_ids, padded], dim=1)

    model.generate = generate
    before = {name: value.clone() for name, value in model.state_dict().items()}
    config = GRPOConfig(
        output_dir=str(tmp_path),
        max_steps=1,
        per_device_train_batch_size=2,
        num_generations=2,
        max_completion_length=1500,
        learning_rate=1e-3,
        report_to="none",
        logging_steps=1,
        save_strategy="no",
        bf16=False,
        use_cpu=True,
        gradient_checkpointing=False,
    )
    prompt = [{"role": "user", "content": "Answer with the tools."}]
    trainer = GRPOTrainer(
        model=model,
        args=config,
        processing_class=tokenizer,
        train_dataset=Dataset.from_list([{"prompt": prompt, "question_id": "shop-1"}] * 4),
        environment_factory=lambda: SQLEnvTools(client),
    )
    trainer.train()
    row = next(row for row in trainer.state.log_history if "reward" in row)
    assert "How many customers are there?" in seen[0]
    assert '"name": "describe"' in seen[0], "the schemas are in the prompt"
    rewards = sorted(one.get_reward() for one in trainer.environments)
    assert rewards[0] < 0.1 < 0.9 < rewards[1]
    assert row["reward"] == pytest.approx(sum(rewards) / 2, abs=1e-4)
    assert row["rewards/SQLEnvTools/mean"] == row["reward"]
    assert row["tools/failure_frequency"] == 0
    assert any(not torch.equal(before[name], value) for name, value in model.state_dict().items())
