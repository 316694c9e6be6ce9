"""Play an episode with MCP's own client: python examples/mcp_agent.py [URL]

Needs a running server with the extra 'mcp', and 'pip install mcp' here.
"""

import asyncio
import os
import sys
from typing import Any

from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client


async def call(session: ClientSession, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await session.call_tool(tool, arguments)
    fields = result.model_dump(by_alias=True)
    if fields["isError"]:
        raise RuntimeError(fields["content"][0]["text"])
    return fields["structuredContent"]


def cause(error: BaseException) -> BaseException:
    """Return the first exception in a group of groups."""
    return cause(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


async def play(url: str = "http://127.0.0.1:8000") -> None:
    key = os.environ.get("SQLENV_API_KEY")
    http = create_mcp_http_client({"Authorization": f"Bearer {key}"} if key else {})
    async with (
        http,
        streamable_http_client(f"{url}/mcp", http_client=http) as streams,
        ClientSession(*streams[:2]) as session,
    ):
        await session.initialize()
        print("tools:", ", ".join(tool.name for tool in (await session.list_tools()).tools))

        episode = await call(session, "start_episode", difficulty="easy", seed=7)
        print("question:", episode["question"])
        mine, table = episode["episode_id"], episode["tables"][0]
        print((await call(session, "describe", episode_id=mine, table=table))["result"])
        count = f'SELECT count(*) FROM "{table}"'
        seen = await call(session, "query", episode_id=mine, sql=count)
        print(seen["result"], "- reward so far:", seen["reward"])

        last = await call(session, "answer", episode_id=mine, answer="42")
        print("outcome:", last["outcome"], "reward:", last["reward"])


if __name__ == "__main__":
    try:
        asyncio.run(play(*sys.argv[1:]))
    except BaseExceptionGroup as group:  # of MCP's tasks
        remedy = "start a server with 'python -m env_server', and set SQLENV_API_KEY if it has keys"
        sys.exit(f"error: {cause(group)!r}; {remedy}")
