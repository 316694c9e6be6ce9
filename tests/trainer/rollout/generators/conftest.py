"""A chat server on a real socket, a policy of it, and the episodes that it acts in."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

from shared.errors import SQLEnvError
from shared.models import SQLObservation
from tests.trainer.chat_server import ChatServer, Messages, served
from tests.trainer.conftest import FakeClient, observation, prompts_for
from trainer.config.settings import GRPOConfig
from trainer.rollout.episode import Episode
from trainer.rollout.generators.openai_players import OpenAIPolicy
from trainer.rollout.loop import play_episodes
from trainer.rollout.prompts import format_observation, opening_messages
from trainer.rollout.row import RolloutRow

TURNS = ["DESCRIBE: orders", "Let me count.\nQUERY: SELECT COUNT(*) FROM orders", "ANSWER: 42"]


def in_turn(messages: Messages) -> str:
    return TURNS[sum(message["role"] == "assistant" for message in messages) % len(TURNS)]


@pytest.fixture
def chat() -> Iterator[ChatServer]:
    with served(ChatServer(in_turn)) as server:
        yield server


def policy_of(chat: ChatServer, **options: Any) -> OpenAIPolicy:
    return OpenAIPolicy("fake", chat.url, **{"max_attempts": 3, **options})


def act(policy: OpenAIPolicy, episodes: Sequence[Episode]) -> list[str | SQLEnvError | None]:
    return policy.run_all([partial(policy.act_one, one) for one in episodes])


def play(
    policy: OpenAIPolicy, config: GRPOConfig, names: str, client: Any = None, **options: Any
) -> list[RolloutRow]:
    """Play an episode for each letter of `names`, on a client that needs no server."""
    options |= {"client": client or FakeClient(), "policy": policy}
    return play_episodes(prompts_for(config, *names), None, None, config, **options)


def view_of(turns: int = 0) -> Episode:
    row = RolloutRow("q", transcript=opening_messages("short"))
    episode = Episode(row, np.random.default_rng(7))
    seen(episode, observation(0, 6, result="r0"))
    for number in range(turns):
        acted(episode, f"SAMPLE: t{number}")
        seen(episode, observation(number + 1, 5 - number, result=f"r{number + 1}"))
    return episode


def seen(episode: Episode, shown: SQLObservation) -> None:
    episode.observations.append(shown)
    episode.row.transcript.append({"role": "user", "content": format_observation(shown, "short")})


def acted(episode: Episode, text: str) -> None:
    episode.row.texts.append(text)
    episode.row.transcript.append({"role": "assistant", "content": text})
