"""Draw a server's questions as NeMo Gym's tasks: python tasks.py URL NUMBER > tasks.jsonl

Task N has the question of seed N, with the four actions as tools.
"""

import json
import sys
from typing import Any

from sqlenv import ACTIONS, ActionType, SQLEnvClient, SQLEnvError, first_text

PROMPT = (
    "Answer the question about a SQLite database with the tools. Look at tables, query, answer."
)
ARGUMENTS = {
    ActionType.DESCRIBE: "table",
    ActionType.SAMPLE: "table",
    ActionType.QUERY: "sql",
    ActionType.ANSWER: "answer",
}


def tool(kind: ActionType) -> dict[str, Any]:
    """Return an action as the schema of a tool."""
    properties = {ARGUMENTS[kind]: {"type": "string"}}
    return {
        "type": "function",
        "name": kind.lower(),
        "description": ACTIONS[kind],
        "parameters": {
            "type": "object",
            "properties": properties,
            "required": [*properties],
            "additionalProperties": False,
        },
        "strict": True,
    }


def main(url: str, number: int) -> None:
    with SQLEnvClient(url).sync() as client:
        for seed in range(number):
            reply = client.reset(seed=seed, split="train")
            client.close_episode(reply.episode_id)
            messages = [
                {"role": "system", "content": PROMPT},
                {"role": "user", "content": first_text(reply.observation)},
            ]
            params = {
                "input": messages,
                "tools": [tool(kind) for kind in ActionType],
                "parallel_tool_calls": False,
            }
            # the question of the prompt; the seed makes each task another, which NeMo Gym expects
            reset = {"question_id": reply.info.question_id, "seed": seed}
            print(json.dumps({"responses_create_params": params, "reset": reset}))


if __name__ == "__main__":
    try:
        main(sys.argv[1], int(sys.argv[2]))
    except SQLEnvError as error:
        sys.exit(f"error: {error}")
