"""Rollouts sampled one step ahead, by a fake vLLM server that loads the weights of each step."""

import copy
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import TrainerCallback

from tests.trainer.chat_server import VLLM, Fault, served
from tests.trainer.conftest import FakeClient, prompts, short_training
from trainer.config import GRPOConfig
from trainer.errors import ConfigError, RolloutError
from trainer.grpo import overlap
from trainer.grpo.generation import generation_server
from trainer.grpo.train import build_trainer, overlapped, run_training_with_metrics
from trainer.rollout import loop
from trainer.rollout.loop import BackgroundEpisodes
from trainer.rollout.row import RolloutRow, RolloutStats
from trainer.runtime.interrupt import Interrupted, Interrupts
from trainer.runtime.ranks import Ranks, check_settings

LONGEST_S = 60.0  # only until a broken loop gives up
STEPS = 4


class Server(VLLM):
    """Calls `at(batch)` before it answers a request; `batch` is the number of generation batches
    that have begun."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        super().__init__(model, tokenizer)
        self.batches = 0
        self.at: Callable[[int], object] = lambda batch: None

    def complete_ids(self, body: dict[str, Any]) -> Fault:
        self.at(self.batches)
        return super().complete_ids(body)


class Client(FakeClient):
    """Counts the generation batches for the model server."""

    def __init__(self, server: Server, **options: Any) -> None:
        super().__init__(**options)
        self.server = server

    def reset_many(self, requests: Iterable[Mapping[str, Any]]) -> Any:
        self.server.batches += 1
        return super().reset_many(requests)


@pytest.fixture
def server(model: Any, tokenizer: Any) -> Iterator[Server]:
    with served(Server(model, tokenizer)) as found:
        yield found


@pytest.fixture
def settings(config: GRPOConfig, server: Server, tmp_path: Path) -> GRPOConfig:
    return short_training(
        config,
        tmp_path,
        max_steps=STEPS,
        save_steps=1,
        step_budget=2,
        max_new_tokens=4,
        learning_rate=1e-2,
        generation_url=server.url,
        overlap_rollouts=True,
    )


@contextmanager
def trainer_of(
    settings: GRPOConfig, server: Server, model: Any, tokenizer: Any, **options: Any
) -> Iterator[Any]:
    folder = Path(settings.output_dir) / "weights"
    options = {"client": Client(server), **options}
    with generation_server(settings, tokenizer, Ranks()) as sampler:
        assert sampler is not None
        sampler.start(model, folder)
        server.loaded.clear()
        yield build_trainer(
            model, tokenizer, settings, prompts(settings), sampler=sampler, **options
        )


def played(
    settings: GRPOConfig, server: Server, model: Any, tokenizer: Any, start: Path | None = None
) -> tuple[list[list[RolloutRow]], list[dict[str, Any]]]:
    """Train a copy of the model; return each step's rows and the log."""
    steps: list[list[RolloutRow]] = []
    options = {"on_rows": lambda rows, trainer: steps.append(rows)}
    with trainer_of(settings, server, copy.deepcopy(model), tokenizer, **options) as trainer:
        _, log = run_training_with_metrics(trainer, resume_from=start)
    return steps, log


def questions(steps: Sequence[Sequence[RolloutRow]]) -> list[list[str]]:
    return [[row.question_id for row in rows] for rows in steps]


def test_batches_are_those_of_a_synchronous_run(
    settings: GRPOConfig, server: Server, model: Any, tokenizer: Any
) -> None:
    """Over several epochs, with weights that hardly change: the same questions and samples."""
    still = settings.override(learning_rate=1e-12)
    ahead, log = played(still, server, model, tokenizer)
    assert [row["sampling/staleness"] for row in log[:STEPS]] == [0, 1, 1, 1]
    assert server.loaded == ["step-1", "step-2"]  # the last batch begins in step 2
    assert all(row["sampling/overlap_s"] > 0 for row in log[1:STEPS])
    together = still.override(overlap_rollouts=False, output_dir=f"{still.output_dir}/together")
    synchronous, log = played(together, server, model, tokenizer)
    assert [row["sampling/staleness"] for row in log[:STEPS]] == [0] * STEPS
    assert questions(ahead) == questions(synchronous)
    assert [[row.ids for row in rows] for rows in ahead] == [
        [row.ids for row in rows] for rows in synchronous
    ]


