"""The process that judges SQL as one environment does, a case for each line that it reads.

    python -m benchmarks.peers.judges JUDGE FOLDER

It runs in the peer's environment, so this module imports only the standard library. FOLDER is a
data directory of SQLEnv's, whose databases the peer may spoil. A line is a JSON object with
`question_id`, `question`, `db_id`, `gold_sql` and `sql`, what an agent sends; each reply is the
reward, in [0, 1]. The first line of output has the versions of the packages.
"""

import asyncio
import atexit
import json
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

MODULE = "benchmarks.peers.judges"
Case = dict[str, str]
Judge = Callable[[Case], float]


def nemo_gym(folder: Path) -> Judge:
    """NeMo Gym's resources server `bird_sql`: the statement is the answer."""
    from unittest.mock import MagicMock

    from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
    from nemo_gym.server_utils import ServerClient
    from resources_servers.bird_sql import app

    app.ensure_bird_sql = lambda _: folder / "databases"  # else it downloads BIRD
    config = app.BirdSqlResourcesServerConfig(host="127.0.0.1", port=1, entrypoint="")
    server = app.BirdSqlResourcesServer(config=config, server_client=MagicMock(spec=ServerClient))
    loop = asyncio.new_event_loop()

    def judge(case: Case) -> float:
        text = f"```sql\n{case['sql']}\n```"
        content = [{"type": "output_text", "text": text, "annotations": []}]
        message = {"type": "message", "id": "m", "role": "assistant", "status": "completed"}
        reply = NeMoGymResponse(
            id="r", created_at=0.0, model="m", object="response", tools=[], tool_choice="auto",
            parallel_tool_calls=True, output=[{**message, "content": content}],
        )  # fmt: skip
        request = app.BirdSqlVerifyRequest(
            responses_create_params=NeMoGymResponseCreateParamsNonStreaming(input=[]),
            response=reply,
            question=case["question"],
            gt_sql=case["gold_sql"],
            db_id=case["db_id"],
        )
        return float(loop.run_until_complete(server.verify(request)).reward)

    return judge


def skyrl_gym(folder: Path) -> Judge:
    """SkyRL-gym's `text2sql`: the statement is run as a tool call, and then sent as the answer."""
    from skyrl_gym.envs.sql.env import SQLEnv, Text2SQLEnvConfig

    databases = folder / "bird" / "train" / "train_databases"  # where it looks for BIRD's
    databases.parent.mkdir(parents=True, exist_ok=True)
    if not databases.exists():
        databases.symlink_to(folder / "databases", target_is_directory=True)

    def judge(case: Case) -> float:
        gold = {"ground_truth": case["gold_sql"]}
        extras = {"db_id": case["db_id"], "reward_spec": gold, "data": "bird"}
        environment = SQLEnv(Text2SQLEnvConfig(db_path=str(folder)), extras)
        environment.init([{"role": "user", "content": case["question"]}])
        environment.step(f"<think>a</think><sql>{case['sql']}</sql>")
        last = environment.step(f"<think>a</think><solution>{case['sql']}</solution>")
        return max(0.0, float(last["reward"]))

    return judge


def sqlenv(folder: Path) -> Judge:
    """SQLEnv's server: the statement is a QUERY, and what it shows is the ANSWER."""
    from contextlib import ExitStack

    from shared.client import SQLEnvClient
    from shared.server_process import running_server
    from trainer.sft.recorded import answer_shown

    stack = ExitStack()
    server = stack.enter_context(running_server(folder, "--workers", "1"))
    client = stack.enter_context(SQLEnvClient(server.url).sync())

    def judge(case: Case) -> float:
        episode = client.reset(question_id=case["question_id"]).episode_id
        reply = client.step(episode, f"QUERY: {case['sql']}")
        if reply.done:  # the query killed its worker twice
            return 0.0
        seen = reply.observation
        answer = None if seen.error else answer_shown(seen.result)
        last = client.step(episode, f"ANSWER: {answer or 'nothing'}")
        return float(last.info.outcome == "correct")

    atexit.register(stack.close)
    return judge


JUDGES: dict[str, tuple[Callable[[Path], Judge], tuple[str, ...]]] = {
    "sqlenv": (sqlenv, ()),
    "nemo-gym": (nemo_gym, ("nemo-gym",)),
    "skyrl-gym": (skyrl_gym, ("skyrl-gym",)),
}


def main(name: str, folder: str) -> None:
    """Judge the cases on stdin until it ends."""
    out, sys.stdout = sys.stdout, sys.stderr  # for what a peer prints

    def reply(value: Any) -> None:
        print(json.dumps(value), file=out, flush=True)

    make, packages = JUDGES[name]
    judge = make(Path(folder))
    reply({package: version(package) for package in packages})
    for line in sys.stdin:
        reply(judge(json.loads(line)))


if __name__ == "__main__":
    main(*sys.argv[1:])
