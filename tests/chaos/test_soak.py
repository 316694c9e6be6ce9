"""Episodes on real servers that are killed, stopped, restarted, cut off: none lost, none counted
twice, none changed.

`python -m tests.chaos` is longer.
"""

from collections import Counter
from pathlib import Path

import pytest

from tests.chaos import gateway
from tests.chaos.cluster import running_cluster
from tests.chaos.faults import Fault, plan
from tests.chaos.soak import FaultOutcome, soak
from tests.conftest import needs_program

needs_gateway = needs_program("haproxy", gateway.missing())
STALL_S = 0.3
BRIEF = [
    Fault("kill", 0, 0.1),
    Fault("sleep", 1, 1.2),
    Fault("lost_replies", 2, 0.1),
    Fault("cut", 0, 0.3),
    Fault("restart", 2, 0.1),
    Fault("silence", 1, 1.0),
    Fault("blackout", 1, 0.1),
]


def check(outcome: FaultOutcome, faults: list[Fault], episodes: int) -> None:
    print(outcome)
    assert outcome.more["errors"] == []
    assert (outcome.lost, outcome.counted_twice, outcome.different) == (0, 0, 0)
    assert outcome.faults == dict(Counter(fault.kind for fault in faults)), "every fault happened"
    assert outcome.rebuilds > 0, "faults had an effect"
    assert outcome.retries > 0
    assert sum(outcome.outcomes.values()) == outcome.episodes == episodes
    assert {"correct", "wrong"} <= set(outcome.outcomes)
    assert "None" not in outcome.outcomes


LONG = plan(22, servers=3, seed=1)  # several rounds, with each kind of fault


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("faults", "episodes"),
    [pytest.param(BRIEF, 80, id="brief"), pytest.param(LONG, 500, id="long")],
)
def test_several_servers(tiny_data: Path, faults: list[Fault], episodes: int) -> None:
    with running_cluster(tiny_data) as cluster:
        urls = cluster.urls
        outcome = soak("direct", tiny_data, cluster, urls, episodes, faults, stall_s=STALL_S)
    check(outcome, faults, episodes)
    assert outcome.more["moves"] > 0


@needs_gateway
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_one_gateway_to_several_servers(tiny_data: Path) -> None:
    with running_cluster(tiny_data) as cluster, gateway.running_gateway(cluster.urls) as front:
        outcome = soak("gateway", tiny_data, cluster, [front.url], 500, LONG, stall_s=STALL_S)
    check(outcome, LONG, 500)
