"""A check: a named coroutine over a `Wire` that raises `Failed` or `Skipped`."""

import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from pydantic import ValidationError

from env_server.conformance.wire import Failed, Skipped, Wire, brief
from shared.errors import ServerUnreachable

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


async def run(
    wire: Wire, checks: Sequence[Check], progress: Progress = lambda done, total: None
) -> list[CheckResult]:
    """Run the checks in order, and close each check's episodes.

    A server that stops answering fails one check and skips the rest.
    """
    results: list[CheckResult] = []
    gone = False
    for check in checks:
        start = time.monotonic()
        status: Status = "ok"
        try:
            if gone:
                raise Skipped("the server no longer answers")
            detail = await check.body(wire) or ""
        except Skipped as reason:
            status, detail = "skip", str(reason)
        except ServerUnreachable as error:
            status, detail = "FAIL", error.message
            gone = not await _answers(wire)
        except Failed as error:
            status, detail = "FAIL", str(error)
        except ValidationError as error:
            first = error.errors()[0]
            field, value = ".".join(map(str, first["loc"])), brief(first["input"])
            status = "FAIL"
            detail = f"invalid field {field} of a {error.title}: {first['msg']}, got {value}"
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            status, detail = "FAIL", f"malformed reply: {type(error).__name__} {error}"
        seconds = time.monotonic() - start
        results.append(CheckResult(check.group, check.name, status, detail, seconds))
        progress(len(results), len(checks))
        with suppress(ServerUnreachable):
            await wire.end_all()
    return results


async def _answers(wire: Wire) -> bool:
    try:
        await wire.send("GET", "/health")
    except ServerUnreachable:
        return False
    return True
