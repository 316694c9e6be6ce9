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
    for step, action in enumerate(
        [f"DESCRIBE: {table}", f"QUERY: {question.gold_sql}", "ANSWER: no"]
    ):
        for _ in range(2):  # the second is a repeat
            body = {"episode_id": "a", "action": action, "step": step}
            assert (await http.post("/step", json=body)).status_code == 200
    await http.post(
        "/reset",
        json=reset | {"episode_id": "b", "actions": [f"SAMPLE: {table}", "QUERY: SELECT 1"]},
    )
    # the last step of its budget
    await http.post("/step", json={"episode_id": "b", "action": "QUERY: SELECT 2"})
    await http.post("/reset", json=reset | {"episode_id": "c"})
    await http.delete("/episodes/c")
    await http.post("/reset", json=reset | {"episode_id": "d"})

    seen = await read(http)
    assert {
        name: value
        for name, value in seen.items()
        if name.startswith("sqlenv_episodes_ended_total")
    } == {
        "sqlenv_episodes_ended_total{outcome=correct}": 0,
        "sqlenv_episodes_ended_total{outcome=wrong}": 1,
        "sqlenv_episodes_ended_total{outcome=budget}": 1,
        "sqlenv_episodes_ended_total{outcome=abandoned}": 1,
        "sqlenv_episodes_ended_total{outcome=answered}": 0,
        "sqlenv_episodes_ended_total{outcome=sql_killed}": 0,
    }
    actions = ("describe", "sample", "query", "answer")
    assert [seen[f"sqlenv_steps_total{{action={name}}}"] for name in actions] == [1, 0, 2, 1]
    assert seen["sqlenv_step_seconds_count{action=query}"] == 2
    assert seen["sqlenv_step_seconds_sum{action=query}"] > 0
    assert seen["sqlenv_steps_repeated_total"] == 3
    assert seen["sqlenv_episodes_started_total"] == 4
    assert seen["sqlenv_episodes_rebuilt_total"] == 1
    assert seen["sqlenv_steps_replayed_total"] == 2
    assert (seen["sqlenv_leases"], seen["sqlenv_finished_held"], seen["sqlenv_capacity"]) == (
        1,
        2,
        3,
    )
    assert (
        seen["sqlenv_in_flight"],
        seen["sqlenv_sql_queue_depth"],
        seen["sqlenv_sql_workers_up"],
    ) == (0, 0, 1)
    assert seen["sqlenv_sql_jobs_total"] > 4
    found = [seen[f"sqlenv_result_cache_total{{found={kind}}}"] for kind in ("hit", "miss")]
    assert found == [0, 3]
    assert seen["sqlenv_result_cache_bytes"] > 0
    assert seen["sqlenv_request_seconds_count{path=/step}"] == 7
    assert seen["sqlenv_request_seconds_count{path=/episodes/{episode_id}}"] == 1
    digest = (await http.get("/metadata")).json()["digest"]
    assert any(
        name.startswith("sqlenv_server_info{") and f"digest={digest}" in name for name in seen
    )


async def test_errors_are_counted_by_code_including_batch_items(http: httpx.AsyncClient) -> None:
    for name in "abcd":  # the fourth is over the capacity
        await http.post("/reset", json={"episode_id": name})
    await http.post(
        "/step_batch", json={"steps": [{"episode_id": "x", "action": "QUERY: SELECT 1"}, {}, 7]}
    )
    await http.get("/no/such/path")
    seen = await read(http)
    counted = {
        name: value for name, value in seen.items() if name.startswith("sqlenv_errors_total")
    }
    assert counted == {
        "sqlenv_errors_total{code=capacity}": 1,
        "sqlenv_errors_total{code=unknown_episode}": 1,
        "sqlenv_errors_total{code=invalid_request}": 2,
        "sqlenv_errors_total{code=not_found}": 1,
    }


async def test_clients_cannot_create_labels(http: httpx.AsyncClient) -> None:
    for path in ("/one", "/two", "/step/three"):
        await http.get(path)
    paths = {name for name in await read(http) if name.startswith("sqlenv_request_seconds_count")}
    assert paths == {"sqlenv_request_seconds_count{path=other}"}


async def test_expired_leases_and_draining(http: httpx.AsyncClient, app: FastAPI) -> None:
    pool = app.state.service.pool
    await http.post("/reset", json={"episode_id": "a"})
    pool.clock = lambda: float("inf")
    pool.sweep()
    assert (await read(http))["sqlenv_draining"] == 0
    app.state.service.pool.draining = True
    seen = await read(http)
    assert (
        seen["sqlenv_leases_expired_total"],
        seen["sqlenv_leases"],
        seen["sqlenv_draining"],
    ) == (1, 0, 1)
    assert seen["sqlenv_episodes_ended_total{outcome=abandoned}"] == 1
