"""`/metrics`, parsed as Prometheus parses it, after a known history."""

from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from prometheus_client.parser import text_string_to_metric_families

from shared.dataset import Question

pytestmark = pytest.mark.anyio


@pytest.fixture
def settings() -> dict[str, Any]:
    return {"capacity": 3, "lease_s": 60}


async def read(http: httpx.AsyncClient) -> dict[str, float]:
    """Samples by `name{label=value}`."""
    reply = await http.get("/metrics")
    assert reply.status_code == 200
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    samples: dict[str, float] = {}
    for family in text_string_to_metric_families(reply.text):
        assert family.documentation, family.name
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            samples[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return samples


async def test_counts_after_a_known_history(
    http: httpx.AsyncClient, app: FastAPI, question: Question
) -> None:
    reset = {"question_id": question.question_id, "step_budget": 3}
    table = question.tables_involved[0]
    await http.post("/reset", json=reset | {"episode_id": "a"})
    played = [f"DESCRIBE: {table}", f"QUERY: {question.gold_sql}", "ANSWER: no"]
    for step, action in enumerate(played):
        for _ in range(2):  # the second is a repeat
            body = {"episode_id": "a", "action": action, "step": step}
            assert (await http.post("/step", json=body)).status_code == 200
    replayed = {"episode_id": "b", "actions": [f"SAMPLE: {table}", "QUERY: SELECT 1"]}
    await http.post("/reset", json=reset | replayed)
    # the last step of its budget
    await http.post("/step", json={"episode_id": "b", "action": "QUERY: SELECT 2"})
    await http.post("/reset", json=reset | {"episode_id": "c"})
    await http.delete("/episodes/c")
    await http.post("/reset", json=reset | {"episode_id": "d"})

    seen = await read(http)
    outcomes = {"correct": 0, "wrong": 1, "budget": 1, "abandoned": 1, "answered": 0}
    for outcome, count in (outcomes | {"sql_killed": 0}).items():
        assert seen[f"sqlenv_episodes_ended_total{{outcome={outcome}}}"] == count
    actions = ("describe", "sample", "query", "answer")
    assert [seen[f"sqlenv_steps_total{{action={name}}}"] for name in actions] == [1, 0, 2, 1]
    assert seen["sqlenv_step_seconds_count{action=query}"] == 2
    assert seen["sqlenv_step_seconds_sum{action=query}"] > 0
    assert seen["sqlenv_steps_repeated_total"] == 3
    assert seen["sqlenv_episodes_started_total"] == 4
    assert seen["sqlenv_episodes_rebuilt_total"] == 1
    assert seen["sqlenv_steps_replayed_total"] == 2
    gauges = {"leases": 1, "capacity": 3, "in_flight": 0}
    for name, value in (gauges | {"sql_queue_depth": 0, "sql_workers_up": 1}).items():
        assert seen[f"sqlenv_{name}"] == value
    assert seen["sqlenv_sql_jobs_total"] > 4
    assert seen["sqlenv_request_seconds_count{path=/step}"] == 7
    assert seen["sqlenv_request_seconds_count{path=/episodes/{episode_id}}"] == 1


async def test_errors_are_counted_by_code_including_batch_items(http: httpx.AsyncClient) -> None:
    for name in "abcd":  # the fourth is over the capacity
        await http.post("/reset", json={"episode_id": name})
    steps = [{"episode_id": "x", "action": "QUERY: SELECT 1"}, {}, 7]
    await http.post("/step_batch", json={"steps": steps})
    for path in ("/no/such/path", "/step/three"):
        await http.get(path)
    seen = await read(http)
    counts = {"capacity": 1, "unknown_episode": 1, "invalid_request": 2, "not_found": 2}
    for code, count in counts.items():
        assert seen[f"sqlenv_errors_total{{code={code}}}"] == count
    assert seen["sqlenv_request_seconds_count{path=other}"] == 2, "clients create no labels"