def test_a_batch_has_the_weights_from_before_the_update(
    settings: GRPOConfig, server: Server, model: Any, tokenizer: Any
) -> None:
    differences: list[tuple[float, float]] = []  # from the weights before, and from the present
    former: list[dict[str, Any]] = []
    plain = copy.deepcopy(model)

    def difference(weights: dict[str, Any], rows: Sequence[RolloutRow]) -> float:
        plain.load_state_dict(weights)
        most = 0.0
        for row in rows:
            with torch.no_grad():
                logits = plain(torch.tensor([row.ids])).logits[0, :-1]
            own = logits.log_softmax(-1).gather(-1, torch.tensor(row.ids[1:])[:, None])[:, 0]
            sampled = [n for n, mask in enumerate(row.learn_mask) if mask]
            sampler = torch.tensor(row.logprobs)[[n - len(row.prompt_ids) for n in sampled]]
            most = max(most, (own[[n - 1 for n in sampled]] - sampler).abs().max().item())
        return most

    def compare(rows: Sequence[RolloutRow], trainer: Any) -> None:
        present = copy.deepcopy(trainer.model.state_dict())
        if former:
            differences.append((difference(former[-1], rows), difference(present, rows)))
        former.append(present)

    with trainer_of(settings, server, model, tokenizer, on_rows=compare) as trainer:
        _, log = run_training_with_metrics(trainer)
    assert len(differences) == STEPS - 1
    for before, present in differences:
        assert before < 1e-4
        assert present > 1e-2
    # and the loss corrects it
    assert all(row["sampling/logp_difference/mean"] > 1e-3 for row in log[1:STEPS])


