"""`SQLEnvGym`, a Gymnasium environment whose actions and observations are texts.

Importing this registers `SQLEnv-v0`. Needs gymnasium 1.x.
"""

import string
from contextlib import ExitStack, suppress
from typing import Any

import gymnasium
from gymnasium.spaces import Text

from shared.agents.texts import MAX_ACTION_CHARS, action_of, first_text, step_text
from shared.client import SQLEnvClient
from shared.errors import SQLEnvError
from shared.models import Outcome, StepResult

MAX_TEXT_CHARS = 100_000


class AnyText(Text):  # type: ignore[misc]
    """Texts of any characters, up to a length; samples are printable ASCII."""

    def __init__(self, max_length: int) -> None:
        super().__init__(max_length, charset=string.printable)

    def contains(self, x: object) -> bool:
        return isinstance(x, str) and self.min_length <= len(x) <= self.max_length


class SQLEnvGym(gymnasium.Env[str, str]):  # type: ignore[misc]
    """Episodes of a running server: `SQLEnvGym("http://127.0.0.1:8000", difficulty="easy")`.

    An action is its text form, such as "DESCRIBE: singer"; any other text is played as a QUERY, so
    that it takes a step and shows an error; one that is too long is cut. An observation is the
    text that an agent reads. The episode is truncated when its steps run out, and terminated by an
    ANSWER. `options` here and in `reset` are those of `SQLEnvClient.reset`. `episode_id` names the
    present episode.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012  as Gymnasium declares it

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        api_key: str | None = None,
        render_mode: str | None = None,
        **options: Any,
    ) -> None:
        self.action_space = AnyText(MAX_ACTION_CHARS)
        self.observation_space = AnyText(MAX_TEXT_CHARS)
        self.render_mode, self.options = render_mode, options
        self.episode_id: str | None = None
        self._stack = ExitStack()
        self._client = self._stack.enter_context(SQLEnvClient(url, api_key=api_key).sync())
        self._done, self._text = True, ""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Start an episode; a seed and options draw the same question as over HTTP."""
        super().reset(seed=seed)
        self._leave()
        drawn = {"seed": int(self.np_random.integers(2**31)) if seed is None else seed}
        reply = self._client.reset(**(drawn | self.options | (options or {})))
        self.episode_id, self._done = reply.episode_id, reply.done
        self._text = first_text(reply.observation)[:MAX_TEXT_CHARS]
        return self._text, _info(reply)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Play an action; a reward that is withheld until the end is 0."""
        if self.episode_id is None:
            raise gymnasium.error.ResetNeeded("call reset before the first step")
        reply = self._client.step(self.episode_id, action_of(action))
        self._done = reply.done
        self._text = step_text(reply.observation)[:MAX_TEXT_CHARS]
        truncated = reply.info.outcome == Outcome.BUDGET
        terminated = reply.done and not truncated
        return self._text, float(reply.reward or 0.0), terminated, truncated, _info(reply)

    def render(self) -> str | None:
        return self._text if self.render_mode == "ansi" else None

    def close(self) -> None:
        """Abandon an unfinished episode, and close the connection."""
        self._leave()
        self._stack.close()

    def _leave(self) -> None:
        if not self._done and self.episode_id is not None:
            self._done = True
            with suppress(SQLEnvError):  # its lease ends anyway
                self._client.close_episode(self.episode_id)


def _info(reply: StepResult) -> dict[str, Any]:
    return {
        "question_id": reply.info.question_id,
        "error_code": reply.info.error_code,
        "outcome": reply.info.outcome and reply.info.outcome.value,
    }


gymnasium.register("SQLEnv-v0", entry_point=SQLEnvGym)
