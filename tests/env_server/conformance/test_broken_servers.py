"""The conformance suite detects each fault that is put between it and a correct server."""

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from env_server.app import create_app
from env_server.conformance import fairness, parsing
from env_server.conformance.answers import FORMS
from env_server.conformance.check import CheckResult, run
from env_server.conformance.command import GROUPS, all_checks
from env_server.conformance.corpus import load
from env_server.conformance.wire import Wire
from env_server.settings import Settings
from tests.env_server.conformance.faults import (
    AGENT,
    RESET,
    STEP,
    TRAINER,
    Between,
    Boundless,
    Counted,
    Dying,
    Endless,
    OneAtATime,
    OnReply,
    OnRequest,
    SlowJudge,
    backwards,
    errors_without_shape,
    hint,
    literal,
    one_key,
    oracle,
    pages_for_errors,
    parrot,
    path_in_error,
    repeated,
    rows_beside_error,
    set_in,
    slow_parser,
    sorted_rows,
    takes_anything,
    teacher,
)


def results_of(
    data_dir: Path,
    fault: Any,
    *groups: str,
    name: str | None = None,
    hostile: str | None = None,
    keys: bool = False,
    **settings: Any,
) -> list[CheckResult]:
    """The results of these groups, or of the check `name`, for a server with this fault.

    There is one hostile query. With `keys` the server has a trainer's and an agent's, and the
    checks use both. `settings` are further ones of the server.
    """
    if keys:
        settings |= {"api_key": TRAINER, "agent_keys": AGENT}
    queries = [query for query in load() if query.name == hostile]
    checks = [
        check
        for check in all_checks(queries, data_dir)
        if check.group in groups and name in (None, check.name)
    ]

    async def main() -> list[CheckResult]:
        app = create_app(Settings(data_dir=data_dir, sql_workers=2, **settings))
        served = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with app.router.lifespan_context(app), AsyncExitStack() as stack:
            clients = [
                httpx.AsyncClient(
                    base_url="http://127.0.0.1:9",
                    transport=Between(served, fault) if fault is not None else served,
                    timeout=30,
                    headers={"Authorization": f"Bearer {key}"},
                )
                for key in ((TRAINER, AGENT) if keys else (TRAINER,))
            ]
            for client in clients:
                await stack.enter_async_context(client)
            return await run(Wire(*clients), checks)

    return asyncio.run(main())


def failed(results: list[CheckResult]) -> list[str]:
    return [result.name for result in results if result.status == "FAIL"]


@pytest.mark.parametrize(
    "group",
    # test_server.py runs fairness without keys
    [pytest.param(one, marks=pytest.mark.slow) if one == "fairness" else one for one in GROUPS],
)
def test_a_correct_server_passes(tiny_data: Path, group: str) -> None:
    results = results_of(tiny_data, None, group, hostile="duplicates and order", keys=True)
    # there is no port here for the checks of heads; test_server.py has one
    expected = "skip" if group == "headers" else "ok"
    assert results
    assert [result for result in results if result.status != expected] == []


@pytest.mark.parametrize(
    ("fault", "group", "name"),
    [
        (OnReply(STEP, set_in("info", "gold_answer", to=5)), "gold",
         "no field of any reply is named after gold"),
        (OnReply(("/questions",), set_in("questions", 0, "gold_sql", to="SELECT 1")), "gold",
         "no field of any reply is named after gold"),
        (OnReply(STEP, set_in("info", "gold_answer", to=5)), "play",
         "DESCRIBE, SAMPLE, QUERY and ANSWER work as documented"),
        (OnReply(STEP, hint), "gold", "replies to different wrong answers are equal"),
        (OnReply(STEP, teacher), "gold", "no reply holds a question's gold SQL or answer"),
        (OnReply(STEP, set_in("observation", "result", to="potential 0.5")), "gold",
         "before the end, observations do not reveal rewards"),
        (OnReply(RESET, set_in("observation", "schema_info", to="Tables: a\na(b)")), "play",
         "a reset shows a question and the tables' names, and nothing else"),
        (OnReply(STEP, set_in("reward", to=1.0)), "play",
         "DESCRIBE, SAMPLE, QUERY and ANSWER work as documented"),
        (OnReply(STEP, set_in("info", "outcome", to="correct")), "play",
         "the budget ends an episode"),
        (OnReply(("/state",), set_in("action_history", to=[])), "play", "state and close"),
        (OnReply(STEP, set_in("observation", "result", to=time.monotonic)), "determinism",
         "a replayed episode gives the same bytes: concurrently, in any order, under load"),
        (OnReply(STEP, set_in("observation", "result", to=lambda: f"{time.monotonic()}")), "steps",
         "a repeated step gives the same bytes and is not counted again"),
        (OnReply(STEP, set_in("observation", "result", to=lambda: f"{time.monotonic()}")), "replay",
         "an episode rebuilt from its actions is the same, under any id and at any length"),
        (OnRequest("step"), "steps",
         "a repeated step gives the same bytes and is not counted again"),
        (OnRequest("step"), "steps", "concurrent repeats give the same bytes and are counted once"),
        (OnRequest("step"), "steps",
         "another action for an answered step is a conflict, a step ahead is behind"),
        (OnRequest("seed"), "determinism", "a seed picks the same question"),
        (OnRequest("digest"), "replay", "a replay for another server is refused"),
        (OnRequest("actions"), "replay", "a lost episode comes back under its own id"),
        (errors_without_shape, "errors", "unknown episodes, questions and paths are named"),
        (pages_for_errors, "errors", "an invalid request is 422 invalid_request"),
        (OnReply(("/step_batch",), backwards), "errors",
         "a batch answers like single requests, in order, and an invalid item fails alone"),
        (OnReply(("/metadata",), set_in("standard", to=None)), "answers",
         "/metadata names the standard of right answers"),
        *((OnReply(STEP, literal), "answers", name)
          for name in ("a copied result is the answer that it shows", *FORMS)),
        (SlowJudge(), "answers", "60 answers of 20,000 characters take no longer than short ones"),
        (parrot, "parsing", "an error does not repeat a long name"),
        (takes_anything, "parsing", "a body of 3 MiB is 413 on every path"),
    ],
)  # fmt: skip
def test_a_fault_is_found(tiny_data: Path, fault: Any, group: str, name: str) -> None:
    assert failed(results_of(tiny_data, fault, group, name=name)) == [name]


