"""Questions one after the other: the environment server that hosts them, the agent on it, and what
the user sees."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from shared.client import SQLEnvClient
from shared.dataset import data_digest
from shared.errors import DatabaseLoadError, DigestMismatch, SQLEnvError
from trainer.play.agent import Agent
from trainer.play.database import Database, Hosted, check_question, examine, host
from trainer.play.session import ask, check_fits
from trainer.play.show import Display
from trainer.rollout.loop import EpisodeClient, open_client
from trainer.runtime.server import SupervisedServer

SERVER_READY_S = 30.0  # for a server that somebody else runs
PROMPT = "question> "


@contextmanager
def hosted(
    database: Database,
    questions: list[str],
    agent: Agent,
    servers: Sequence[str],
    keep: Path | None,
) -> Iterator[tuple[Agent, EpisodeClient, Hosted]]:
    """Servers that host the questions on the database, an open client of theirs and the agent that
    plays on them.

    Without `servers` one is started, and is gone with its files when the block ends.
    `DigestMismatch` names servers that don't host exactly these questions on this database.
    """
    with TemporaryDirectory(prefix="sqlenv-play-") as scratch, ExitStack() as stack:
        made = host(database, questions, keep or Path(scratch) / "data")
        urls = list(servers)
        if not urls:
            urls.append(
                stack.enter_context(
                    SupervisedServer(made.data_dir, Path(scratch) / "server.log")
                ).url
            )
        with SQLEnvClient(urls).sync() as probe:
            probe.wait_ready(SERVER_READY_S)
            metadata = probe.metadata()
        if servers and metadata.data_digest != data_digest(made.data_dir):
            where = (
                f"it with --data {keep}" if keep else "it on the directory that --keep DIR leaves"
            )
            raise DigestMismatch(
                f"the server at {', '.join(servers)} does not host this question on this database: start {where}"
            )
        there = replace(agent, config=replace(agent.config, server_urls=urls))
        yield there, stack.enter_context(open_client(there.config, metadata.digest)), made


def play_questions(
    database: Database,
    questions: list[str],
    agent: Agent,
    display: Display,
    servers: Sequence[str] = (),
    keep: Path | None = None,
) -> bool:
    """Play them one after the other. Whether each got an answer."""
    questions = [check_question(text) for text in questions]
    for text in questions:
        check_fits(agent, text)
    answered = True
    with ExitStack() as stack:
        with display.busy("the environment server starts"):
            there, client, made = stack.enter_context(
                hosted(database, questions, agent, servers, keep)
            )
        display.begin(database, made.how, agent)
        for question_id, text in zip(made.question_ids, questions, strict=True):
            with display.busy("the agent plays"), _about(database):
                played = ask(
                    there,
                    client,
                    question_id,
                    text,
                    lambda first, text=text: display.question(text, first),  # type: ignore[misc]
                    display.step,
                )
            display.end(played)
            answered = answered and played.answer is not None
        if database.log is None and database.changed():
            display.note(
                f"{database.given} was written to meanwhile: what the agent saw may mix two states of it. Ask again, "
                f"or name a copy made with: sqlite3 {database.given} '.backup copy.sqlite'"
            )
    return answered


@contextmanager
def _about(database: Database) -> Iterator[None]:
    """What is wrong with the database is said of the user's own file."""
    try:
        yield
    except DatabaseLoadError as error:
        raise DatabaseLoadError(f"{database.given}: {error.message}") from error


def converse(path: Path, agent: Agent, display: Display, errors: Console) -> None:
    """Ask for questions until the user leaves; an error ends its question alone. Each is played on
    the file as it is by then."""
    errors.print(
        "One question a line; an empty line, 'exit' or Ctrl-D leaves.", style="dim", highlight=False
    )
    while True:
        try:
            text = errors.input(PROMPT).strip()
        except EOFError:
            errors.print()
            return
        if text in ("", "exit", "quit"):
            return
        try:
            play_questions(examine(path), [text], agent, display)
        except SQLEnvError as error:
            errors.print(
                f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True
            )
