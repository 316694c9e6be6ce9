"""Plays one question after another on an environment server that hosts them.

A question is an episode of the training loop's `play_episodes`, recorded step by step.
"""

import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console

from shared.console import print_line
from shared.errors import DatabaseLoadError, DataError, SQLEnvError
from shared.models import Outcome, StepResult
from trainer.errors import PlayError
from trainer.play.agent import Agent
from trainer.play.database import Database, check_question, examine, host
from trainer.play.display import Display
from trainer.play.played import PlayedQuestion, PlayStep
from trainer.play.retry import RetryingGenerator, RetryingPolicy
from trainer.play.words import unknown_words
from trainer.rollout.dataset import prompt_of
from trainer.rollout.episode import EpisodeObserver
from trainer.rollout.generators.base import EpisodeView
from trainer.rollout.loop import EpisodeClient, open_client, play_episodes
from trainer.rollout.parsing import ParsedAction
from trainer.runtime.server import SupervisedServer


def play_questions(
    database: Database, questions: list[str], agent: Agent, display: Display
) -> bool:
    """Play the questions in order. Return whether each got a confirmed answer."""
    answered = True
    with TemporaryDirectory(prefix="sqlenv-play-") as scratch:
        made = host(database, questions, Path(scratch) / "data")
        with (
            SupervisedServer(made.data_dir, Path(scratch) / "server.log") as server,
            open_client(replace(agent.config, server_urls=[server.url])) as client,
        ):
            display.start(database, made.how, agent)
            for question_id, text in zip(made.question_ids, questions, strict=True):
                played = PlayedQuestion(text, unknown_words(made.path, text))
                try:
                    ask(agent, client, question_id, played, display)
                except DataError as error:  # name the user's file, not the hosted one
                    raise _explained(database, error) from error
                display.end(played)
                answered = answered and played.answer is not None
    if database.log is None and database.changed():
        display.note(
            f"{database.given} was written to meanwhile: the agent may have seen a mix of two "
            "states. Ask again, or use a copy made with: "
            f"sqlite3 {database.quoted} '.backup copy.sqlite'"
        )
    return answered


def _explained(database: Database, error: DataError) -> DatabaseLoadError:
    """Return the server's error about its data with a remedy for the user's own database."""
    reason = error.message.partition(" fails for question ")[2].partition(": ")[2]
    reason = reason.removesuffix("; build or import the data again") or error.message
    return DatabaseLoadError(
        f"{database.given}: {reason}. Check it with: sqlite3 {database.quoted} 'PRAGMA "
        f"integrity_check'; save what is left with: sqlite3 {database.quoted} .recover"
    )


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


def ask(
    agent: Agent, client: EpisodeClient, question_id: str, played: PlayedQuestion, display: Display
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
            observer=_Recorder(agent, played, display),
            **player,
        )
    played.wall_s = time.perf_counter() - start
    played.outcome = row.outcome
    played.context_overflow = row.context_overflow
    played.too_large = row.too_large
    played.context_truncations = row.context_truncations
    played.operational_reward = row.operational
    if played.outcome == Outcome.ANSWERED:
        played.said = played.steps[-1].argument


class _Recorder(EpisodeObserver):
    """Records the steps of one episode in `played`, and raises the error that loses it."""

    def __init__(self, agent: Agent, played: PlayedQuestion, display: Display) -> None:
        self._agent, self._played, self._display = agent, played, display
        self._shown_s, self._tokens = 0.0, 0  # time of the last observation; tokens before it

    def on_start(self, view: EpisodeView) -> None:
        self._played.tables = view.observations[0].tables
        if not self._played.tables:
            raise PlayError("the database holds no table or view to explore")
        self._display.question(self._played)
        self._shown_s = time.perf_counter()

    def on_step(
        self, view: EpisodeView, parsed: ParsedAction, reply: StepResult, env_s: float
    ) -> None:
        step = PlayStep(
            step=reply.observation.step_count,
            text=view.actions[-1],
            action=parsed.action.action_type,
            argument=parsed.action.argument,
            parse_fallback=parsed.fallback,
            result=reply.observation.result,
            error=reply.observation.error,
            steps_left=reply.observation.budget_remaining,
            error_code=reply.info.error_code,
            tokens=view.sampled_tokens - self._tokens or None,  # 0 if the server does not count
            agent_s=round(time.perf_counter() - self._shown_s - env_s, 4),
            env_s=round(env_s, 4),
        )
        self._played.steps.append(step)
        self._display.step(step)
        self._shown_s, self._tokens = time.perf_counter(), view.sampled_tokens

    def on_lost(self, view: EpisodeView, error: SQLEnvError) -> None:
        raise error
