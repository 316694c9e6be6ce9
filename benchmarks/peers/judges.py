"""Judges of SQL: each yields what turns a case into its environment's reward.

A judge runs in the peer's environment, so this module imports only the standard library. FOLDER is
a data directory of SQLEnv's, whose databases the peer may spoil. A case has `question_id`,
`question`, `db_id`, `gold_sql` and `sql`, what an agent sends; rewards are in [0, 1].
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.peers.worker import Answer

Case = dict[str, str]


@asynccontextmanager
async def nemo_gym(folder: str) -> AsyncIterator[Answer]:
    """NeMo Gym's resources server `bird_sql`: the statement is the answer."""
    from unittest.mock import MagicMock

    from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
    from nemo_gym.server_utils import ServerClient
    from resources_servers.bird_sql import app

    app.ensure_bird_sql = lambda _: Path(folder, "databases")  # else it downloads BIRD
    config = app.BirdSqlResourcesServerConfig(host="127.0.0.1", port=1, entrypoint="")
    server = app.BirdSqlResourcesServer(config=config, server_client=MagicMock(spec=ServerClient))

    async def judge(case: Case) -> float:
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
        return float((await server.verify(request)).reward)

    yield judge


@asynccontextmanager
async def skyrl_gym(folder: str) -> AsyncIterator[Answer]:
    """SkyRL-gym's `text2sql`: the statement is run as a tool call, and then sent as the answer."""
    from skyrl_gym.envs.sql.env import SQLEnv, Text2SQLEnvConfig

    databases = Path(folder, "bird", "train", "train_databases")  # where it looks for BIRD's
    databases.parent.mkdir(parents=True, exist_ok=True)
    if not databases.exists():
        databases.symlink_to(Path(folder, "databases"), target_is_directory=True)

    async def judge(case: Case) -> float:
        gold = {"ground_truth": case["gold_sql"]}
        extras = {"db_id": case["db_id"], "reward_spec": gold, "data": "bird"}
        environment = SQLEnv(Text2SQLEnvConfig(db_path=folder), extras)
        environment.init([{"role": "user", "content": case["question"]}])
        environment.step(f"<think>a</think><sql>{case['sql']}</sql>")
        last = environment.step(f"<think>a</think><solution>{case['sql']}</solution>")
        return max(0.0, float(last["reward"]))

    yield judge


@asynccontextmanager
async def sqlenv(folder: str) -> AsyncIterator[Answer]:
    """SQLEnv's server: the statement is a QUERY, and what it shows is the ANSWER."""
    from shared.client import SQLEnvClient
    from shared.server_process import running_server
    from trainer.sft.demonstration_kinds import answer_shown

    with running_server(Path(folder), "--workers", "1") as server:
        async with SQLEnvClient(server.url) as client:

            async def judge(case: Case) -> float:
                episode = (await client.reset(question_id=case["question_id"])).episode_id
                reply = await client.step(episode, f"QUERY: {case['sql']}")
                if reply.done:  # the query killed its worker twice
                    return 0.0
                seen = reply.observation
                answer = None if seen.error else answer_shown(seen.result)
                last = await client.step(episode, f"ANSWER: {answer or 'nothing'}")
                return float(last.info.outcome == "correct")

            yield judge


# environment -> its judge, and the packages whose versions count
JUDGES = {
    "sqlenv": ("judges:sqlenv", ()),
    "nemo-gym": ("judges:nemo_gym", ("nemo-gym",)),
    "skyrl-gym": ("judges:skyrl_gym", ("skyrl-gym",)),
}
