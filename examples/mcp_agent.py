"""Play an episode with MCP's own client: python examples/mcp_agent.py [URL]

Needs a running server with the extra 'mcp', and 'pip install mcp' here.
"""

import asyncio
import sys
from typing import Any

from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client


async def call(session: ClientSession, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await session.call_tool(tool, arguments)
    fields = result.model_dump(by_alias=True)
    if fields["isError"]:
        raise RuntimeError(fields["content"][0]["text"])
    return fields["structuredContent"]


async def play(url: str) -> None:
    # an agent's key goes into the headers of an HTTP client: see docs/operate.md
    async with (
        streamable_http_client(f"{url}/mcp") as streams,
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
    asyncio.run(play(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"))
