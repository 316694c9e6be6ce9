"""A check: a named coroutine over a `Wire` that raises `Failed` or `Skipped`. `run` makes findings
of them."""

import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from pydantic import ValidationError

from env_server.conformance.wire import Failed, Skipped, Wire, brief
from shared.errors import ServerUnreachable

Status = Literal["ok", "FAIL", "skip"]
Body = Callable[[Wire], Awaitable[str | None]]


@dataclass(frozen=True)
class Check:
    """`body` may return a remark for the table."""

    group: str
    name: str
    body: Body


@dataclass(frozen=True)
class Finding:
    """What a check found. `detail`: why it failed or was left out, or a remark; `seconds` of wall
    time."""

    group: str
    name: str
    status: Status
    detail: str
    seconds: float


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
    wire: Wire, checks: Iterable[Check], tell: Callable[[Finding], None] = lambda _: None
) -> list[Finding]:
    """Make each check, one after the other; `tell` hears of each finding at once.

    A server that stops answering fails the check and leaves out the rest.
    """
    findings: list[Finding] = []
    gone = False
    for check in checks:
        began = time.monotonic()
        status: Status = "ok"
        try:
            if gone:
                raise Skipped("the server no longer answers")
            detail = await check.body(wire) or ""
        except Skipped as reason:
            status, detail = "skip", str(reason)
        except ServerUnreachable as error:
            status, detail = "FAIL", error.message
            gone = not await answers(wire)
        except Failed as error:
            status, detail = "FAIL", str(error)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            status, detail = (
                "FAIL",
                f"a {error.title} with a wrong {where}: {first['msg']}, not {brief(first['input'])}",
            )
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            status, detail = (
                "FAIL",
                f"a reply lacks what was to be read of it: {type(error).__name__} {error}",
            )
        finding = Finding(check.group, check.name, status, detail, time.monotonic() - began)
        findings.append(finding)
        tell(finding)
    return findings


async def answers(wire: Wire) -> bool:
    """Whether the server can still be reached."""
    try:
        await wire.send("GET", "/health")
    except ServerUnreachable:
        return False
    return True
