"""Play SQLEnv's episodes with SkyRL-gym 0.4: python sqlenv_skyrl.py [URL]

Importing this file registers the environment `sqlenv`. Needs a running server, and this project's
client beside skyrl-gym. A row of the data set may choose the question by `seed`, `question_id`,
`split`, `difficulty` or `db_id`; its prompt may be empty. The steps' rewards sum to the server's
total.
"""

import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Any

import skyrl_gym
from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput, ConversationType

from sqlenv import (
    INSTRUCTIONS,
    Outcome,
    SQLEnvClient,
    SQLEnvError,
    StepResult,
    SyncSQLEnvClient,
    action_of,
    first_text,
    step_text,
)

DRAWN_BY = ("question_id", "split", "difficulty", "db_id", "seed", "step_budget")


@cache
def client_of(url: str) -> SyncSQLEnvClient:
    """Return the client that a process's environments share, so that their steps are batched."""
    return SQLEnvClient(url).sync().__enter__()  # closed when the process exits


class SQLEnvText(BaseTextEnv):
    """One episode of the server at `env_config["url"]`; `extras` is the row of the data set."""

    def __init__(self, env_config: Mapping[str, Any], extras: Mapping[str, Any] = {}) -> None:
        super().__init__()
        self.client = client_of(env_config.get("url", "http://127.0.0.1:8000"))
        chosen = {**env_config, **extras}
        self.options = {name: chosen[name] for name in DRAWN_BY if chosen.get(name) is not None}
        self.episode_id = ""
        self.reply: StepResult | None = None

    def init(self, prompt: ConversationType) -> tuple[ConversationType, dict[str, Any]]:
        """Start the episode; return the row's prompt, or instructions, and the question."""
        first = self.client.reset(**self.options)
        self.episode_id, self.reply = first.episode_id, first
        self.max_turns = first.observation.budget_remaining
        opening = prompt or [{"role": "system", "content": INSTRUCTIONS}]
        question = {"role": "user", "content": first_text(first.observation)}
        return [*opening, question], {"question_id": first.info.question_id}

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Play the action that a model wrote; a reward that is withheld until the end is 0."""
        self.turns += 1
        self.reply = reply = self.client.step(self.episode_id, action_of(action))
        text = step_text(reply.observation)
        return BaseTextEnvStepOutput(
            observations=[] if reply.done else [{"role": "user", "content": text}],
            reward=reply.reward or 0.0,
            done=reply.done,
            metadata={"error_code": reply.info.error_code, "outcome": reply.info.outcome},
        )

    def close(self) -> None:
        """End an unfinished episode."""
        if self.reply is not None and not self.reply.done:
            with suppress(SQLEnvError):  # its lease ends anyway
                self.client.close_episode(self.episode_id)

    def get_metrics(self) -> dict[str, Any]:
        """Return whether the answer is right, and the number of steps."""
        if self.reply is None:
            return {}
        correct = self.reply.info.outcome == Outcome.CORRECT
        return {"correct": float(correct), "steps": self.reply.observation.step_count}


skyrl_gym.register(id="sqlenv", entry_point=SQLEnvText)


def play(url: str = "http://127.0.0.1:8000") -> None:
    """Play an episode as SkyRL's generator does, with a script in place of the model."""
    with skyrl_gym.make("sqlenv", env_config={"url": url}, extras={"seed": 7}) as env:
        conversation, _ = env.init([])
        print(conversation[-1]["content"])
        table = conversation[-1]["content"].partition("Tables: ")[2].split("\n")[0].split(", ")[0]
        for text in (f"DESCRIBE: {table}", f"SELECT count(*) FROM {table}", "ANSWER: 42"):
            out = env.step(text)
            shown = [message["content"] for message in out["observations"]]
            print(f"> {text}", *shown, f"reward: {out['reward']:.2f}", sep="\n")
        print("done:", out["done"], env.get_metrics())


if __name__ == "__main__":
    try:
        play(*sys.argv[1:])
    except SQLEnvError as error:
        sys.exit(f"error: {error}")