def test_a_slow_parser_is_found(tiny_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "TRIES", 2)
    names = failed(results_of(tiny_data, slow_parser, "parsing"))
    assert names == [check.name for check in parsing.parsing.checks if "delay" in check.name]


@pytest.mark.parametrize(
    ("fault", "group", "name"),
    [
        (OnRequest("rewards"), "rewards",
         "rewards 'end': nothing before the last reply, whose reward is the episode's total"),
        (OnReply(STEP, oracle), "rewards",
         "rewards 'end': right and wrong guesses get equal replies"),
        (OnRequest("rewards"), "rewards",
         "rewards 'end': a replay is the same, and shows rewards at the end only"),
        (OnRequest("rewards"), "rewards", "an agent's key gets no reward before the end"),
        (OnReply(RESET, Counted()), "ownership",
         "the server's ids can't be guessed, whatever a header proposes"),
        (one_key, "ownership", "an episode belongs to the key that began it"),
        (Boundless(), "bytes", "an argument is bounded in bytes, however few characters it has"),
        (repeated, "bytes", "the reply to a batch is bounded, however often an item is repeated"),
        (Boundless(), "bytes",
         "an episode's actions are bounded, and one beyond the bound is not counted"),
    ],
)  # fmt: skip
def test_a_fault_is_found_with_two_keys(tiny_data: Path, fault: Any, group: str, name: str) -> None:
    assert failed(results_of(tiny_data, fault, group, name=name, keys=True)) == [name]


@pytest.mark.slow
@pytest.mark.timeout(900)  # its endless queries run one after the other
def test_a_server_that_serves_in_order_and_ends_no_work_is_found(
    tiny_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fairness, "TRIES", 1)
    # each replay of endless queries runs to this limit
    results = results_of(tiny_data, Endless(), "fairness", keys=True, request_timeout_s=10.0)
    names = failed(results)
    assert names == [check.name for check in fairness.fairness.checks]


@pytest.mark.parametrize(
    ("fault", "query", "message"),
    [
        (OnReply(STEP, sorted_rows), "duplicates and order", "must show"),
        (OnReply(STEP, path_in_error), "catalogue", "contain no path"),
        (OnReply(STEP, rows_beside_error), "catalogue", "show nothing"),
        (OnReply(STEP, set_in("observation", "error", to=None)), "catalogue", "must be sql_denied"),
        (OneAtATime(), "endless recursion", "other episodes waited"),
    ],
)
def test_a_leaking_jail_is_found(tiny_data: Path, fault: Any, query: str, message: str) -> None:
    results = results_of(tiny_data, fault, "hostile", hostile=query)
    (found,) = (result for result in results if result.name == query)
    assert (found.status, message in found.detail) == ("FAIL", True)


def test_a_server_that_goes_away_is_one_failure_and_no_crash(tiny_data: Path) -> None:
    results = results_of(tiny_data, Dying(after=20), "play", "steps", "errors")
    statuses = [result.status for result in results]
    assert statuses.count("FAIL") == 1
    assert statuses.index("skip") == statuses.index("FAIL") + 1
    assert set(statuses[statuses.index("skip") :]) == {"skip"}
