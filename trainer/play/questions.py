"""Plays one question after another on an environment server that hosts them."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from shared.client import SQLEnvClient
from shared.console import print_line
from shared.dataset import data_digest
from shared.errors import DatabaseLoadError, DigestMismatch, SQLEnvError
from trainer.play.agent import Agent
from trainer.play.database import Database, HostedDatabase, check_question, examine, host
from trainer.play.session import Display, ask, check_fits
from trainer.rollout.loop import EpisodeClient, open_client
from trainer.rollout.servers import SERVER_READY_S
from trainer.runtime.server import SupervisedServer


@contextmanager
def hosted(
    database: Database,
    questions: list[str],
    agent: Agent,
    servers: Sequence[str],
    keep: Path | None,
) -> Iterator[tuple[Agent, EpisodeClient, HostedDatabase]]:
    """Host the questions on the database; yield the agent configured for it, and an open client.

    Without `servers` one is started, and removed with its files when the block ends. Raise
    `DigestMismatch` if `servers` don't host exactly these questions on this database.
    """
    with TemporaryDirectory(prefix="sqlenv-play-") as scratch, ExitStack() as stack:
        made = host(database, questions, keep or Path(scratch) / "data")
        urls = list(servers)
        if not urls:
            server = SupervisedServer(made.data_dir, Path(scratch) / "server.log")
            urls.append(stack.enter_context(server).url)
        with SQLEnvClient(urls).sync() as probe:
            probe.wait_ready(SERVER_READY_S)
            metadata = probe.metadata()
        if servers and metadata.data_digest != data_digest(made.data_dir):
            data = str(keep) if keep else "the directory that --keep DIR makes"
            raise DigestMismatch(
                f"the server at {', '.join(servers)} does not host this question on this database: "
                f"start it with --data and {data}"
            )
        agent = replace(agent, config=replace(agent.config, server_urls=urls))
        yield agent, stack.enter_context(open_client(agent.config, metadata.digest)), made


def play_questions(
    database: Database,
    questions: list[str],
    agent: Agent,
    display: Display,
    servers: Sequence[str] = (),
    keep: Path | None = None,
) -> bool:
    """Play the questions in order. Return whether each got an answer."""
    for text in questions:
        check_fits(agent, text)
    answered = True
    with ExitStack() as stack:
        with display.busy("starting the environment server"):
            agent, client, made = stack.enter_context(
                hosted(database, questions, agent, servers, keep)
            )
        display.start(database, made.how, agent)
        for question_id, text in zip(made.question_ids, questions, strict=True):
            with display.busy("the agent is playing"):
                try:
                    played = ask(agent, client, question_id, text, display)
                except DatabaseLoadError as error:  # name the user's file, not the hosted one
                    raise DatabaseLoadError(f"{database.given}: {error.message}") from error
            display.end(played)
            answered = answered and played.answer is not None
        if database.log is None and database.changed():
            display.note(
                f"{database.given} was written to meanwhile: the agent may have seen a mix of two "
                "states. Ask again, or use a copy made with: "
                f"sqlite3 {database.quoted} '.backup copy.sqlite'"
            )
    return answered


def ask_interactively(path: Path, agent: Agent, display: Display, errors: Console) -> None:
    """Prompt for questions until the user leaves. An error ends only its own question; each
    question is played on the current state of the file."""
    print_line(errors, "One question per line; Ctrl-D or 'quit' to leave.", "dim")
    while True:
        try:
            text = errors.input("question> ").strip()
        except EOFError:
            errors.print()
            return
        if text in ("quit", "exit"):
            return
        if not text:
            continue
        try:
            play_questions(examine(path), [check_question(text)], agent, display)
        except SQLEnvError as error:
            print_line(errors, f"error: {error}", "red")
