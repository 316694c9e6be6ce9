"""The tools of `POST /mcp`. Importing this needs the package mcp, 1.x or 2.x."""

from typing import Annotated, Any

from pydantic import Field
from starlette.requests import HTTPConnection

from env_server.http.requests import with_gateway_id
from env_server.http.responses import as_error, count_error
from env_server.http.work import in_time, service_of
from shared import models
from shared.actions import ACTIONS, MAX_ARGUMENT_BYTES, ActionType, SQLAction, too_long
from shared.errors import SQLEnvError, UnknownEpisode
from shared.models import Difficulty, ResetRequest, StepRequest, WireModel

try:
    from mcp.server.mcpserver import Context, MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
except ImportError:  # mcp 1.x
    from mcp.server.fastmcp import Context
    from mcp.server.fastmcp import FastMCP as MCPServer
    from mcp.server.fastmcp.exceptions import ToolError

INSTRUCTIONS = (
    "Answer a question about a read-only SQLite database. start_episode gives the question and the "
    "names of the tables. Look at tables with describe and sample, run SELECT statements with "
    "query, and end with answer. Each of these calls takes one of a limited number of steps."
)
Episode = Annotated[str, Field(description="The episode_id that start_episode returned.")]
Table = Annotated[str, Field(description="Name of a table of the database.")]


class Started(WireModel):
    """A new episode."""

    episode_id: str
    """Id that every other tool takes."""
    question: str
    """Question in plain language, which `answer` answers."""
    tables: list[str]
    """Names of the database's tables."""
    steps_left: int
    """Number of calls of describe, sample, query and answer that the episode has."""


class Seen(WireModel):
    """What a step showed."""

    result: str
    """Result as text; empty if the call failed."""
    error: str | None
    """What was wrong with the call; null if it worked."""
    steps_left: int
    """Calls left; the episode ends when there are none."""
    done: bool
    """Whether the episode is over."""
    outcome: models.Outcome | None
    """How the episode ended, such as correct or wrong; null until then."""
    reward: float | None
    """Reward of the whole episode; null until its end."""


async def start_episode(
    context: Context,
    difficulty: Annotated[
        Difficulty | None, Field(description="Draw a question of this difficulty.")
    ] = None,
    db_id: Annotated[
        str | None, Field(description="Draw a question about this database, as GET /databases.")
    ] = None,
    question_id: Annotated[
        str | None, Field(description="Ask this question, as GET /questions lists it.")
    ] = None,
    seed: Annotated[
        int | None, Field(description="Draw by this number: the same question again.")
    ] = None,
) -> Started:
    """Start an episode: returns a question about a database, and the names of its tables."""
    wanted = ResetRequest(
        difficulty=difficulty, db_id=db_id, question_id=question_id, seed=seed, rewards="end"
    )
    reply: models.ResetResult = await _call(context, "reset", wanted)
    return Started(
        episode_id=reply.episode_id,
        question=reply.observation.question,
        tables=reply.observation.tables,
        steps_left=reply.observation.budget_remaining,
    )


async def describe(context: Context, episode_id: Episode, table: Table) -> Seen:
    """Show a table's columns with their types, keys and values, and its number of rows.

    Of a wide table, "table 41" shows those from the 41st on, "table word" those with a word in
    their names."""
    return await _step(context, episode_id, ActionType.DESCRIBE, table)


async def sample(context: Context, episode_id: Episode, table: Table) -> Seen:
    """Show 5 rows of a table."""
    return await _step(context, episode_id, ActionType.SAMPLE, table)


async def query(
    context: Context,
    episode_id: Episode,
    sql: Annotated[str, Field(description="One SELECT statement in SQLite's dialect.")],
) -> Seen:
    """Run a SELECT statement and show up to 20 rows of its result."""
    return await _step(context, episode_id, ActionType.QUERY, sql)


async def answer(
    context: Context,
    episode_id: Episode,
    answer: Annotated[
        str, Field(description="The value, or values separated by commas, or rows as JSON lists.")
    ],
) -> Seen:
    """Answer the question. This ends the episode and shows whether the answer is right."""
    return await _step(context, episode_id, ActionType.ANSWER, answer)


def tools() -> Any:
    server = MCPServer("sqlenv", instructions=INSTRUCTIONS)
    for tool in (start_episode, describe, sample, query, answer):
        server.tool()(tool)
    return server


async def _step(context: Context, episode_id: str, kind: ActionType, argument: str) -> Seen:
    text = argument.strip()
    if not text or too_long(text):
        limit = f"{MAX_ARGUMENT_BYTES:,} bytes"
        raise ToolError(f"{kind.lower()} needs an argument of 1 to {limit}: {ACTIONS[kind]}")
    action = SQLAction(action_type=kind, argument=text)
    wanted = StepRequest(episode_id=episode_id, action=action)
    reply: models.StepResult = await _call(context, "step", wanted)
    seen = reply.observation
    return Seen(
        result=seen.result,
        error=seen.error,
        steps_left=seen.budget_remaining,
        done=reply.done,
        outcome=reply.info.outcome,
        reward=reply.reward if reply.done else None,
    )


async def _call(context: Context, method: str, wanted: ResetRequest | StepRequest) -> Any:
    """Return the pool's reply, or count its error and raise it as a tool's."""
    request: Any = context.request_context.request
    connection = HTTPConnection(request.scope)
    try:
        if isinstance(wanted, ResetRequest):
            wanted = with_gateway_id(wanted, connection)
        return await in_time(connection, getattr(service_of(connection).pool, method), wanted)
    except UnknownEpisode:
        problem: SQLEnvError = UnknownEpisode(
            "this episode is gone: it expired or was closed; call start_episode for a new one"
        )
    except Exception as error:
        problem = as_error(error)
    count_error(problem, connection.app.state.metrics)
    raise ToolError(problem.message)
