"""A training whose servers all die and return ends with the weights that it would have had."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.chaos.cluster import Cluster, running_cluster
from benchmarks.chaos.faults import Chaos, Fault
from benchmarks.chaos.measure import client_of
from shared.replicas import ClientStats
from shared.sync import SyncSQLEnvClient
from trainer.config import GRPOConfig
from trainer.questions import load_question_prompts
from trainer.rollout import RolloutStats
from trainer.summary import model_digest
from trainer.train import build_trainer, run_training_with_metrics

FAULTS = [Fault("blackout", 1, 0.1), Fault("sleep", 0, 1.2), Fault("kill", 1, 0.1)]


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
    cluster: Cluster, faults: list[Fault], model: Any, tokenizer: Any, config: GRPOConfig, out: Path
) -> tuple[list[dict[str, Any]], RolloutStats, str]:
    """-> the rows of all batches, what was counted, and the trained model's digest."""
    rows: list[dict[str, Any]] = []
    stats = RolloutStats()
    with client_of(cluster.direct_urls, 0.3).sync() as client, Chaos(cluster, faults, every=16) as chaos:
        trainer = build_trainer(
            model,
            tokenizer,
            config,
            load_question_prompts(config),
            client=Paced(client, chaos),
            stats=stats,
            on_rows=lambda batch, trainer: rows.extend(batch),
            output_dir=str(out),
        )
        run_training_with_metrics(trainer)
        assert sum(chaos.done.values()) == len(faults), "every fault happened during play"
    return rows, stats, model_digest(trainer.model)


def test_training_goes_through_the_death_and_return_of_every_server(
    model: Any,
    tokenizer: Any,
    config: GRPOConfig,
    tiny_data: Path,
    tmp_path: Path,
) -> None:
    config = config.override(data_dir=tiny_data, max_steps=2, logging_steps=1, learning_rate=1e-3)
    start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with running_cluster(tiny_data, size=2) as cluster:
        calm, calm_stats, expected = train(cluster, [], model, tokenizer, config, tmp_path / "calm")
        model.load_state_dict(start)
        rows, stats, weights = train(cluster, FAULTS, model, tokenizer, config, tmp_path / "chaos")
    print(stats)
    assert calm_stats.rebuilds == 0
    assert stats.rebuilds > 0
    assert stats.episodes_lost == 0
    assert stats.steps == calm_stats.steps
    for row, undisturbed in zip(rows, calm, strict=True):
        assert row == undisturbed
    assert weights == expected
