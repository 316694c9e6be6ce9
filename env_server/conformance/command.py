"""`python -m env_server conformance`."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from http import HTTPStatus
from pathlib import Path
from typing import Annotated

import httpx
import typer
from rich.table import Table

from env_server.conformance.answers import answers
from env_server.conformance.check import Check, CheckResult, run
from env_server.conformance.corpus import HostileQuery, load
from env_server.conformance.episodes import determinism, plays, replays, steps
from env_server.conformance.errors import errors, sizes
from env_server.conformance.fairness import fairness
from env_server.conformance.headers import headers
from env_server.conformance.jail import checks as jail_checks
from env_server.conformance.leaks import gold, ownership, rewards
from env_server.conformance.parsing import parsing
from env_server.conformance.wire import Wire
from shared.client.auth import bearer
from shared.client.diagnosis import fault_of, reason_of
from shared.client.proxies import proxy_of
from shared.console import (
    failure,
    literal,
    one_line_errors,
    print_line,
    progress_bar,
    table_console,
    write_json,
)
from shared.dataset import Question, load_splits
from shared.errors import from_wire

REGISTRIES = (
    plays, steps, replays, determinism, errors, gold, answers, headers, parsing, rewards, ownership,
    sizes, fairness,
)  # fmt: skip
GROUPS = (*(registry.group for registry in REGISTRIES), "hostile")

_console = table_console()


def all_checks(queries: Iterable[HostileQuery]) -> list[Check]:
    """Return every check, in the order of `GROUPS`."""
    checks = [check for registry in REGISTRIES for check in registry.checks]
    return checks + jail_checks(queries)


def conformance(
    url: Annotated[str, typer.Option(help="Base URL of the server.")],
    only: Annotated[
        list[str] | None, typer.Option(help=f"Groups, comma-separated: {', '.join(GROUPS)}.")
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option("--data", help="The server's data directory: search replies for its gold."),
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--json", help="Write the result to this JSON file.")
    ] = None,
    api_key: Annotated[
        str | None, typer.Option(help="The server's API key.", show_default="SQLENV_API_KEY")
    ] = None,
    second_api_key: Annotated[
        str | None, typer.Option(help="An agent's key, for the checks that need another client.")
    ] = None,
) -> None:
    """Check a running server, any implementation, over HTTP.

    Exit code: 0 if all checks pass, 1 if one fails or the checks cannot run.
    """
    groups = {name.strip() for item in only or () for name in item.split(",")}
    if unknown := sorted(groups - set(GROUPS)):
        raise failure(f"no group of checks {unknown[0]!r}; the groups are {', '.join(GROUPS)}")
    checks = [check for check in all_checks(load()) if not groups or check.group in groups]
    with one_line_errors():
        splits = load_splits(data_dir) if data_dir is not None else {}
        questions = [question for split in splits.values() for question in split]
        try:
            results = asyncio.run(_run(url, checks, questions, api_key, second_api_key))
        except httpx.InvalidURL as error:
            example = "expected one like http://127.0.0.1:8000"
            raise failure(f"{url!r} is no URL ({error}); {example}") from None
    counts = Counter(result.status for result in results)
    ok = counts["ok"] > 0 and not counts["FAIL"]
    _print_results(results)
    line = f"{counts['ok']} ok, {counts['FAIL']} failed, {counts['skip']} skipped"
    print_line(_console, f"{'passed' if ok else 'FAILED'}: {line}")
    write_json(report, {"url": url, "ok": ok, "findings": list(map(asdict, results))})
    if not ok:
        raise typer.Exit(1)


async def _run(
    url: str,
    checks: Sequence[Check],
    questions: Sequence[Question],
    api_key: str | None,
    second_api_key: str | None,
) -> list[CheckResult]:
    async with _client(url, api_key) as client, _client(url, second_api_key) as second:
        wire = Wire(client, second if second_api_key else None, questions)
        try:
            reply = await wire.send("GET", "/metadata")
        except httpx.HTTPError as error:
            reason = await fault_of(url, error) or f"{reason_of(error)}; is a server running?"
            raise failure(f"no reply from {url}: {reason}") from None
        if reply.status != HTTPStatus.OK:
            raise from_wire(reply.body, reply.status, url)
        with progress_bar("checking") as bar:
            return await run(wire, checks, bar)


def _client(url: str, api_key: str | None) -> httpx.AsyncClient:
    transport = httpx.AsyncHTTPTransport(proxy=proxy_of(url))
    base, key = url.rstrip("/"), bearer(api_key)
    return httpx.AsyncClient(base_url=base, timeout=60, headers=key, transport=transport)


def _print_results(results: Sequence[CheckResult]) -> None:
    table = Table("result", "group", title="Checks", title_justify="left", expand=True)
    table.add_column("check", ratio=3)
    table.add_column("ms", justify="right")
    table.add_column("remark", ratio=2)
    for result in results:
        remark = "see below" if result.status == "FAIL" else result.detail
        milliseconds = f"{1000 * result.seconds:,.0f}"
        table.add_row(*literal(result.status, result.group, result.name, milliseconds, remark))
    _console.print(table)
    for result in results:
        if result.status == "FAIL":
            print_line(_console, f"FAIL {result.group}: {result.name}")
            print_line(_console, f"     {result.detail}")
