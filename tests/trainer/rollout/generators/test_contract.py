"""What every generator promises, on each that is present: this process, chat completions, token ids
of vLLM's and llama.cpp's form, and a running server (slow).

Name that server with MODEL_SERVER=http://host:8000/v1, and the folder of its model's tokenizer with
MODEL_SERVER_TOKENIZER. It needs a context window of 1,024 tokens or more.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from tests.trainer.chat_server import AT_ONCE, ModelBehind, refusal, served
from tests.trainer.conftest import FakeClient
from tests.trainer.model_families import tiny_model, tiny_tokenizer
from tests.trainer.rollout.conftest import prompts_for
from trainer.config import GRPOConfig
from trainer.rollout.generators.completions import CompletionsGenerator
from trainer.rollout.generators.model_server import ModelServer
from trainer.rollout.generators.openai import OpenAIPolicy
from trainer.rollout.loop import local_generator, play_episodes
from trainer.rollout.row import RolloutRow
from trainer.rollout.tokens import codec_of
from trainer.runtime.models import load_tokenizer

SERVED = ("local", "chat", "vllm ids", "llama.cpp ids")
# what plays, the family of its template, and whether it thinks
TINY = (("local", "qwen2.5", False), *((kind, "qwen3", True) for kind in SERVED))
# ids are those that the codec made, whatever the family
SLOW = (("chat", "qwen2.5", False), ("chat", "qwen3", False), ("local", "qwen3", False))
RUNNING = ("running chat", "running ids")


@dataclass
class Game:
    """Plays episodes of a fake environment with one kind of generator."""

    tokenizer: Any
    config: GRPOConfig
    connect: Callable[[GRPOConfig, bool], Any]  # -> a generator or a policy
    model: Any = None  # where it is in this process
    behind: ModelBehind | None = None
    used: ModelServer | None = None  # by the latest `play`

    def play(
        self, *names: str, greedy: bool = True, seed: int = 1, **changes: Any
    ) -> list[RolloutRow]:
        config = self.config.override(**changes)
        player = self.connect(config, greedy)
        self.used = player if isinstance(player, ModelServer) else None
        by_text = isinstance(player, OpenAIPolicy)
        with ExitStack() as stack:
            if self.used is not None:
                stack.callback(self.used.close)
            return play_episodes(
                prompts_for(config, *names),
                None,
                None if by_text else self.tokenizer,
                config,
                client=FakeClient(after={"b": 2}),
                policy=player if by_text else None,
                generator=None if by_text else player,
                greedy=greedy,
                seed=seed,
                check_lost=False,
            )


def running(tokenizer: Any, ids: bool) -> Callable[[GRPOConfig, bool], Any]:
    """Return how to connect to the server that MODEL_SERVER names."""
    import httpx

    url = os.environ["MODEL_SERVER"]
    name = httpx.get(f"{url}/models").raise_for_status().json()["data"][0]["id"]

    def connect(config: GRPOConfig, greedy: bool) -> ModelServer:
        server = remote(name, url, tokenizer, config, greedy, ids)
        server.check()
        return server

    return connect


def remote(
    name: str, url: str, tokenizer: Any, config: GRPOConfig, greedy: bool, ids: bool
) -> ModelServer:
    codec = codec_of(tokenizer, config.thinking)
    connection = {
        "temperature": 0.0 if greedy else 1.0,
        "max_tokens": config.max_new_tokens,
        "max_attempts": 2,
        "concurrency": 1,
    }
    if not ids:
        options = {
            "system_prompt": config.system_prompt,
            "thinking": config.thinking,
            "one_action_per_turn": config.one_action_per_turn,
        }
        return OpenAIPolicy(name, url, **options, **connection)  # type: ignore[arg-type]
    connection["ends_action"] = codec.ends_action if config.one_action_per_turn else None
    connection["max_context_tokens"] = config.max_context_tokens
    return CompletionsGenerator(name, url, codec, **connection)  # type: ignore[arg-type]


@pytest.fixture(
    params=[
        *(pytest.param(one, id=" ".join(map(str, one))) for one in TINY),
        *(pytest.param(one, id=" ".join(map(str, one)), marks=pytest.mark.slow) for one in SLOW),
        *(pytest.param((one, "", False), id=one, marks=pytest.mark.slow) for one in RUNNING),
    ]
)
def game(request: pytest.FixtureRequest, config: GRPOConfig) -> Iterator[Game]:
    kind, family, thinking = request.param
    config = config.override(step_budget=4, max_new_tokens=10, thinking=thinking)
    if kind in RUNNING:
        if "MODEL_SERVER" not in os.environ:
            pytest.skip("MODEL_SERVER names no running server")
        tokenizer = load_tokenizer(os.environ["MODEL_SERVER_TOKENIZER"])
        yield Game(tokenizer, config, running(tokenizer, kind == "running ids"))
        return
    model, tokenizer = tiny_model(family), tiny_tokenizer(family)
    if kind == "local":

        def connect(config: GRPOConfig, greedy: bool) -> Any:
            codec = codec_of(tokenizer, config.thinking)
            return local_generator(model, codec, config, greedy=greedy)

        yield Game(tokenizer, config, connect, model)
        return
    with served(ModelBehind(model, tokenizer, ids=kind.split()[0])) as behind:

        def connect_to(config: GRPOConfig, greedy: bool) -> Any:
            return remote("fake", behind.url, tokenizer, config, greedy, kind != "chat")

        yield Game(tokenizer, config, connect_to, model, behind)


def conversation(game: Game, row: RolloutRow, turn: int) -> list[int]:
    """Return the template's ids of an episode before its n-th turn."""
    ids: list[int] = game.tokenizer.apply_chat_template(
        row.transcript[: 2 + 2 * turn],
        add_generation_prompt=True,
        enable_thinking=game.config.thinking,
        return_dict=False,
    )
    return ids


@pytest.mark.parametrize("faults", [1, 2])
def test_a_request_that_fails_is_repeated_and_then_loses_its_own_episode(
    game: Game, faults: int
) -> None:
    if game.behind is None:
        pytest.skip("no server to fail")
    game.behind.faults += [refusal(500, "out of memory", AT_ONCE)] * faults
    rows = game.play("a", "b")
    lost: Sequence[str | None] = [row.lost for row in rows]
    assert sum(one is not None for one in lost) == faults - 1
    assert game.used is not None
    assert game.used.usage.retries == 1
    for row in rows:
        if row.lost is not None:
            assert "out of memory" in row.lost
            assert row.correctness is None
            assert sum(row.env_mask) == 0
