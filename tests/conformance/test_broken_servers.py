"""The conformance suite detects each fault that is put between it and a correct server."""

import asyncio
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from env_server.app import create_app
from env_server.settings import Settings
from shared.dataset import load_splits
from tests.conformance import broken, parsing
from tests.conformance.broken import RESET, STEP, Fault, on_reply, set_in, without
from tests.conformance.check import CheckResult, run
from tests.conformance.corpus import load
from tests.conformance.suite import GROUPS, all_checks
from tests.conformance.wire import Wire

KEYS = (broken.TRAINER, broken.AGENT)


def results_of(
    data_dir: Path,
    fault: Fault | None,
    *groups: str,
    name: str = "",
    keys: tuple[str, ...] = KEYS,
    **settings: Any,
) -> list[CheckResult]:
    """The results of the checks of these groups with `name` in their names.

    The server has this fault, `settings`, a trainer's and an agent's key. The checks use `keys`.
    """
    questions = [question for split in load_splits(data_dir).values() for question in split]
    checks = [one for one in all_checks(load()) if one.group in groups and name in one.name]
    settings = {"sql_workers": 1, **settings}
    settings |= {"api_key": broken.TRAINER, "agent_keys": broken.AGENT}

    async def main() -> list[CheckResult]:
        app = create_app(Settings(data_dir=data_dir, **settings))
        served = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        first, second = (
            httpx.AsyncClient(
                base_url="http://127.0.0.1:9",
                transport=broken.between(served, fault) if fault is not None else served,
                headers={"Authorization": f"Bearer {key}"},
            )
            for key in KEYS
        )
        async with app.router.lifespan_context(app), first, second:
            return await run(Wire(first, second if keys == KEYS else None, questions), checks)

    return asyncio.run(main())


def failed(results: list[CheckResult]) -> list[str]:
    return [result.name for result in results if result.status == "FAIL"]


@pytest.mark.parametrize("group", [one for one in GROUPS if one not in ("fairness", "hostile")])
def test_a_correct_server_passes(tiny_data: Path, group: str) -> None:
    results = results_of(tiny_data, None, group)
    # there is no port here for the checks of heads; test_server.py has one, and the other groups
    expected = "skip" if group == "headers" else "ok"
    assert results
    assert [result for result in results if result.status != expected] == []


@pytest.mark.parametrize(
    ("group", "name", "skipped"),
    [
        ("fairness", "another client's", 3),
        ("ownership", "belongs to the key", 1),
        ("rewards", "an agent's key", 1),
    ],
)
def test_checks_that_need_a_second_key_say_so(
    tiny_data: Path, group: str, name: str, skipped: int
) -> None:
    results = results_of(tiny_data, None, group, name=name, keys=KEYS[:1])
    expected = ("skip", "needs --second-api-key")
    assert [(result.status, result.detail) for result in results] == [expected] * skipped


