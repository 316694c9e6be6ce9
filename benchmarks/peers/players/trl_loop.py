"""TRL's own tool-calling loop with an `environment_factory`, without its model.

`GRPOTrainer` resets its environments one after another, and then `_tool_call_loop` plays a turn of
each, one after another. Both are called here as the trainer calls them. What needs a model is
replaced by the script: generation, the tokenizer and its parser cost nothing, and a row's ids are
its number and those of its turns.
"""

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from trl import GRPOTrainer
from trl.trainer import grpo_trainer

from benchmarks.peers.worker import Answer, Episode, read_workload
from shared.agents.tools import SQLEnvTools
from shared.client import SQLEnvClient

ARGUMENTS = {"describe": "table", "sample": "table", "query": "sql", "answer": "answer"}
Ids = list[int]


def tool_call(episode: Episode, turn: int) -> dict[str, Any]:
    """Return the message of a turn, without a tool call after the last action."""
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    if turn < len(episode.actions):
        kind, argument = episode.turns[turn]
        function = {"name": kind.lower(), "arguments": {ARGUMENTS[kind.lower()]: argument}}
        message["tool_calls"] = [{"type": "function", "function": function}]
    return message


class ScriptedTrainer:
    """What `_tool_call_loop` uses of its trainer."""

    use_vllm = _is_vlm = False
    max_tool_calling_iterations = max_completion_length = sys.maxsize
    model = SimpleNamespace(config=SimpleNamespace(max_position_embeddings=sys.maxsize))
    environment_factories, tools, _tokenizer = None, (), None

    def __init__(self, environments: Sequence[Any]) -> None:
        self._sync_tool_dicts = [
            {name: getattr(one, name) for name in ARGUMENTS} for one in environments
        ]
        self._async_tool_dicts: list[dict[str, Any]] = [{} for _ in environments]

    def _get_tool_suffix_ids(self, messages: Sequence[dict[str, Any]]) -> Ids:
        return []

    def _generate_single_turn(self, ids: Sequence[Ids], *_: Any, **__: Any) -> tuple[Any, None]:
        return [[len(one) - 1] for one in ids], None  # a row's number, then its turns

    def play(self, episodes: Sequence[Episode]) -> tuple[int, int]:
        """Play all episodes with TRL's loop; return how many calls it made, and how many failed."""

        def parse(tokenizer: None, ids: Ids, prefix: Ids, tools: object) -> dict[str, Any]:
            return tool_call(episodes[prefix[0]], ids[0])

        prompts = [[{"role": "user", "content": one.question_id}] for one in episodes]
        prompt_ids = [[row] for row in range(len(episodes))]
        first = [[tool_call(one, 0)] for one in episodes]
        with patch.object(grpo_trainer, "parse_response", parse):
            found = GRPOTrainer._tool_call_loop(
                self, prompts, prompt_ids, [[0] for _ in episodes], first, None, None, {}
            )
        calls, failures = found[4:6]
        return calls, failures


@asynccontextmanager
async def tools(path: str, url: str) -> AsyncIterator[Answer]:
    """Play with the tools that SQLEnv has for TRL."""
    workload = read_workload(path)
    budget = len(workload.episodes[0].actions)
    with SQLEnvClient(url).sync() as server:
        environments = [SQLEnvTools(server, step_budget=budget) for _ in workload.episodes]
        trainer = ScriptedTrainer(environments)

        async def wave(_: object) -> float:
            for environment, episode in zip(environments, workload.episodes, strict=True):
                environment.reset(question_id=episode.question_id)
            calls, failures = trainer.play(workload.episodes)
            if failures or calls != sum(len(one.actions) for one in workload.episodes):
                raise RuntimeError(f"TRL's loop made {calls} calls, of which {failures} failed")
            return sum(environment.get_reward() or 0.0 for environment in environments)

        yield wave
