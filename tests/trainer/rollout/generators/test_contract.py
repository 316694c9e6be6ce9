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
import torch

from tests.trainer.chat_server import AT_ONCE, ModelBehind, refusal, served
from tests.trainer.conftest import FakeClient
from tests.trainer.model_families import tiny_model, tiny_tokenizer
from tests.trainer.rollout.conftest import prompts_for
from trainer.config import ApiName, GRPOConfig
from trainer.errors import ConfigError, ModelLoadError
from trainer.rollout.generators.completions import CompletionsGenerator
from trainer.rollout.generators.model_server import ModelServer
from trainer.rollout.generators.openai import OpenAIPolicy
from trainer.rollout.loop import local_generator, play_episodes
from trainer.rollout.row import RolloutRow
from trainer.rollout.served import served_model
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


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_a_server_constrains_no_tokens(config: GRPOConfig, api: ApiName) -> None:
    config = config.override(constrain_first_token=True)
    with (
        pytest.raises(ConfigError, match="constrain_first_token=false"),
        served_model(config, "http://127.0.0.1:9/v1", api),
    ):
        pass


def test_ids_of_a_model_without_a_tokenizer_here_need_its_name(config: GRPOConfig) -> None:
    config = config.override(model_name="./policy")
    with (
        pytest.raises(ModelLoadError, match=r"tokenizer of \./policy.*--tokenizer.*--api chat"),
        served_model(config, "http://127.0.0.1:9/v1", "completions"),
    ):
        pass


def test_episodes_are_played_to_their_end(game: Game) -> None:
    rows = game.play("a", "b", "a")
    assert [row.steps for row in rows] == [4, 2, 4]
    for row in rows:
        assert row.outcome in ("budget", "wrong", "correct")
        assert len(row.texts) == len(row.actions) == row.steps
        assert [one["content"] for one in row.transcript if one["role"] == "assistant"] == row.texts
        assert 0 < row.sampled_tokens <= 10 * row.steps


def test_a_greedy_game_repeats_itself(game: Game) -> None:
    first, second = game.play("a", "b"), game.play("a", "b", seed=2)
    assert [row.texts for row in first] == [row.texts for row in second]


def test_a_sampled_game_follows_from_its_seed(game: Game) -> None:
    first, other = (game.play("a", "a", greedy=False, seed=seed) for seed in (1, 2))
    assert [row.texts for row in first] != [row.texts for row in other]
    assert first[0].texts != first[1].texts
    if game.model is not None:  # the arithmetic of a running server depends on what it has cached
        again = game.play("a", "a", greedy=False, seed=1)
        assert [row.texts for row in first] == [row.texts for row in again]


def test_the_first_turn_is_that_of_the_model_in_this_process(game: Game) -> None:
    """All read the same prompt and decode it the same way, and whoever has ids has these."""
    if game.model is None:
        pytest.skip("the model runs elsewhere")
    codec = codec_of(game.tokenizer, game.config.thinking)
    local = local_generator(game.model, codec, game.config, greedy=True)
    (expected,) = play_episodes(
        prompts_for(game.config, "a"),
        None,
        game.tokenizer,
        game.config,
        client=FakeClient(),
        generator=local,
    )
    (row,) = game.play("a")
    assert row.texts[0] == expected.texts[0]
    if row.completion_ids:
        assert row.ids == expected.ids
        assert row.logprobs == pytest.approx(expected.logprobs, abs=1e-4)
        assert row.texts == expected.texts


def test_what_the_model_reads_is_the_conversation(game: Game) -> None:
    """By the server's own count of tokens: of the template's text for chat completions, of the ids
    so far for others."""
    (row,) = game.play("b")
    if row.completion_ids:
        sampled = [n for n, mask in enumerate(row.env_mask) if mask]
        starts = [n for n in sampled if n == 0 or not row.env_mask[n - 1]]
        expected = [[*row.prompt_ids, *row.completion_ids[:start]] for start in starts]
        assert expected[0] == conversation(game, row, 0)
    else:
        expected = [conversation(game, row, turn) for turn in range(row.steps)]
    assert len(expected) == row.steps
    if game.behind is not None:
        assert game.behind.prompts == expected
    if game.used is not None:
        assert game.used.usage.prompt_tokens == sum(map(len, expected))


def test_log_probabilities_are_those_of_one_pass_over_the_row(game: Game) -> None:
    rows = game.play("a", "b", greedy=False)
    if game.model is None or not rows[0].completion_ids:
        pytest.skip("it returns no log-probabilities of a model in this process")
    for row in rows:
        with torch.no_grad():
            logits = game.model(torch.tensor([row.ids])).logits[0, :-1].float()
        own = logits.log_softmax(-1).gather(-1, torch.tensor(row.ids[1:])[:, None])[:, 0]
        trained = [n for n, mask in enumerate(row.env_mask) if mask]
        assert len(trained) == row.sampled_tokens
        for n in trained:
            assert abs(own[len(row.prompt_ids) + n - 1].item() - row.logprobs[n]) < 1e-4


def test_an_episode_goes_on_when_its_context_is_full(game: Game) -> None:
    window = 190
    if game.behind is not None:
        game.behind.window = window
    elif game.used is None and game.model is None:
        pytest.skip("the window of a running server is its own")
    (row,) = game.play("a", step_budget=8, max_context_tokens=window)
    assert row.steps == 8
    cut = row.context_truncations
    if isinstance(game.used, OpenAIPolicy):
        cut = game.used.usage.truncations
    assert cut > 0


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
