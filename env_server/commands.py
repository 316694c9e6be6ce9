"""`python -m env_server`: the environment server as a process, and commands that check its work."""

import asyncio
import gc
import logging
import socket
import time
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, cast

import typer
import uvicorn
from fastapi import FastAPI
from pydantic import ValidationError
from rich.table import Table

from env_server.app import create_app
from env_server.http.connections import Connections
from env_server.http.protocol import Protocol
from env_server.http.websocket import SOCKET_OPTIONS, Socket
from env_server.questions import QuestionBank
from env_server.rewards import REWARD_VERSION
from env_server.service import Service
from env_server.settings import ENV_PREFIX, Settings
from env_server.telemetry import configure
from shared import console
from shared.errors import first_problem

log = logging.getLogger("env_server")
# longer than clients keep an idle connection, so that none is closed under a request
KEEP_ALIVE_S = 75
# The loop accepts one connection per turn and copy of the listener; a flood keeps turns long, and
# who comes last would wait for minutes.
ACCEPTED_AT_ONCE = 16


class Server(uvicorn.Server):
    """Uvicorn's server, which drains first. On a signal `/ready` fails at once, and then

    1. for `drain_s` episodes continue and none starts;
    2. the port closes, the requests in flight finish, for `shutdown_grace_s` at most, and the
       process exits with 0.

    A second signal ends the first stage, a third the second.
    """

    def __init__(self, config: uvicorn.Config, app: FastAPI, url: str) -> None:
        super().__init__(config)
        self.app, self.url = app, url
        self.exit_at: float | None = None  # monotonic seconds: the end of the first stage
        self.drains = False  # and said so

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and announce the URL; whoever started the process waits for that line."""
        await super().startup(sockets)
        service: Service = self.app.state.service
        metadata = service.metadata
        line = (
            f"SQLEnv serves {self.url} data={service.settings.data_dir} "
            f"databases={metadata.databases} questions={sum(metadata.questions.values())} "
            f"standard={metadata.standard} digest={metadata.digest[:12]}"
        )
        if service.settings.log_format == "json":  # whatever the log level
            log.handle(log.makeRecord(log.name, logging.INFO, __file__, 0, line, (), None))
        else:
            typer.echo(line)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Start the next stage."""
        service: Service | None = self.app.state.service
        if service is None or self.exit_at is not None:
            self.force_exit = self.should_exit
            self.should_exit = True
        else:
            service.pool.draining = True
            self.exit_at = time.monotonic() + service.settings.drain_s

    async def on_tick(self, counter: int) -> bool:
        """Log the first stage, and start the second when it is due. Called every 0.1 s."""
        if self.exit_at is not None and not self.drains:
            self.drains, service = True, self.app.state.service
            line = "stopping: episodes continue for %g s, and none starts; unfinished: %d"
            log.info(line, service.settings.drain_s, len(service.pool))
        self.should_exit |= self.exit_at is not None and time.monotonic() >= self.exit_at
        return await super().on_tick(counter)


def run_server(settings: Settings, listener: socket.socket, bank: QuestionBank) -> None:
    app = create_app(settings, bank)
    host, port = listener.getsockname()[:2]
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    connections = Connections(settings, app.state.metrics)
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http=cast(type[Protocol], partial(Protocol, connections)),
        ws=cast(type[Socket], partial(Socket, connections)),
        **SOCKET_OPTIONS,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=settings.shutdown_grace_s,
    )
    # Episodes are many objects that live long and form no cycles: with 10,000 of them the
    # collector's default pace cost 35 of 100 us per step.
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    copies = [listener.dup() for _ in range(ACCEPTED_AT_ONCE - 1)]
    Server(config, app, url).run(sockets=[listener, *copies])


def option(name: str, *flags: str) -> Any:
    field = Settings.model_fields[name]
    source = f"[{ENV_PREFIX}{name.upper()}; default: {field.default}]"
    return typer.Option(*flags, help=f"{field.description} {source}")


def show_settings(wanted: bool) -> None:
    """Print one line per setting: variable, default, description."""
    if wanted:
        rows = [
            (f"{ENV_PREFIX}{name.upper()}", str(field.default), str(field.description))
            for name, field in Settings.model_fields.items()
        ]
        first, second = (max(len(row[column]) for row in rows) for column in (0, 1))
        for name, value, text in rows:
            typer.echo(f"{name:<{first}}  {value:<{second}}  {text}")
        raise typer.Exit


def serve(
    context: typer.Context,
    host: Annotated[str | None, option("host", "--host")] = None,
    port: Annotated[int | None, option("port", "--port")] = None,
    data_dir: Annotated[Path | None, option("data_dir", "--data")] = None,
    sql_workers: Annotated[int | None, option("sql_workers", "--workers")] = None,
    capacity: Annotated[int | None, option("capacity", "--capacity")] = None,
    lease_s: Annotated[float | None, option("lease_s", "--lease-s", "--lease")] = None,
    step_budget: Annotated[int | None, option("step_budget", "--step-budget")] = None,
    standard: Annotated[str | None, option("standard", "--standard")] = None,
    log_level: Annotated[str | None, option("log_level", "--log-level")] = None,
    _: Annotated[
        bool,
        typer.Option(
            "--settings", help="Print all settings and exit.", callback=show_settings, is_eager=True
        ),
    ] = False,
) -> None:
    """Serve SQL episodes over HTTP: POST /reset, POST /step; see /docs for the rest.

    Without a subcommand, starts the server. Settings can also be given in the environment
    (SQLENV_...); --settings lists them all. On SIGTERM or Ctrl-C the server finishes the requests
    in flight and exits.
    """
    if context.invoked_subcommand is not None:
        return
    names = Settings.model_fields
    given = {name: one for name, one in locals().items() if name in names and one is not None}
    try:
        settings = Settings(**given)
    except ValidationError as error:
        raise console.failure(f"{first_problem(error, 'settings')}; see --settings") from None
    configure(settings.log_level, settings.log_format)
    try:  # before the data is loaded, so that clients can tell that a server is starting
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        listener = socket.create_server((settings.host, settings.port), family=family)
    except OSError as error:
        address = f"{settings.host} port {settings.port}"
        reason = str(error.strerror).partition(" (while")[0]
        message = f"can't listen on {address}: {reason}; choose another with --port or --host"
        raise console.failure(message) from None
    with console.one_line_errors():
        bank = QuestionBank.load(settings.data_dir, follow_links=settings.follow_links)
    run_server(settings, listener, bank)


