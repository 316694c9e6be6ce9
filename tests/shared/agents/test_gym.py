"""`SQLEnvGym` against Gymnasium's own checker, and its spaces and ends."""

import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shared.server_process import running_server

gymnasium = pytest.importorskip("gymnasium")
from gymnasium.utils.env_checker import check_env  # noqa: E402

from shared.agents.gym import SQLEnvGym  # noqa: E402
from shared.client import SQLEnvClient  # noqa: E402


@pytest.fixture(scope="module")
def url(tiny_data: Path) -> Iterator[str]:
    with running_server(tiny_data, "--workers", "1", capacity=2) as server:
        yield server.url


@pytest.fixture
def env(url: str) -> Iterator[SQLEnvGym]:
    env = SQLEnvGym(url, question_id="shop-1", step_budget=3)
    yield env
    env.close()


def test_gymnasiums_checker_passes_without_a_warning(url):
    made: Any = gymnasium.make("SQLEnv-v0", url=url, split="train")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(made.unwrapped)
    made.close()


def test_an_answer_terminates_and_the_budget_truncates(env):
    text, info = env.reset()
    assert text.startswith("Question: How many customers are there?\nTables: customers, ")
    assert info["question_id"] == "shop-1"
    *_, terminated, truncated, info = env.step("ANSWER: 5")
    assert (terminated, truncated, info["outcome"]) == (True, False, "correct")
    env.reset()
    for action in ("no action \x00 'é", "SELECT 'é", "x" * 100_000):
        text, _, terminated, truncated, info = env.step(action)
        assert "Error: " in text
        assert env.observation_space.contains(text)
    assert (terminated, truncated, info["outcome"]) == (False, True, "budget")


def test_a_reset_draws_by_its_seed_and_gives_up_the_place_before(url):
    env = SQLEnvGym(url)
    texts = [env.reset(seed=seed)[0] for seed in (1, 1, *range(8))]  # the server has two places
    assert texts[0] == texts[1]
    assert len(set(texts)) > 2
    assert env.reset(options={"question_id": "zoo-1"})[1]["question_id"] == "zoo-1"
    env.close()
    env.close()


def test_a_step_before_a_reset_is_an_error(url):
    env = SQLEnvGym(url)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step("ANSWER: 5")
    env.close()


def test_a_seed_draws_the_question_that_it_draws_over_http(url):
    env = SQLEnvGym(url, difficulty="easy")
    with SQLEnvClient(url).sync() as client:
        for seed in range(4):
            _, info = env.reset(seed=seed)
            drawn = client.reset(seed=seed, difficulty="easy")
            assert info["question_id"] == drawn.info.question_id
            client.close_episode(drawn.episode_id)
    env.close()


def test_a_script_that_does_not_close_its_environment_ends(url):
    script = (
        "import gymnasium, shared.agents.gym\n"
        f"env = gymnasium.make('SQLEnv-v0', url={url!r})\n"
        "print(env.spec.id)\n"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "SQLEnv-v0\n"
