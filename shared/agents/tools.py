"""`SQLEnvTools`, an episode whose actions are methods: tools for models that call functions.

    trainer = GRPOTrainer(..., environment_factory=SQLEnvToolsFactory("http://127.0.0.1:8000"))

TRL renders the methods' signatures and docstrings as the tools' schemas, and takes `get_reward` as
the reward. It plays one call after another; `python -m trainer train` plays all episodes at once.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from shared.actions import MAX_ARGUMENT_BYTES, ActionType, SQLAction, too_long
from shared.agents.texts import first_text, step_text
from shared.client.async_client import AsyncClient
from shared.client.sync import SyncSQLEnvClient
from shared.errors import SQLEnvError
from shared.models import Outcome

DRAWN_BY = (
    *("question_id", "split", "difficulty", "db_id", "seed"),
    *("step_budget", "answer_form", "explain"),
)


class SQLEnvToolsFactory:
    """Makes the `SQLEnvTools` of a server; those of one process share a client.

    It can be pickled, as TRL's asynchronous trainer requires. `options` are those of
    `SQLEnvClient.reset`.
    """

    def __init__(
        self, urls: str | Sequence[str], *, api_key: str | None = None, **options: Any
    ) -> None:
        self._client = SyncSQLEnvClient(AsyncClient(urls, api_key=api_key), opens_itself=True)
        self._options = options

    def __call__(self) -> "SQLEnvTools":
        return SQLEnvTools(self._client, **self._options)


class SQLEnvTools:
    """One episode at a time. The names of its public methods are those of the tools. `reward` is
    the sum so far, and `outcome` how the episode ended, None before."""

    def __init__(self, client: SyncSQLEnvClient, **options: Any) -> None:
        """`options` are those of `SQLEnvClient.reset`; a row of the data set has precedence."""
        self._client, self._options = client, options
        self._episode_id: str | None = None
        self.reward, self.lost = 0.0, False  # `reward` is the sum so far
        self.outcome: Outcome | None = None  # how the episode ended

    def reset(self, **row: Any) -> str:
        """Start an episode with a row's question_id, seed or filters; return its first text."""
        self._leave()
        self.reward, self.outcome, self.lost = 0.0, None, False
        chosen = {name: row[name] for name in DRAWN_BY if row.get(name) is not None}
        try:
            reply = self._client.reset(**(self._options | chosen))
        except SQLEnvError:
            self.lost = True
            raise
        self._episode_id = reply.episode_id
        return f"\n{first_text(reply.observation)}"

    def get_reward(self) -> float | None:
        """Return the episode's reward; None if the server failed, which TRL leaves out."""
        return None if self.lost else self.reward

    def describe(self, table: str) -> str:
        """Show a table's columns with their types and keys, and its number of rows.

        Args:
            table: Name of a table of the database.

        Returns:
            The columns, one per line.
        """
        return self._play(ActionType.DESCRIBE, table)

    def sample(self, table: str) -> str:
        """Show 5 rows of a table.

        Args:
            table: Name of a table of the database.

        Returns:
            The rows, one per line.
        """
        return self._play(ActionType.SAMPLE, table)

    def query(self, sql: str) -> str:
        """Run a SELECT statement and show up to 20 rows of its result.

        Args:
            sql: One SELECT statement in SQLite's dialect.

        Returns:
            The rows, one per line, or what is wrong with the statement.
        """
        return self._play(ActionType.QUERY, sql)

    def answer(self, answer: str) -> str:
        """Answer the question, which ends the episode.

        Args:
            answer: The value; several values separated by commas; or rows as JSON lists.

        Returns:
            That the episode is over.
        """
        return self._play(ActionType.ANSWER, answer)

    def _play(self, kind: ActionType, argument: Any) -> str:
        if self._episode_id is None:
            return "The episode is over."
        text = str(argument).strip()
        if not text or too_long(text):
            return f"Error: {kind.lower()} needs an argument of 1 to {MAX_ARGUMENT_BYTES:,} bytes"
        try:
            action = SQLAction(action_type=kind, argument=text)
            reply = self._client.step(self._episode_id, action)
        except SQLEnvError:
            self.lost, self._episode_id = True, None
            raise
        if reply.info.ledger is not None:  # with a step whose call was cancelled
            self.reward = reply.info.ledger.total
        elif reply.reward is not None:
            self.reward = reply.reward
        self.outcome = reply.info.outcome
        if reply.done:
            self._episode_id = None
        return step_text(reply.observation)

    def _leave(self) -> None:
        if self._episode_id is not None:
            with suppress(SQLEnvError):  # its lease ends anyway
                self._client.close_episode(self._episode_id)
        self._episode_id = None
