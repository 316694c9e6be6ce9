"""A check: a named coroutine over a `Wire` that raises `Failed` or `Skipped`."""

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import httpx

from tests.conformance.wire import Failed, Skipped, Wire, brief

Status = Literal["ok", "FAIL", "skip"]
Body = Callable[[Wire], Awaitable[str | None]]
Progress = Callable[[int, int], None]  # (done, total)


@dataclass(frozen=True)
class Check:
    """One check. `body` may return a remark for the table."""

    group: str
    name: str
    body: Body


@dataclass(frozen=True)
class CheckResult:
    """The result of a check; `detail` is why it failed or was skipped, or a remark."""

    group: str
    name: str
    status: Status
    detail: str
    seconds: float  # wall time


class Registry:
    """The checks of one group, in the order of their definition: `@checks("name")` adds one."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.checks: list[Check] = []

    def __call__(self, name: str) -> Callable[[Body], Body]:
        def add(body: Body) -> Body:
            self.checks.append(Check(self.group, name, body))
            return body

        return add


async def in_time(
    tries: int, measure: Callable[[], Awaitable[tuple[float, float]]], what: str
) -> None:
    """Measure (seconds, seconds allowed) until a try is in time. `Failed` if none is."""
    for _ in range(tries):
        took, allowed = await measure()
        if took <= allowed:
            return
    raise Failed(f"{what} took {took:.2f} s, {allowed:.2f} s are allowed, in {tries} tries")


async def run(
    wire: Wire, checks: Sequence[Check], progress: Progress = lambda done, total: None
) -> list[CheckResult]:
    """Run the checks in order. A server that stops answering fails one and skips the rest."""
    results: list[CheckResult] = []
    gone = False
    for check in checks:
        start = time.monotonic()
        status, detail = await _verdict(wire, check, gone)
        seconds = time.monotonic() - start
        results.append(CheckResult(check.group, check.name, status, detail, seconds))
        progress(len(results), len(checks))
        try:
            await wire.end_all()
            await wire.send("GET", "/health")
        except httpx.HTTPError:
            gone = gone or status == "FAIL"
    return results


async def _verdict(wire: Wire, check: Check, gone: bool) -> tuple[Status, str]:
    try:
        if gone:
            raise Skipped("the server no longer answers")
        return "ok", await check.body(wire) or ""
    except Skipped as reason:
        return "skip", str(reason)
    except Failed as reason:
        return "FAIL", str(reason)
    except httpx.HTTPError as error:
        return "FAIL", f"{error.request.method} {error.request.url} failed: {error!r}"
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        return "FAIL", f"malformed reply: {brief(repr(error), 400)}"
