"""Play SQLEnv's episodes with verifiers 0.4, whose evaluation and trainers load this file by name.

Needs a running server, and this project's client beside verifiers; docs/other-trainers.md has the
command. Task N has the question of seed N. An episode whose server fails gets no reward.
"""

from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from typing import Any

import verifiers.v1 as vf

from sqlenv import (
    INSTRUCTIONS,
    Outcome,
    SQLEnvClient,
    SQLEnvError,
    StepResult,
    action_of,
    first_text,
    step_text,
)


class SQLEnvData(vf.TaskData):
    """One task: what the server draws its question by."""

    reset: dict[str, Any]


class SQLEnvTask(vf.Task[SQLEnvData]):
    """A task without rewards of its own."""


class SQLEnvTasksetConfig(vf.TasksetConfig):
    """The server, and which questions it draws (`--env.taskset.difficulty easy`)."""

    url: str = "http://127.0.0.1:8000"
    split: str = "train"
    difficulty: str | None = None
    db_id: str | None = None
    step_budget: int | None = None
    first_seed: int = 0


class SQLEnvTaskset(vf.Taskset[SQLEnvTask, SQLEnvTasksetConfig]):
    """One task per seed, without end."""

    INFINITE = True

    def load(self) -> Iterator[SQLEnvTask]:
        drawn_by = self.config.model_dump(include={"split", "difficulty", "db_id", "step_budget"})
        for seed in count(self.config.first_seed):
            data = SQLEnvData(
                prompt=None, system_prompt=INSTRUCTIONS, reset=drawn_by | {"seed": seed}
            )
            yield SQLEnvTask(data, self.config.task)


class SQLEnvEnvConfig(vf.EnvConfig):
    """The player: a plain chat with the model, by default in a process on this machine."""

    player: vf.AgentConfig = vf.AgentConfig(
        harness=vf.HarnessConfig(id="null"), runtime=vf.SubprocessConfig()
    )


class SQLEnvEnv(vf.Env[SQLEnvEnvConfig]):
    """Plays each task as one episode. All episodes share a client, which batches their steps."""

    client: SQLEnvClient | None = None

    async def start(self) -> None:
        """Connect; `ServerUnreachable` names a server that does not answer."""
        self.client = await SQLEnvClient(self.taskset.config.url).__aenter__()
        await self.client.metadata()

    async def stop(self) -> None:
        if self.client is not None:
            await self.client.aclose()

    async def run(self, task: SQLEnvTask, agents: vf.Agents) -> None:
        """Play one episode to its end, or to the end of the model's turns."""
        reply = await self.client.reset(**task.data.reset)
        episode_id, text = reply.episode_id, first_text(reply.observation)
        try:
            async with agents.player.interaction(task) as interaction:
                while not reply.done:
                    turn = await interaction.turn(text)
                    if turn.terminated:
                        break
                    reply = await self.client.step(episode_id, action_of(turn.last_reply))
                    text = step_text(reply.observation)
                if not interaction.trace.errors:  # of the model, which earn no reward
                    record(interaction.trace, reply)
        finally:
            if not reply.done:
                with suppress(SQLEnvError):  # its lease ends anyway
                    await self.client.close_episode(episode_id)


def record(trace: vf.Trace, reply: StepResult) -> None:
    """Record the server's total reward, and what the last reply says of the episode."""
    ledger = reply.info.ledger  # None with an agent's key
    trace.record_reward("sqlenv", ledger.total if ledger else reply.reward or 0.0)
    trace.record_metric("correct", float(reply.info.outcome == Outcome.CORRECT))
    trace.record_metric("steps", float(reply.observation.step_count))


__all__ = ["SQLEnvEnv", "SQLEnvTaskset"]
