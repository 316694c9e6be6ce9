"""Plays one question after another on an environment server that hosts them.

A question is an episode of the training loop's `play_episodes`, recorded step by step.
"""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console

from shared.console import errors, print_line
from shared.errors import DatabaseLoadError, DataError, SQLEnvError
from shared.models import Outcome, StepResult
from trainer.errors import PlayError
from trainer.play.agent import Agent
from trainer.play.database import Database, host
from trainer.play.display import Screen
from trainer.play.names import unknown_names
from trainer.play.played import PlayedQuestion, PlayStep
from trainer.play.retry import RetryingGenerator, RetryingPolicy
from trainer.rollout.dataset import prompt_of
from trainer.rollout.episode import EpisodeObserver
from trainer.rollout.generators.base import EpisodeView
from trainer.rollout.loop import EpisodeClient, open_client, play_episodes
from trainer.rollout.parsing import ParsedAction
from trainer.runtime.server import SupervisedServer


def play_questions(
    database: Database, questions: list[str], agent: Agent, screen: Screen
) -> Iterator[PlayedQuestion]:
    """Play the questions in order, and yield each when it has ended."""
    questions = [text.strip().encode(errors="replace").decode() for text in questions]
    with TemporaryDirectory(prefix="sqlenv-play-") as scratch:
        data_dir, log = Path(scratch) / "data", Path(scratch) / "server.log"
        path, question_ids = host(database, questions, data_dir)
        with (
            # the database is a link to the user's own
            SupervisedServer(data_dir, log, settings={"follow_links": True}) as server,
            open_client(replace(agent.config, server_urls=[server.url])) as client,
        ):
            for question_id, text in zip(question_ids, questions, strict=True):
                played = PlayedQuestion(text, unknown_names(path, text))
                try:
                    ask(agent, client, question_id, played, screen)
                except DataError as error:
                    raise DatabaseLoadError(
                        f"{database.given} is damaged. Check it with: sqlite3 {database.quoted} "
                        "'PRAGMA integrity_check'; save what is left with: sqlite3 "
                        f"{database.quoted} .recover"
                    ) from error
                screen.end(played)
                yield played
    if database.log is None and database.changed():
        print_line(
            errors,
            f"note: {database.given} was written to meanwhile: the agent may have seen a mix of "
            "two states. Ask again, or use a copy made with: "
            f"sqlite3 {database.quoted} '.backup copy.sqlite'",
        )


def typed_questions(terminal: Console) -> Iterator[str]:
    """Prompt for questions, and yield them, until the user leaves."""
    print_line(terminal, "One question per line; Ctrl-D or 'quit' to leave.", "dim")
    while True:
        try:
            text = terminal.input("question> ").strip()
        except EOFError:
            terminal.print()
            return
        if text in ("quit", "exit"):
            return
        if text:
            yield text


def ask(
    agent: Agent, client: EpisodeClient, question_id: str, played: PlayedQuestion, screen: Screen
) -> None:
    """Play one question that the client's server hosts, and record it in `played`."""
    start = time.perf_counter()
    player: dict[str, Any] = {}
    if agent.codec is None:
        player["policy"] = RetryingPolicy(agent.player, agent.retry, played)
    else:
        player["generator"] = RetryingGenerator(agent.player, agent.retry, agent.codec, played)
    with agent.compute():
        [row] = play_episodes(
            [prompt_of(question_id, played.question, agent.config)],
            None,
            agent.tokenizer,
            agent.config,
            client=client,
            check_lost=False,
            observer=_Recorder(played, screen),
            **player,
        )
    played.wall_s = time.perf_counter() - start
    played.outcome = row.outcome
    played.context_overflow = row.context_overflow
    played.context_truncations = row.context_truncations
    if played.outcome == Outcome.ANSWERED:
        played.said = played.steps[-1].argument


class _Recorder(EpisodeObserver):
    """Records the steps of one episode in `played`, and raises the error that loses it."""

    def __init__(self, played: PlayedQuestion, screen: Screen) -> None:
        self._played, self._screen = played, screen
        self._shown_s, self._tokens = 0.0, 0  # time of the last observation; tokens before it

    def on_start(self, view: EpisodeView) -> None:
        self._played.tables = view.observations[0].tables
        if not self._played.tables:
            raise PlayError("the database holds no table or view to explore")
        self._screen.question(self._played)
        self._shown_s = time.perf_counter()

    def on_step(self, view: EpisodeView, parsed: ParsedAction, reply: StepResult) -> None:
        step = PlayStep(
            step=reply.observation.step_count,
            text=view.actions[-1],
            action=parsed.action.action_type,
            argument=parsed.action.argument,
            parse_fallback=parsed.fallback,
            result=reply.observation.result,
            error=reply.observation.error,
            tokens=view.sampled_tokens - self._tokens or None,  # 0 if the server does not count
            wall_s=round(time.perf_counter() - self._shown_s, 4),
        )
        self._played.steps.append(step)
        self._screen.step(step)
        self._shown_s, self._tokens = time.perf_counter(), view.sampled_tokens

    def on_lost(self, view: EpisodeView, error: SQLEnvError) -> None:
        raise error
