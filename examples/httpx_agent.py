"""Play an episode with plain httpx: python examples/httpx_agent.py [URL]

Needs a running server, and 'pip install httpx' here, but none of this project's code: any HTTP
client in any language does the same.
"""

import os
import sys
import time
from typing import Any

import httpx


def post(http: httpx.Client, path: str, **fields: Any) -> dict[str, Any]:
    """Send a request, again while its error is retryable; `step` makes that safe."""
    while True:
        reply = http.post(path, json=fields)
        body = dict(reply.json())
        error = body.get("error")
        if error is None:
            return body
        if not error["retryable"]:
            raise RuntimeError(f"{error['code']}: {error['message']}")
        time.sleep(error.get("retry_after_s", 1))


def play(url: str = "http://127.0.0.1:8000") -> None:
    key = os.environ.get("SQLENV_API_KEY")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    # for a server elsewhere, behind a proxy, leave out trust_env=False
    with httpx.Client(base_url=url, headers=headers, timeout=60, trust_env=False) as http:
        reply = post(http, "/reset", difficulty="easy", seed=7)
        episode, seen = reply["episode_id"], reply["observation"]
        print("question:", seen["question"])
        table = seen["schema_info"].removeprefix("Tables: ").split(", ")[0]
        for action in (f"DESCRIBE: {table}", f"QUERY: SELECT count(*) FROM {table}", "ANSWER: 42"):
            step = reply["observation"]["step_count"]
            reply = post(http, "/step", episode_id=episode, action=action, step=step)
            seen = reply["observation"]
            print(f"> {action}", seen["error"] or seen["result"], sep="\n")
        print("outcome:", reply["info"]["outcome"], "reward:", reply["reward"])


if __name__ == "__main__":
    try:
        play(*sys.argv[1:])
    except (httpx.HTTPError, RuntimeError) as error:
        remedy = "start a server with 'python -m env_server', and set SQLENV_API_KEY if it has keys"
        sys.exit(f"error: {error}; {remedy}")
