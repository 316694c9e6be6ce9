"""Plays one question after another, in attempts, on an environment server that hosts them."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from shared.actions import ActionType
from shared.console import errors, print_line
from shared.errors import DatabaseLoadError, DataError, SQLEnvError
from shared.models import EXPLANATIONS, Explanation, Outcome, SQLObservation, StepResult
from shared.sql_parser import is_constant
from trainer.config.settings import GRPOConfig
from trainer.errors import PlayError
from trainer.play.agent import Agent
from trainer.play.database import Database, host
from trainer.play.display import SILENT, Screen
from trainer.play.names import unknown_names
from trainer.play.played import PlayedAttempt, PlayedQuestion, PlayStep
from trainer.rollout.dataset import prompt_of
from trainer.rollout.episode import Episode
from trainer.rollout.loop import EpisodeClient, open_client, play_episodes
from trainer.rollout.parsing import ParsedAction
from trainer.rollout.prompts import NOTE
from trainer.rollout.vote import attempt_of
from trainer.run.progress import Bar, PlayProgress
from trainer.runtime.server import SupervisedServer

WRITTEN = "the result is written in the statement, not read from a table"
LACKS = " has no "  # of a reason for an empty result: a value that may be spelled otherwise


def play_questions(
    database: Database,
    questions: list[str],
    agent: Agent,
    screen: Screen,
    samples: int = 1,
    agree: int = 1,
) -> Iterator[PlayedQuestion]:
    questions = [text.strip().encode(errors="replace").decode() for text in questions]
    with hosted(database, questions, agent.config) as (path, question_ids, client):
        for number, (question_id, text) in enumerate(zip(question_ids, questions, strict=True), 1):
            attempts = [PlayedAttempt() for _ in range(samples)]
            played = PlayedQuestion(text, unknown_names(path, text), attempts, agree)
            title = f"question {number} of {len(questions)}" if len(questions) > 1 else "question"
            with screen.playing(title, samples) as shown:
                ask(agent, client, question_id, played, screen, database.notes.hint(text), shown)
            screen.end(played)
            yield played
    if database.log is None and database.changed():
        print_line(
            errors,
            f"note: {database.given} was written to meanwhile: the agent may have seen a mix of "
            "two states. Ask again, or use a copy made with: "
            f"sqlite3 {database.quoted} '.backup copy.sqlite'",
        )


@contextmanager
def hosted(
    database: Database, questions: list[str], config: GRPOConfig
) -> Iterator[tuple[Path, list[str], EpisodeClient]]:
    with TemporaryDirectory(prefix="sqlenv-play-") as scratch:
        data_dir, log = Path(scratch) / "data", Path(scratch) / "server.log"
        path, question_ids = host(database, questions, data_dir)
        with (
            # the database is a link to the user's own
            SupervisedServer(data_dir, log, settings={"follow_links": True}) as server,
            open_client(replace(config, server_urls=[server.url])) as client,
        ):
            try:
                yield path, question_ids, client
            except DataError as error:
                raise DatabaseLoadError(
                    f"{database.given} is damaged. Check it with: sqlite3 {database.quoted} "
                    "'PRAGMA integrity_check'; save what is left with: sqlite3 "
                    f"{database.quoted} .recover"
                ) from error


def run_query(database: Database, sql: str, config: GRPOConfig) -> SQLObservation:
    """Run a user's own query as an agent's, in the same sandbox and limits, with remarks."""
    with hosted(database, [sql], config) as (_, [question_id], client):
        return _run(client, question_id, sql, EXPLANATIONS)


def ask(
    agent: Agent,
    client: EpisodeClient,
    question_id: str,
    played: PlayedQuestion,
    screen: Screen,
    hint: str = "",
    shown: Bar | None = None,
) -> None:
    start, attempts = time.perf_counter(), played.attempts
    recorder = _Recorder(played, screen, shown or Bar(SILENT, "", None), agent.config.step_budget)
    prompt = prompt_of(question_id, played.question, agent.config)
    if hint:
        prompt[0]["content"] += f"\n\n{hint}"
    rows = play_episodes(
        [prompt] * len(attempts),
        None,
        config=agent.config,
        client=client,
        check_lost=False,
        observer=recorder,
        **agent.player(attempts, recorder.on_tokens),
    )
    for attempt, row in zip(attempts, rows, strict=True):
        attempt.outcome, attempt.lost = row.outcome, row.lost
        attempt.context_overflow = row.context_overflow
        attempt.context_truncations = row.context_truncations
        found = attempt_of(row, played.question)
        attempt.key, attempt.logprob, attempt.named = found.key, found.logprob, found.named
        if attempt.outcome == Outcome.ANSWERED:
            attempt.said = attempt.steps[-1].argument
    _doubt(client, question_id, attempts)
    played.wall_s = time.perf_counter() - start


def _doubt(client: EpisodeClient, question_id: str, attempts: Sequence[PlayedAttempt]) -> None:
    """Record why the queries that answers were taken from may mislead: they run again with the
    server's remarks and reasons for empty results, which the agent may have played without."""
    for query in dict.fromkeys(query.argument for one in attempts for query in one.sources):
        remarks = _notes(client, question_id, query, "remarks")
        empty = _notes(client, question_id, query, "empty")
        remarks += [one for one in empty if LACKS in one]
        remarks += [WRITTEN] if is_constant(query) else []
        for attempt in attempts:
            if remarks and query in (one.argument for one in attempt.sources):
                attempt.doubts[query] = remarks


