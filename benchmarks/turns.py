"""Time episodes of a model server whose replies take uneven times, asynchronously and in lock-step.

    python -m benchmarks.turns [--episodes 32] [--turn-s 0.5] [--rounds 3] [--json PATH]

Both ways send the same requests to the same servers, in alternating rounds, and get the same
replies after the same waits; their actions must be equal. Lock-step asks for the next turns when
all episodes have theirs. The fake model server waits without using CPU.
"""

import time
from collections.abc import Sequence
from functools import partial
from statistics import median
from typing import Annotated, Any

import typer

from benchmarks.measuring import JsonPath, print_table
from benchmarks.slow_model_server import NAME, slow_model
from env_server.app import create_app
from shared.client import in_process
from shared.console import write_json
from shared.errors import SQLEnvError
from trainer.config import GRPOConfig
from trainer.rollout.dataset import load_question_prompts
from trainer.rollout.generators.base import EpisodeView
from trainer.rollout.generators.openai import OpenAIPolicy
from trainer.rollout.loop import play_episodes


class LockStep:
    """A policy that waits for the texts of all episodes."""

    def __init__(self, policy: OpenAIPolicy) -> None:
        self._policy = policy

    def act(self, views: Sequence[EpisodeView]) -> list[str | SQLEnvError | None]:
        return self._policy.run_all([partial(self._policy.act_one, view) for view in views])


def measure(episodes: int, turn_s: float, rounds: int) -> dict[str, list[float]]:
    """Return way -> seconds of each round."""
    config = GRPOConfig.preset("offline")
    prompts = [row["prompt"] for row in load_question_prompts(config)][:episodes]
    seconds: dict[str, list[float]] = {"lock-step": [], "asynchronous": []}
    with (
        in_process(create_app()).sync() as client,
        slow_model(turn_s) as url,
        OpenAIPolicy(NAME, url, concurrency=episodes) as policy,
    ):
        for number in range(rounds):
            actions = []
            for way, used in (("lock-step", LockStep(policy)), ("asynchronous", policy)):
                start = time.perf_counter()
                rows = play_episodes(
                    prompts, None, None, config, client=client, policy=used, seed=number
                )
                seconds[way].append(time.perf_counter() - start)
                actions.append([row.actions for row in rows])
            if actions[0] != actions[1]:
                raise RuntimeError("the two ways played different episodes")
    return seconds


def main(
    episodes: Annotated[int, typer.Option(help="Episodes played at once.")] = 32,
    turn_s: Annotated[float, typer.Option(help="Mean seconds of a turn.")] = 0.5,
    rounds: Annotated[int, typer.Option(help="Rounds per way.")] = 3,
    json_path: JsonPath = None,
) -> None:
    """Time both ways and print a table."""
    seconds = measure(episodes, turn_s, rounds)
    ratio = median(
        a / b for a, b in zip(seconds["lock-step"], seconds["asynchronous"], strict=True)
    )
    rows = [(way, f"{median(found):.2f}") for way, found in seconds.items()]
    title = (
        f"{episodes} episodes, turns of {turn_s:g} s on average (exponential), median of {rounds} "
        f"rounds: lock-step takes {ratio:.2f} x"
    )
    print_table(title, ("way", "s"), rows)
    summary: dict[str, Any] = {"episodes": episodes, "turn_s": turn_s, "seconds": seconds}
    write_json(json_path, {**summary, "ratio": ratio})


if __name__ == "__main__":
    typer.run(main)
