"""The reward ledger: its layers and parts against those that the server paid."""

from pathlib import Path

import pytest

from env_server.app import create_app
from env_server.settings import Settings
from shared.client import in_process
from shared.models import RewardLedger
from tests.trainer.records import record
from tests.trainer.small_data import make_data
from trainer.report.tables import mean_ledger
from trainer.run.records import EpisodeRecord

SCRIPTS = [
    ["DESCRIBE: orders", "QUERY: SELECT count(*) FROM orders WHERE price > 3", "ANSWER: 38"],
    ["QUERY: SELECT nothing"] * 9,  # down to the least sum
    ["DESCRIBE: orders", "DESCRIBE: orders", "SAMPLE: orders", "SAMPLE: ORDERS", "ANSWER: 1"],
]


def played(tmp_path: Path) -> tuple[list[EpisodeRecord], list[RewardLedger]]:
    """The scripts' episodes as records, and the server's ledgers at their ends."""
    records, ledgers = [], []
    app = create_app(Settings(data_dir=make_data(tmp_path / "data"), sql_workers=1))
    with in_process(app).sync() as client:
        for script in SCRIPTS:
            reset = client.reset(question_id="train-shop-2", step_budget=9)
            replies = [client.step(reset.episode_id, action) for action in script]
            ledger = replies[-1].info.ledger
            records.append(
                record(
                    outcome="wrong",
                    correctness=ledger.correctness,
                    progress=ledger.potential,
                    operational=ledger.operational,
                    reward=ledger.total,
                    rewards=tuple(reply.reward for reply in replies),
                    parts=tuple(reply.info.ledger.step for reply in replies),
                )
            )
            ledgers.append(ledger)
    return records, ledgers


def test_the_means_are_of_what_the_server_paid(tmp_path: Path) -> None:
    records, ledgers = played(tmp_path)
    found = mean_ledger(records)
    n = len(SCRIPTS)
    layers = ("correctness", "progress", "operational")
    for name in layers:
        assert found[name] == pytest.approx(sum(getattr(one, name) for one in ledgers) / n)
    assert found["reward"] == pytest.approx(sum(found[name] for name in layers))
    parts = sum(paid for name, paid in found.items() if name not in (*layers, "reward", "n"))
    assert parts == pytest.approx(found["operational"], abs=1e-9)
    assert found["clamp"] > 0  # of the script that earned the least
    assert found["step_cost"] == pytest.approx(-0.02 * sum(map(len, SCRIPTS)) / n)


def test_a_run_without_recorded_parts_has_its_layers() -> None:
    found = mean_ledger([record(progress=0.5, operational=-0.02, reward=1.055, rewards=(1.055,))])
    layers = {"correctness": 1, "progress": 0.075, "operational": -0.02}
    assert found == pytest.approx({"n": 1, **layers, "reward": 1.055})
    assert mean_ledger([])["n"] == 0
