"""`python -m env_server`: the environment server as a process; `conformance` checks a running one."""

import gc
import logging
import socket
import time
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer
import uvicorn
from fastapi import FastAPI
from pydantic import ValidationError
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from env_server.app import create_app
from env_server.audit import command as audit_command
from env_server.conformance.command import conformance
from env_server.http.responses import http_error_bytes
from env_server.logs import configure
from env_server.questions import QuestionBank
from env_server.service import Service
from env_server.settings import ENV_PREFIX, Settings, settings_table
from shared.errors import DataError

log = logging.getLogger("env_server")
# longer than clients keep an idle connection, so that none is closed under a request
KEEP_ALIVE_S = 75


class Protocol(HttpToolsProtocol):
    """Uvicorn's; but what is not HTTP, and so never reaches the application, gets the one error
    shape too."""

    def send_400_response(self, msg: str) -> None:
        body = http_error_bytes(400, msg)
        head = (
            f"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
            "connection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()


class Server(uvicorn.Server):
    """Uvicorn that drains. On a signal `/ready` fails at once, and then, one after the other,

    1. for `drain_s` held episodes go on and none starts, so that balancers look elsewhere before anything is refused;
    2. the requests in flight finish, for `shutdown_grace_s` at most, and every other for an episode gets 503;
    3. the port closes and the server exits with 0.

    A second signal ends the first stage, a third the second.
    """

    def __init__(self, config: uvicorn.Config, app: FastAPI, url: str) -> None:
        super().__init__(config)
        self.app, self.url = app, url
        self.refuse_at: float | None = None  # monotonic seconds: the end of the first stage
        self.close_at: float | None = None  # of the second

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        service: Service = self.app.state.service
        if service.settings.log_format == "json":
            # past the log level: whoever started the process waits for this line
            line = announcement(self.url, service)
            log.handle(log.makeRecord(log.name, logging.INFO, __file__, 0, line, (), None))
        else:
            typer.echo(announcement(self.url, service))

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        service: Service | None = self.app.state.service
        if service is None or self.close_at is not None:
            self.force_exit = self.should_exit
            self.should_exit = True
        elif self.refuse_at is None and service.settings.drain_s:
            self.refuse_at = time.monotonic() + service.settings.drain_s
            service.drain()
        else:
            self.refuse(service)

    def refuse(self, service: Service) -> None:
        """Begin the second stage; where nothing is in flight it is over."""
        service.refuse()
        self.close_at = time.monotonic() + service.settings.shutdown_grace_s
        self.close_when_idle(service)

    def close_when_idle(self, service: Service) -> None:
        assert self.close_at is not None
        left_s = self.close_at - time.monotonic()
        if service.idle or left_s <= 0:
            # for replies that are still being sent
            self.config.timeout_graceful_shutdown = max(1, round(left_s))
            self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        service: Service | None = self.app.state.service
        if service is not None and self.close_at is not None:
            self.close_when_idle(service)
        elif (
            service is not None
            and self.refuse_at is not None
            and time.monotonic() >= self.refuse_at
        ):
            self.refuse(service)
        return await super().on_tick(counter)


def announcement(url: str, service: Service) -> str:
    metadata = service.metadata
    return (
        f"SQLEnv serves {url} data={service.settings.data_dir} databases={metadata.databases} "
        f"questions={sum(metadata.questions.values())} digest={metadata.digest[:12]}"
    )


def bind(host: str, port: int) -> socket.socket:
    """A listening socket, or `OSError`."""
    family, kind, _, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError:
        listener.close()
        raise
    listener.set_inheritable(False)
    return listener


def serve(settings: Settings, listener: socket.socket, bank: QuestionBank) -> None:
    """Serve until SIGTERM or SIGINT."""
    app = create_app(settings, bank)
    host, port = listener.getsockname()[:2]
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http=Protocol,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=settings.shutdown_grace_s,
    )
    # Held episodes are many objects that live long and form no cycles: with 10,000 of them the
    # collector's default pace cost 35 of 100 us a step.
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    Server(config, app, url).run(sockets=[listener])


def fail(message: str) -> NoReturn:
    typer.echo(f"error: {message}", err=True)
    raise typer.Exit(1)


def option(name: str, *flags: str) -> Any:
    """A command line option with the setting's own description."""
    field = Settings.model_fields[name]
    return typer.Option(
        *flags, help=f"{field.description} [{ENV_PREFIX}{name.upper()}, default {field.default}]"
    )


def show_settings(wanted: bool) -> None:
    if wanted:
        typer.echo(settings_table())
        raise typer.Exit


def main(
    context: typer.Context,
    host: Annotated[str | None, option("host", "--host")] = None,
    port: Annotated[int | None, option("port", "--port")] = None,
    data_dir: Annotated[Path | None, option("data_dir", "--data")] = None,
    sql_workers: Annotated[int | None, option("sql_workers", "--workers")] = None,
    capacity: Annotated[int | None, option("capacity", "--capacity")] = None,
    lease_s: Annotated[float | None, option("lease_s", "--lease")] = None,
    step_budget: Annotated[int | None, option("step_budget", "--step-budget")] = None,
    log_level: Annotated[str | None, option("log_level", "--log-level")] = None,
    _: Annotated[
        bool,
        typer.Option(
            "--settings",
            help="Print every setting and exit.",
            callback=show_settings,
            is_eager=True,
        ),
    ] = False,
) -> None:
    """Serve SQL episodes over HTTP: POST /reset, POST /step; /docs describes the rest.

    Every setting can be given in the environment too (SQLENV_...); --settings lists them all.
    SIGTERM or Ctrl-C ends the server once the requests in flight are answered. With a command it
    serves nothing.
    """
    if context.invoked_subcommand is not None:
        return
    given = {
        name: value
        for name, value in locals().items()
        if name in Settings.model_fields and value is not None
    }
    try:
        settings = Settings(**given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        # none: what is wrong is how two settings go together
        name = str(first["loc"][0]) if first["loc"] else ""
        secret = not name or name.endswith("_key")
        shown = "" if secret else f", not {first['input']!r}"
        fail(
            f"setting {name}: {first['msg']}{shown}; see --settings".replace(
                "setting : Value error, ", ""
            )
        )
    configure(settings.log_level, settings.log_format)
    try:
        bank = QuestionBank.load(settings.data_dir)
    except DataError as error:
        fail(error.message)
    try:
        listener = bind(settings.host, settings.port)
    except OSError as error:
        where = f"{settings.host} port {settings.port}"
        fail(f"can't listen on {where}: {error.strerror}; choose another with --port or --host")
    serve(settings, listener, bank)


command = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
command.callback(invoke_without_command=True)(main)
command.command()(conformance)
audit_command.register(command)

if __name__ == "__main__":
    command(prog_name="python -m env_server")