# -- recorded runs

_console = console.table_console()

MAX_LISTED = 12  # lines of differences whose cause is known

DataOption = Annotated[
    Path | None,
    typer.Option("--data", help="The run's data directory.", show_default="the run's own"),
]


def verify(
    run: Annotated[Path, typer.Argument(help="A run's folder, such as runs/latest.")],
    data: DataOption = None,
) -> None:
    """Replay every episode of a run and compare its files, byte by byte.

    Needs the data that the run was played on, and no GPU. Exit code: 0 if everything agrees, 1 if a
    line differs (each is listed) or the run can't be read. Of an evaluation's folder, compares the
    episodes, and not evaluation.json.
    """
    from env_server.audit.verify import verify_run

    with console.one_line_errors(), console.progress_bar("replaying") as bar:
        audit = asyncio.run(verify_run(run, data_dir=data, progress=bar))
    table = _table(f"Replayed episodes of {run}", "episodes", "correct", "observations", "rewards")
    for (phase, mode), counts in audit.phases.items():
        table.add_row(*console.literal(phase, mode, *map(_cell, counts.values())))
    _console.print(table)
    lines = [*(f"note: {note}" for note in audit.notes), *map(str, audit.problems)]
    if audit.cause and audit.problems:
        lines = [f"{audit.cause}, so replies differ: verify it with the code that made it", *lines]
        if len(lines) > MAX_LISTED:
            lines[MAX_LISTED:] = [f"... and {len(lines) - MAX_LISTED:,} more"]
    elif audit.cause:
        lines.append(f"note: {audit.cause}, which changed no reply of it")
    verdict = f"FAILED: {len(audit.problems):,} differences" if audit.problems else "passed"
    lines += [
        f"judged by {audit.judged_by}",
        "not checked, as files can't show it: that the named model wrote the texts, with which "
        "weights, and what it cost",
        f"{verdict}: {audit.episodes:,} episodes, {audit.metrics_rows:,} rows of metrics, "
        f"{audit.files:,} files in {audit.wall_s:.1f} s",
    ]
    for line in lines:
        console.print_line(_console, line)
    if audit.problems:
        raise typer.Exit(1)


def rescore(
    run: Annotated[Path, typer.Argument(help="A run's folder.")],
    rewards: Annotated[
        str, typer.Option(help="Reward version to score by; 'sparse' only pays for right answers.")
    ] = REWARD_VERSION,
    standard: Annotated[
        str | None,
        typer.Option(
            help="Standard by which answers are judged: strict, spider or bird.",
            show_default="the run's own",
        ),
    ] = None,
    data: DataOption = None,
) -> None:
    """Score recorded episodes by another reward version or standard, and list what changes.

    Exit code: 0 if all episodes were scored, 1 if a file or an episode can't be read.
    """
    from env_server.audit.rescore import rescore as score_again
    from env_server.audit.rescore import tally

    with console.one_line_errors(), console.progress_bar("scoring") as bar:
        rescored = asyncio.run(
            score_again(run, data_dir=data, rewards=rewards, standard=standard, progress=bar)
        )
    columns = ("episodes", "correct", "gained", "lost", "mean_reward", "rewards_changed")
    table = _table(f"{run} by rewards {rewards}, standard {rescored.standard}", *columns)
    for phase_and_mode, scores in rescored.scores.items():
        found = tally(scores)
        table.add_row(*console.literal(*phase_and_mode, *(_cell(found[name]) for name in columns)))
    _console.print(table)
    for change in rescored.flipped:
        verdict = f"{'right' if change.is_correct else 'wrong'} by {rescored.standard}"
        action = f"{change.last_action[:120]!r} is {verdict}"
        console.print_line(_console, f"line {change.line}: {change.question_id}: {action}")
    if rescored.skipped:
        console.print_line(_console, f"note: {rescored.skipped:,} episodes lost to infrastructure")
    total = sum(map(len, rescored.scores.values()))
    console.print_line(
        _console, f"scored: {total:,} episodes, {len(rescored.flipped):,} verdicts changed"
    )


def _table(title: str, *headings: str) -> Table:
    columns = console.right_aligned(*(heading.replace("_", " ") for heading in headings))
    return Table("phase", "mode", *columns, title=console.literal(title)[0], title_justify="left")


def _cell(value: float | list[float]) -> str:
    """Format a number, or a pair of them: before and after."""
    if isinstance(value, list):
        return " -> ".join(map(_cell, value))
    return f"{value:.4f}" if isinstance(value, float) else f"{value:,}"


command = typer.Typer(
    add_completion=False, rich_markup_mode="markdown", pretty_exceptions_enable=False
)
command.callback(invoke_without_command=True)(serve)
command.command()(verify)
command.command()(rescore)