@pytest.mark.parametrize(
    ("fault", "group", "name"),
    [
        (on_reply(STEP, set_in("info", "gold_answer", to=5)), "gold",
         "no field of any reply is named after gold"),
        (on_reply(STEP, broken.hint), "gold", "replies to different wrong answers are equal"),
        (on_reply(STEP, broken.teacher), "gold", "no reply holds a question's gold SQL or answer"),
        (on_reply(STEP, set_in("observation", "result", to="potential 0.5")), "gold",
         "before the end, observations do not reveal rewards"),
        (on_reply(RESET, set_in("observation", "schema_info", to="Tables: a\na(b)")), "play",
         "a reset shows a question and the tables' names, and nothing else"),
        (on_reply(STEP, set_in("reward", to=1.0)), "play",
         "DESCRIBE, SAMPLE, QUERY and ANSWER work as documented"),
        (on_reply(STEP, set_in("info", "outcome", to="correct")), "play",
         "the budget ends an episode"),
        (on_reply("/state", set_in("action_history", to=[])), "play", "state and close"),
        (on_reply(STEP, set_in("observation", "result", to=time.monotonic)), "determinism",
         "a replayed episode gives the same bytes: concurrently, in any order, under load"),
        (on_reply(STEP, set_in("observation", "result", to=lambda: f"{time.monotonic()}")),
         "replay",
         "an episode rebuilt from its actions is the same, under any id and at any length"),
        (without("step"), "steps", "a repeated step gives the same bytes and is not counted again"),
        (without("step"), "steps",
         "another action for an answered step is a conflict, a step ahead is behind"),
        (without("seed"), "determinism", "a seed picks the same question"),
        (without("digest"), "replay", "a replay for another server is refused"),
        (without("actions"), "replay", "a lost episode comes back under its own id"),
        (broken.errors_as(json={"detail": "wrong"}), "errors",
         "unknown episodes, questions and paths are named"),
        (broken.errors_as(text="<html>"), "errors", "an invalid request is 422 invalid_request"),
        (on_reply("/step_batch", lambda _, body: body["results"].reverse()), "errors",
         "a batch answers like single requests, in order, and an invalid item fails alone"),
        (on_reply("/metadata", set_in("standard", to=None)), "answers",
         "/metadata names the standard of right answers"),
        (on_reply(STEP, broken.literal), "answers", "a copied result is the answer that it shows"),
        (broken.parrot, "parsing", "an error does not repeat a long name"),
        (without("rewards"), "rewards",
         "rewards 'end': nothing but whether the answer is right, in the last reply"),
        (on_reply(STEP, broken.oracle), "rewards",
         "rewards 'end': right and wrong guesses get equal replies"),
        (without("rewards"), "rewards", "an agent's key gets no reward before the end"),
        (on_reply(RESET, broken.Counted()), "ownership",
         "the server's ids can't be guessed, whatever a header proposes"),
        (broken.one_key, "ownership", "an episode belongs to the key that began it"),
        (broken.Boundless(), "bytes",
         "an argument is bounded in bytes, however few characters it has"),
        (broken.Boundless(), "bytes",
         "an episode's actions are bounded, and one beyond the bound is not counted"),
        (broken.repeated, "bytes",
         "the reply to a batch is bounded, however often an item is repeated"),
    ],
)  # fmt: skip
def test_a_fault_is_found(tiny_data: Path, fault: Fault, group: str, name: str) -> None:
    assert failed(results_of(tiny_data, fault, group, name=name)) == [name]


def test_a_slow_parser_is_found(tiny_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "TRIES", 1)
    monkeypatch.setattr(parsing, "CONTROL_FACTOR", 0)  # of the busy machine of the tests
    names = failed(results_of(tiny_data, broken.slow_parser, "parsing"))
    assert names == [check.name for check in parsing.parsing.checks if "delay" in check.name]


@pytest.mark.parametrize(
    ("fault", "query", "message"),
    [
        (on_reply(STEP, broken.sorted_rows), "duplicates and order", "the result must be"),
        (on_reply(STEP, broken.path_in_error), "catalogue", "contain no path"),
        (on_reply(STEP, broken.rows_beside_error), "catalogue", "the result beside an error"),
        (on_reply(STEP, set_in("observation", "error", to=None)), "catalogue", "be sql_denied"),
        (broken.Endless(0.4), "endless recursion", "half of other episodes' steps took"),
    ],
)
def test_a_leaking_jail_is_found(tiny_data: Path, fault: Fault, query: str, message: str) -> None:
    results = results_of(tiny_data, fault, "hostile", name=query, sql_workers=2)
    (found,) = (result for result in results if result.name == query)
    assert (found.status, message in found.detail) == ("FAIL", True)


def test_a_server_that_goes_away_is_one_failure_and_no_crash(tiny_data: Path) -> None:
    results = results_of(tiny_data, broken.Dying(after=20), "play", "steps", "errors")
    statuses = [result.status for result in results]
    assert statuses.count("FAIL") == 1
    assert statuses.index("skip") == statuses.index("FAIL") + 1
    assert set(statuses[statuses.index("skip") :]) == {"skip"}
