"""Episodes played with a model server do not wait for each other."""

import threading
from concurrent.futures import Future

from shared.actions import SQLAction
from shared.errors import ServerUnreachable
from shared.models import StepResult
from tests.trainer.chat_server import Messages
from tests.trainer.conftest import FakeClient
from tests.trainer.rollout.generators.conftest import TURNS, in_turn, play, policy_of
from trainer.rollout.generators.openai_players import OpenAIPolicy
from trainer.rollout.row import RolloutStats

LONGEST_S = 60.0  # only until a broken loop gives up


class Held:
    """Something that is answered only after `others` episodes have ended."""

    def __init__(self, others: int) -> None:
        self._left, self._lock, self._ended = others, threading.Lock(), threading.Event()
        self.released_in_time = True

    def ended(self) -> None:
        with self._lock:
            self._left -= 1
            if self._left == 0:
                self._ended.set()

    def wait(self) -> None:
        self.released_in_time = self._ended.wait(LONGEST_S)


def test_a_slow_turn_holds_up_its_own_episode_only(chat, config):
    held, first = Held(others=3), threading.Lock()

    def answer(messages: Messages) -> str:
        if first.acquire(blocking=False):
            held.wait()
        elif in_turn(messages) == TURNS[-1]:
            held.ended()
        return in_turn(messages)

    chat.answer = answer
    rows = play(policy_of(chat), config, "abcd")
    assert held.released_in_time
    assert [row.texts for row in rows] == [TURNS] * 4
    assert [row.question_id for row in rows] == list("abcd")


class SlowStep(FakeClient):
    """The second step of question b is answered when all others have ended."""

    def __init__(self, held: Held) -> None:
        super().__init__()
        self.held = held

    def start_step(self, episode_id: str, action: SQLAction | str) -> Future[StepResult]:
        question_id, _, history = self.episodes[episode_id]
        reply = super().start_step(episode_id, action)
        if question_id == "b" and len(history) == 2:
            late = Future[StepResult]()

            def answer() -> None:
                self.held.wait()
                late.set_result(reply.result())

            threading.Thread(target=answer, daemon=True).start()
            return late
        if question_id != "b" and reply.result().done:
            self.held.ended()
        return reply


def test_a_slow_step_holds_up_its_own_episode_only(chat, config):
    held = Held(others=2)
    rows = play(policy_of(chat), config, "abc", SlowStep(held))
    assert held.released_in_time
    assert [row.outcome for row in rows] == ["correct"] * 3


def test_a_lost_step_loses_its_own_episode(chat, config):
    client = FakeClient(failing={"b": 2})
    rows = play(policy_of(chat), config, "abc", client, check_lost=False)
    assert [row.outcome for row in rows] == ["correct", "infra_failed", "correct"]
    assert "does not answer" in rows[1].lost


def test_abandoned_episodes_are_closed_until_a_server_does_not_answer(chat, config):
    class Closing(FakeClient):
        def close_episode(self, episode_id: str) -> None:
            super().close_episode(episode_id)
            raise ServerUnreachable("gone")

    class Silent(OpenAIPolicy):
        async def act_one(self, view: object) -> None:
            return None

    client = Closing()
    rows = play(Silent("fake", chat.url), config, "abc", client)
    assert [row.outcome for row in rows] == ["abandoned"] * 3
    assert len(client.closed) == 1


def test_every_second_is_counted_once(chat, config):
    stats = RolloutStats()
    play(policy_of(chat), config, "abcdefgh", stats=stats)
    assert stats.steps == 3 * 8
    assert stats.generate_s > 0
    assert stats.generate_s + stats.env_wait_s <= stats.rollout_s
