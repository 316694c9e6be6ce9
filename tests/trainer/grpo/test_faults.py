"""A training whose servers all die and return ends with the same weights as without faults."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from shared.client.limits import ClientStats
from shared.client.sync import SyncSQLEnvClient
from tests.chaos import gateway
from tests.chaos.cluster import Cluster, running_cluster
from tests.chaos.faults import Chaos, Fault, plan
from tests.chaos.soak import client_of
from tests.conftest import needs_program
from trainer.config.settings import GRPOConfig
from trainer.grpo.build_trainer import build_trainer
from trainer.rollout.dataset import load_question_prompts
from trainer.rollout.loop import RolloutStats
from trainer.run.summary import model_digest
from trainer.runtime.training import run_training_with_metrics

FAULTS = plan(14, servers=3, seed=2)  # one round, with each kind of fault
STEPS = 5
needs_gateway = needs_program("haproxy", gateway.missing())


class Paced:
    """An `EpisodeClient` whose steps wait for the faults that are due."""

    def __init__(self, client: SyncSQLEnvClient, chaos: Chaos) -> None:
        self._client, self._chaos, self._answered = client, chaos, 0

    @property
    def stats(self) -> ClientStats:
        return self._client.stats

    def reset_many(self, requests: Iterable[Mapping[str, Any]]) -> Any:
        return self._client.reset_many(requests)

    def step_many(self, steps: Iterable[Any]) -> Any:
        self._chaos.pass_step(self._answered)
        replies = self._client.step_many(steps)
        self._answered += len(replies)
        return replies

    def close_episode(self, episode_id: str) -> None:
        self._client.close_episode(episode_id)


def train(
    cluster: Cluster, urls: Sequence[str], faults: list[Fault], every: int,
    model: Any, tokenizer: Any, config: GRPOConfig, out: Path,
) -> tuple[list[dict[str, Any]], RolloutStats, str]:  # fmt: skip
    rows: list[dict[str, Any]] = []
    stats = RolloutStats()
    with client_of(urls, 0.3).sync() as client, Chaos(cluster, faults, every) as chaos:
        trainer = build_trainer(
            model, tokenizer, config, load_question_prompts(config),
            client=Paced(client, chaos), stats=stats, output_dir=str(out),
            on_rows=lambda batch, trainer: rows.extend(batch),
        )  # fmt: skip
        run_training_with_metrics(trainer)
        assert sum(chaos.done.values()) == len(faults), "every fault happened during play"
    return rows, stats, model_digest(trainer.model)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("way", ["direct", pytest.param("gateway", marks=needs_gateway)])
def test_training_survives_the_death_and_return_of_every_server(
    way, model, tokenizer, config, tiny_data, tmp_path
):
    config = config.override(
        data_dir=tiny_data, max_steps=STEPS, logging_steps=1, learning_rate=1e-3
    )
    start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with (
        running_cluster(tiny_data, size=3) as cluster,
        gateway.running_gateway(cluster.urls) if way == "gateway" else nullcontext() as front,
    ):
        urls = cluster.urls if front is None else [front.url]
        # One server, no gateway: a busy machine can't move an episode to another one.
        calm, calm_stats, expected = train(
            cluster, cluster.urls[:1], [], 1, model, tokenizer, config, tmp_path / "calm"
        )
        model.load_state_dict(start)
        every = calm_stats.steps // (len(FAULTS) + 1)
        rows, stats, weights = train(
            cluster, urls, FAULTS, every, model, tokenizer, config, tmp_path / "chaos"
        )
    print(stats)
    assert calm_stats.rebuilds == 0
    assert stats.rebuilds > 0
    assert stats.episodes_lost == 0
    assert stats.steps == calm_stats.steps
    assert rows == calm
    assert weights == expected