class At(TrainerCallback):  # type: ignore[misc]
    """Calls `begin(step)` and `end(step)` at the beginning and the end of each step."""

    def __init__(
        self,
        begin: Callable[[int], object] = lambda step: None,
        end: Callable[[int], object] = lambda step: None,
    ) -> None:
        self.begin, self.end = begin, end

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.begin(state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.end(state.global_step)


def test_an_update_does_not_wait_for_the_next_batch(
    settings: GRPOConfig, server: Server, model: Any, tokenizer: Any
) -> None:
    """The second batch is answered only after the first update."""
    updated, in_time = threading.Event(), list[bool]()
    server.at = lambda batch: in_time.append(batch < 2 or updated.wait(LONGEST_S))
    stats, callbacks = RolloutStats(), [At(end=lambda step: updated.set())]
    with trainer_of(
        settings.override(max_steps=2), server, model, tokenizer, stats=stats, callbacks=callbacks
    ) as trainer:
        run_training_with_metrics(trainer)
    assert all(in_time)
    assert stats.episodes == 16
    assert stats.steps == 32
    assert stats.rollout_s >= stats.generate_s + stats.env_wait_s > 0


def test_the_overlap_leaves_out_what_is_waited_for(
    settings: GRPOConfig, server: Server, model: Any, tokenizer: Any, monkeypatch: Any
) -> None:
    """On a clock that the test moves: the first observations take 1 s, the update of the first
    batch 5 s, and the second batch ends 3 s after the trainer began to wait for it."""
    clock, calls, waiting = SimpleNamespace(now=0.0), Counter[str](), threading.Event()
    clock.perf_counter = lambda: clock.now
    monkeypatch.setattr(overlap, "time", clock)
    monkeypatch.setattr(loop, "time", clock)
    wait, end_overlap = BackgroundEpisodes.wait, BackgroundEpisodes._end_overlap

    class Slow(Client):
        def reset_many(self, requests: Iterable[Mapping[str, Any]]) -> Any:
            clock.now += 1.0
            return super().reset_many(requests)

    def waits(episodes: BackgroundEpisodes) -> None:
        calls["waits"] += 1
        clock.now += 5.0 * (calls["waits"] == 2)
        wait(episodes)

    def ends(episodes: BackgroundEpisodes) -> None:
        end_overlap(episodes)
        calls["ends"] += 1
        if calls["ends"] == 3:  # after two of the first batch
            clock.now += 3.0
            waiting.set()

    monkeypatch.setattr(BackgroundEpisodes, "wait", waits)
    monkeypatch.setattr(BackgroundEpisodes, "_end_overlap", ends)
    server.at = lambda batch: batch < 2 or waiting.wait(LONGEST_S)
    few = settings.override(max_steps=2)
    with trainer_of(few, server, model, tokenizer, client=Slow(server)) as trainer:
        _, log = run_training_with_metrics(trainer)
    assert [row["sampling/overlap_s"] for row in log[:2]] == [0.0, 5.0]


def test_a_measurement_waits_for_the_batch_under_way(
    settings: GRPOConfig, server: Server, model: Any, tokenizer: Any
) -> None:
    measuring, busy = threading.Event(), list[int]()
    server.at = lambda batch: batch < 2 or measuring.wait(LONGEST_S)
    server.delay_s = 0.02

    def measure(step: int) -> None:
        if step == 1:
            measuring.set()
            overlapped(trainer).wait()
            busy.append(server.in_flight)

    callbacks = [At(begin=measure)]
    with trainer_of(
        settings.override(max_steps=2), server, model, tokenizer, callbacks=callbacks
    ) as trainer:
        run_training_with_metrics(trainer)
    assert busy == [0]


def test_a_signal_ends_both_and_the_batch_is_sampled_again(
    settings: GRPOConfig, server: Server, model: Any, tokenizer: Any
) -> None:
    whole, _ = played(settings, server, model, tokenizer)
    server.batches = 0
    updated, stopped = threading.Event(), threading.Event()

    def interrupt(batch: int) -> None:
        """Leave the second batch unanswered, and stop while it is waited for."""
        if batch == 2 and updated.wait(LONGEST_S) and not stopped.is_set():
            stopped.set()
            os.kill(os.getpid(), signal.SIGINT)
        if batch == 2:
            released.wait(LONGEST_S)

    released = threading.Event()
    server.at = interrupt
    again = settings.override(output_dir=f"{settings.output_dir}/again")
    with Interrupts() as interrupts:
        options = {"ranks": Ranks(interrupts), "callbacks": [At(end=lambda step: updated.set())]}
        with trainer_of(again, server, copy.deepcopy(model), tokenizer, **options) as trainer:
            with pytest.raises(Interrupted):
                run_training_with_metrics(trainer)
            assert trainer.state.global_step == 1
            assert overlapped(trainer)._ahead is None  # type: ignore[union-attr]
    released.set()
    checkpoint = Path(again.output_dir) / "checkpoint-1"
    assert (checkpoint / "trainer_state.json").is_file()
    server.at = lambda batch: None
    resumed, log = played(again, server, model, tokenizer, checkpoint)
    assert questions(resumed) == questions(whole)[1:]
    assert [row["sampling/staleness"] for row in log if "sampling/staleness" in row] == [
        *(0, 0),  # step 1 was logged before
        *[1] * (STEPS - 2),
    ]


def test_a_batch_that_is_lost_stops_the_run_at_its_own_step(
    settings: GRPOConfig, server: Server, model: Any, tokenizer: Any
) -> None:
    class Failing(Client):
        def reset_many(self, requests: Iterable[Mapping[str, Any]]) -> Any:
            replies = super().reset_many(requests)
            return [self._failure() for _ in replies] if server.batches == 2 else replies

    with (
        trainer_of(settings, server, model, tokenizer, client=Failing(server)) as trainer,
        pytest.raises(RolloutError, match="8 of 8 episodes were lost"),
    ):
        run_training_with_metrics(trainer)
    assert (Path(settings.output_dir) / "checkpoint-1" / "trainer_state.json").is_file()


def test_what_it_needs_is_said_with_the_setting(
    settings: GRPOConfig, model: Any, tokenizer: Any
) -> None:
    with pytest.raises(ConfigError, match=r"overlap_rollouts needs a model server.*generation_url"):
        settings.override(generation_url="")
    with pytest.raises(ConfigError, match="needs a sampler on a model server"):
        build_trainer(model, tokenizer, settings, prompts(settings), client=FakeClient())
    with pytest.raises(ConfigError, match=r"one trainer process, and this run has 2"):
        check_settings(settings, 2, 2, 0)


PREFERRED = frozenset(range(40, 60))


def share_of_preferred(completion_ids: Sequence[Sequence[int]], **_: Any) -> list[float]:
    return [sum(one in PREFERRED for one in ids) / len(ids) for ids in completion_ids]


def nothing(completion_ids: Sequence[Sequence[int]], **_: Any) -> list[float]:
    return [0.0] * len(completion_ids)


@pytest.mark.slow
def test_a_model_learns_one_step_off_policy(
    settings: GRPOConfig, server: Server, model: Any, tokenizer: Any
) -> None:
    """As it does synchronously: a higher share of certain ids."""
    rewards: dict[bool, list[float]] = {}
    for is_overlapped in (False, True):
        own = settings.override(
            max_steps=24,
            save_steps=0,
            learning_rate=5e-3,
            overlap_rollouts=is_overlapped,
            output_dir=f"{settings.output_dir}/{is_overlapped}",
        )
        functions = [share_of_preferred, nothing, nothing]
        options = {"reward_funcs": functions}
        with trainer_of(own, server, copy.deepcopy(model), tokenizer, **options) as trainer:
            _, log = run_training_with_metrics(trainer)
        rewards[is_overlapped] = [row["reward"] for row in log if "reward" in row]

    for found in rewards.values():
        assert sum(found[-6:]) > 1.5 * sum(found[:6])
    assert sum(rewards[True][-6:]) > 0.7 * sum(rewards[False][-6:])
