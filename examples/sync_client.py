"""Play an episode with this project's client, without await: python examples/sync_client.py [URL]

Needs a running server. The client retries, and rebuilds an episode that its server has lost.
"""

import sys

from sqlenv import SQLEnvClient, one_line_errors


def play(url: str = "http://127.0.0.1:8000") -> None:
    # with keys: SQLEnvClient(url, api_key=...), or the environment's SQLENV_API_KEY
    with SQLEnvClient(url).sync() as client:
        print("server:", client.metadata().name)
        reply = client.reset(difficulty="easy", seed=7)
        print("question:", reply.observation.question)
        table = reply.observation.tables[0]
        count = f'SELECT count(*) FROM "{table}"'
        for action in (f"DESCRIBE: {table}", f"QUERY: {count}", "ANSWER: 42"):
            step = client.step(reply.episode_id, action)
            print(f"> {action}", step.observation.error or step.observation.result or "", sep="\n")
            print("reward:", step.reward)
        print("outcome:", step.info.outcome)


if __name__ == "__main__":
    with one_line_errors():
        play(*sys.argv[1:])