def _notes(client: EpisodeClient, question_id: str, query: str, kind: Explanation) -> list[str]:
    lines = _run(client, question_id, query, [kind]).result.split("\n")
    return [line[len(NOTE) : -1] for line in lines if line.startswith(NOTE)]


def _run(
    client: EpisodeClient, question_id: str, query: str, explain: Sequence[Explanation]
) -> SQLObservation:
    episode = client.reset(question_id=question_id, explain=list(explain))
    reply = client.step(episode.episode_id, f"{ActionType.QUERY}: {query}")
    client.close_episode(episode.episode_id)
    return reply.observation


class _Recorder(PlayProgress):
    """Records the steps of a question's attempts, and shows how far they are. Raises the error that
    loses an attempt if the others would meet it too, or if it loses the last one."""

    def __init__(
        self, played: PlayedQuestion, screen: Screen, shown: Bar, step_budget: int
    ) -> None:
        count = len(played.attempts)
        super().__init__(shown, step_budget, total=count, correct=None)
        self._played, self._screen = played, screen
        # by attempt: time of the last observation; tokens before it
        self._shown_s, self._tokens = [0.0] * count, [0] * count
        self._left = count

    def on_start(self, episode: Episode) -> None:
        super().on_start(episode)
        self._shown_s[episode.row.repeat] = time.perf_counter()
        if self._played.tables:
            return
        self._played.tables = episode.observations[0].tables
        if not self._played.tables:
            raise PlayError("the database holds no table or view to explore")
        self._screen.question(self._played)

    def on_step(self, episode: Episode, parsed: ParsedAction, reply: StepResult) -> None:
        place, now = episode.row.repeat, time.perf_counter()
        step = PlayStep(
            step=reply.observation.step_count,
            text=episode.row.texts[-1],
            action=parsed.action.action_type,
            argument=parsed.action.argument,
            parse_fallback=parsed.fallback,
            result=reply.observation.result,
            error=reply.observation.error,
            # 0 if the server does not count
            tokens=episode.row.sampled_tokens - self._tokens[place] or None,
            wall_s=round(now - self._shown_s[place], 4),
        )
        self._played.attempts[place].steps.append(step)
        self._screen.step(step)
        self._shown_s[place], self._tokens[place] = time.perf_counter(), episode.row.sampled_tokens

    def on_lost(self, episode: Episode, error: SQLEnvError) -> None:
        self._left -= 1
        if isinstance(error, DataError) or not self._left:
            raise error
