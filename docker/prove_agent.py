"""An agent outside Compose's networks: `python prove_agent.py URL STOP` plays until STOP exists.

It plays each question as often as there is time and prints how many episodes it finished, how many
it lost and how many differ from the first one of the same question. Exit code: 0 if none is lost
or differs. docker/prove.sh runs it in the servers' image.
"""

import asyncio
import json
import sys
from pathlib import Path
from uuid import uuid4

from shared.client import ClientLimits, SQLEnvClient
from shared.errors import SQLEnvError

AT_ONCE = 16
QUESTIONS = [
    str(row["question_id"])
    for row in json.loads(Path("data/questions/questions_eval.json").read_text())
][::12][:AT_ONCE]
ACTIONS = ("QUERY: SELECT name FROM sqlite_master", "QUERY: SELECT 1", "ANSWER: none")


async def play(client: SQLEnvClient, question: str) -> list[str]:
    """Play one episode and return what its driver sees at each step."""
    episode = str(uuid4())
    await client.reset(question_id=question, episode_id=episode)
    results = [await client.step(episode, action) for action in ACTIONS]
    return [f"{one.observation.model_dump_json()} {one.reward} {one.done}" for one in results]


async def main(url: str, stop: Path) -> int:
    first: dict[str, list[str]] = {}
    counts = {"episodes": 0, "lost": 0, "differ": 0}

    async def repeat(question: str) -> None:
        while not stop.exists():
            counts["episodes"] += 1
            try:
                seen = await play(client, question)
            except SQLEnvError as error:
                counts["lost"] += 1
                print(error, file=sys.stderr)
                continue
            counts["differ"] += seen != first.setdefault(question, seen)

    async with SQLEnvClient(url, ClientLimits(patience_s=300.0)) as client:
        await asyncio.gather(*(repeat(question) for question in QUESTIONS))
    print(json.dumps(counts))
    return int(counts["lost"] + counts["differ"] > 0 or counts["episodes"] == 0)


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1], Path(sys.argv[2]))))
