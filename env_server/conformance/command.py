"""`python -m env_server conformance`."""

import asyncio
import json
from http import HTTPStatus
from pathlib import Path
from typing import Annotated

import httpx
import typer

from env_server.conformance import corpus
from env_server.conformance.check import Check, Finding, run
from env_server.conformance.episodes import plays, replays, steps
from env_server.conformance.errors import errors
from env_server.conformance.gold import gold, with_data
from env_server.conformance.jail import checks as jail_checks
from env_server.conformance.report import as_json, line, passed, summary
from env_server.conformance.same import determinism
from env_server.conformance.wire import Wire
from shared.client.auth import bearer
from shared.errors import DataError, ServerUnreachable, Unauthorized, from_wire

GROUPS = ("play", "steps", "replay", "determinism", "errors", "gold", "hostile")


def all_checks(queries: list[corpus.Hostile], data_dir: Path | None = None) -> list[Check]:
    """Every check, in the order of `GROUPS`. Raises a `DataError` for a data directory that is
    none."""
    found = [
        check
        for registry in (plays, steps, replays, determinism, errors, gold)
        for check in registry.checks
    ]
    return [*found, *([with_data(data_dir)] if data_dir is not None else []), *jail_checks(queries)]


def conformance(
    url: Annotated[str, typer.Option(help="The server's base URL.")],
    only: Annotated[
        list[str] | None, typer.Option(help=f"A group of checks: {', '.join(GROUPS)}. Repeatable.")
    ] = None,
    hostile_dir: Annotated[
        Path | None,
        typer.Option(
            "--hostile", help="A directory of hostile queries [default: the project's own]."
        ),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            "--data", help="The data that the server plays, to look for their gold in replies."
        ),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the findings to this file too.")
    ] = None,
    timeout_s: Annotated[
        float, typer.Option("--timeout", min=1, help="Seconds to wait for a reply.")
    ] = 60.0,
    api_key: Annotated[
        str | None,
        typer.Option(help="The server's key, where it has one.", show_default="SQLENV_API_KEY"),
    ] = None,
) -> None:
    """Check a running server, of any make, over HTTP alone: whether it speaks the wire, and whether
    its verdicts can be trusted. Prints a line a check. Exit status 1 where one fails.
    """
    try:
        queries = corpus.load(hostile_dir or corpus.DIRECTORY)
        checks = all_checks(queries, data_dir)
    except (corpus.CorpusError, DataError) as error:
        raise _failure(str(error)) from None
    if unknown := sorted(set(only or ()) - set(GROUPS)):
        raise _failure(
            f"no group of checks is called {unknown[0]!r}; the groups are {', '.join(GROUPS)}"
        )
    checks = [check for check in checks if not only or check.group in only]
    try:
        findings = asyncio.run(_run(url, checks, timeout_s, bearer(api_key)))
    except Unauthorized as error:
        raise _failure(error.message) from None
    except ServerUnreachable as error:
        raise _failure(f"{error.message}; is a server running there?") from None
    except httpx.InvalidURL as error:
        raise _failure(
            f"{url!r} is no URL ({error}); expected one like http://127.0.0.1:8000"
        ) from None
    typer.echo(summary(findings))
    if json_file is not None:
        try:
            json_file.write_text(
                json.dumps(as_json(url, findings), indent=1) + "\n", encoding="utf-8"
            )
        except OSError as error:
            raise _failure(f"can't write {json_file}: {error.strerror}") from None
    if not passed(findings):
        raise typer.Exit(1)


async def _run(
    url: str, checks: list[Check], timeout_s: float, headers: dict[str, str]
) -> list[Finding]:
    async with httpx.AsyncClient(
        base_url=url.rstrip("/"), timeout=timeout_s, headers=headers
    ) as client:
        wire = Wire(client)
        # None of these is a finding: unreachable from the start, another program's server or path,
        # a wrong key.
        health, reply = await wire.send("GET", "/health"), await wire.send("GET", "/metadata")
        if health.status == reply.status == HTTPStatus.NOT_FOUND:
            raise _failure(
                f"{url} has neither /health nor /metadata: it is the base URL of no such server"
            )
        if reply.status == Unauthorized.status:
            raise from_wire(reply.body, reply.status, url)
        return await run(wire, checks, lambda finding: typer.echo(line(finding)))


def _failure(message: str) -> typer.Exit:
    typer.echo(f"error: {message}", err=True)
    return typer.Exit(1)
