"""Plays episodes by a script through SkyRL-gym, whose Python runs this: TURNS TASKS URL."""

import json
import sys

import skyrl_gym
import sqlenv_skyrl  # noqa: F401  registers the environment


def play(turns: dict[str, list[str]], tasks: int, url: str) -> None:
    for seed in range(9):  # more than the server has places
        with skyrl_gym.make("sqlenv", env_config={"url": url}, extras={"seed": seed}) as env:
            env.init([])
    for seed in range(tasks):
        config = {"url": url, "split": "train"}
        env = skyrl_gym.make("sqlenv", env_config=config, extras={"seed": seed})
        messages, _ = env.init([])
        question = messages[-1]["content"].partition("Question: ")[2].split("\n")[0]
        reward, done = 0.0, False
        while not done:
            if seed == 0 and env.turns == 1:
                print("in the middle of an episode", flush=True)
                sys.stdin.readline()
            out = env.step(turns[question][env.turns])
            reward, done = reward + out["reward"], out["done"]
        env.close()
        print(json.dumps({"reward": reward, **env.get_metrics()}), flush=True)


if __name__ == "__main__":
    play(json.loads(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
