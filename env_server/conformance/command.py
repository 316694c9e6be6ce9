"""`python -m env_server conformance`."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict
from http import HTTPStatus
from pathlib import Path
from typing import Annotated

import httpx
import typer
from rich.table import Table

from env_server.conformance import corpus
from env_server.conformance.answers import answers
from env_server.conformance.answers import with_data as answers_with_data
from env_server.conformance.check import Check, CheckResult, Progress, run
from env_server.conformance.episodes import determinism, plays, replays, steps
from env_server.conformance.errors import errors, sizes
from env_server.conformance.fairness import fairness
from env_server.conformance.headers import headers
from env_server.conformance.jail import checks as jail_checks
from env_server.conformance.leaks import gold, rewards
from env_server.conformance.leaks import with_data as gold_with_data
from env_server.conformance.ownership import ownership
from env_server.conformance.parsing import parsing
from env_server.conformance.wire import Wire
from shared.client.auth import bearer
from shared.client.proxies import proxy_of
from shared.console import (
    failure,
    one_line_errors,
    print_line,
    progress_bar,
    table_console,
    write_json,
)
from shared.dataset import load_splits
from shared.errors import ServerUnreachable, Unauthorized, from_wire

REGISTRIES = (
    plays, steps, replays, determinism, errors, gold, answers, headers, parsing, rewards, ownership,
    sizes, fairness,
)  # fmt: skip
GROUPS = (*(registry.group for registry in REGISTRIES), "hostile")

_console = table_console()


def all_checks(queries: list[corpus.HostileQuery], data_dir: Path | None = None) -> list[Check]:
    """Return every check, in the order of `GROUPS`. Raises `DataError` for a bad data directory."""
    checks = [check for registry in REGISTRIES for check in registry.checks]
    if data_dir is not None:
        questions = [question for split in load_splits(data_dir).values() for question in split]
        checks += [gold_with_data(questions), *answers_with_data(questions)]
    checks += jail_checks(queries)
    return sorted(checks, key=lambda check: GROUPS.index(check.group))


def conformance(
    url: Annotated[str, typer.Option(help="Base URL of the server.")],
    only: Annotated[
        list[str] | None, typer.Option(help=f"Groups, comma-separated: {', '.join(GROUPS)}.")
    ] = None,
    hostile_dir: Annotated[
        Path | None,
        typer.Option(
            "--hostile", help="Directory of hostile queries.", show_default="the ones included"
        ),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option("--data", help="The server's data directory: search replies for its gold."),
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--json", help="Write the result to this JSON file.")
    ] = None,
    timeout_s: Annotated[float, typer.Option(min=1, help="Seconds to wait for a reply.")] = 60.0,
    api_key: Annotated[
        str | None, typer.Option(help="The server's API key.", show_default="SQLENV_API_KEY")
    ] = None,
    second_api_key: Annotated[
        str | None, typer.Option(help="An agent's key, for the checks of what a key may do.")
    ] = None,
) -> None:
    """Check a running server, any implementation, over HTTP.

    Exit code: 0 if all checks pass, 1 if one fails or the checks cannot run.
    """
    with one_line_errors():
        checks = all_checks(corpus.load(hostile_dir or corpus.DIRECTORY), data_dir)
    groups = {name.strip() for item in only or () for name in item.split(",")}
    if unknown := sorted(groups - set(GROUPS)):
        raise failure(f"no group of checks {unknown[0]!r}; the groups are {', '.join(GROUPS)}")
    checks = [check for check in checks if not groups or check.group in groups]
    try:
        with one_line_errors(), progress_bar("checking") as bar:
            keys = [bearer(api_key), *([bearer(second_api_key)] if second_api_key else [])]
            results = asyncio.run(_run(url, checks, timeout_s, keys, bar))
    except httpx.InvalidURL as error:
        example = "expected one like http://127.0.0.1:8000"
        raise failure(f"{url!r} is no URL ({error}); {example}") from None
    statuses = {result.status for result in results}
    ok = "ok" in statuses and "FAIL" not in statuses
    _print_results(results, ok)
    rows = [asdict(result) for result in results]
    write_json(report, {"url": url, "ok": ok, "findings": rows})
    if not ok:
        raise typer.Exit(1)


async def _run(
    url: str,
    checks: Sequence[Check],
    timeout_s: float,
    keys: Sequence[dict[str, str]],
    progress: Progress,
) -> list[CheckResult]:
    async with AsyncExitStack() as stack:
        clients = [
            httpx.AsyncClient(
                base_url=url.rstrip("/"),
                timeout=timeout_s,
                headers=headers,
                transport=httpx.AsyncHTTPTransport(proxy=proxy_of(url)),
            )
            for headers in keys
        ]
        wire = Wire(*[await stack.enter_async_context(client) for client in clients])
        # Not results of a check: unreachable from the start, another program's server, a wrong key.
        try:
            health = await wire.send("GET", "/health")
            metadata = await wire.send("GET", "/metadata")
        except ServerUnreachable as error:
            raise failure(f"{error.message}; is a server running?") from None
        if health.status == metadata.status == HTTPStatus.NOT_FOUND:
            raise failure(f"{url} has neither /health nor /metadata: no SQLEnv server's base URL")
        if metadata.status == Unauthorized.status:
            raise from_wire(metadata.body, metadata.status, url)
        return await run(wire, checks, progress)


def _print_results(results: Sequence[CheckResult], ok: bool) -> None:
    table = Table(title="Checks", title_justify="left", expand=True)
    table.add_column("result", no_wrap=True)
    table.add_column("group", no_wrap=True)
    table.add_column("check", ratio=3)
    table.add_column("ms", justify="right", no_wrap=True)
    table.add_column("remark", ratio=2)
    for result in results:
        remark = "see below" if result.status == "FAIL" else result.detail
        milliseconds = f"{1000 * result.seconds:,.0f}"
        table.add_row(result.status, result.group, result.name, milliseconds, remark)
    _console.print(table)
    for result in results:
        if result.status == "FAIL":
            print_line(_console, f"FAIL {result.group}: {result.name}\n     {result.detail}")
    counts = Counter(result.status for result in results)
    line = f"{counts['ok']} ok, {counts['FAIL']} failed, {counts['skip']} skipped"
    seconds = sum(result.seconds for result in results)
    print_line(_console, f"{'passed' if ok else 'FAILED'}: {line} in {seconds:.1f} s")
