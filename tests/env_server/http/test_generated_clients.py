"""Clients that others generate from the OpenAPI document take the bodies of the documentation.

The generators are no packages of this project: `pip install openapi-python-client`, and `npm
install -g openapi-typescript typescript@5`. Where one is not in PATH, its test is skipped.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from env_server.app import create_app
from shared.server_process import ServerProcess
from tests.conftest import needs_program
from tests.test_imports import ROOT

pytestmark = pytest.mark.slow  # 10 s each
CURL = re.compile(r"""localhost:8000/(reset|step) -d '(\{.*?\})'""")


def bodies() -> list[tuple[str, dict[str, Any]]]:
    """Return the path and the body of every curl line of the README and of docs/."""
    texts = [path.read_text() for path in (ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")))]
    found = [(path, json.loads(body)) for text in texts for path, body in CURL.findall(text)]
    assert {path for path, _ in found} == {"reset", "step"}
    return found


def missing(*programs: str) -> str | None:
    absent = [program for program in programs if shutil.which(program) is None]
    return f"{', '.join(absent)} not in PATH: see this file's docstring" if absent else None


@pytest.fixture
def document(tmp_path: Path) -> Path:
    path = tmp_path / "openapi.json"
    path.write_text(json.dumps(create_app().openapi()))
    return path


def run(*command: object, cwd: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        list(map(str, command)),
        **{"cwd": cwd, "capture_output": True, "text": True, "timeout": 120, "check": False},
    )


TYPESCRIPT = """
import type { components, paths } from "./api";
type Body<P extends "/reset" | "/step"> =
    NonNullable<paths[P]["post"]["requestBody"]>["content"]["application/json"];
const query: paths["/questions"]["get"]["parameters"]["query"] = { split: "eval", limit: 10 };
export function read(reply: components["schemas"]["ResetResult"]): [string, number, boolean] {
    return [reply.observation.question, reply.observation.budget_remaining, reply.done];
}
export { query };
// @ts-expect-error: there is no such field
export const unknown: Body<"/reset"> = { sed: 7 };
// @ts-expect-error: there is no such difficulty
export const extreme: Body<"/reset"> = { difficulty: "extreme" };
// @ts-expect-error: a step names its episode
export const nameless: Body<"/step"> = { action: "ANSWER: 1" };
"""


@needs_program("openapi-typescript", missing("openapi-typescript", "tsc"))
def test_a_typescript_client_takes_the_documented_bodies(tmp_path: Path, document: Path) -> None:
    made = run("openapi-typescript", document, "-o", tmp_path / "api.d.ts", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    lines = [
        f'export const body{number}: Body<"/{path}"> = {json.dumps(body)};'
        for number, (path, body) in enumerate(bodies())
    ]
    (tmp_path / "use.ts").write_text(TYPESCRIPT + "\n".join(lines))
    checked = run("tsc", "--noEmit", "--strict", "use.ts", cwd=tmp_path)
    assert checked.returncode == 0, checked.stdout


PYTHON = """
import sys

from sql_env_client import Client
from sql_env_client.api.data import questions
from sql_env_client.api.episodes import reset, step
from sql_env_client.models import (
    QuestionPage, ResetRequest, ResetResult, SQLAction, StepRequest, StepResult,
)

def play(client: Client) -> tuple[str, int, float | None]:
    page = questions.sync(client=client, split="train", limit=2)
    assert isinstance(page, QuestionPage)
    begun = reset.sync(client=client, body=ResetRequest(question_id=page.questions[0].question_id))
    assert isinstance(begun, ResetResult)
    action = SQLAction(action_type="ANSWER", argument="5")
    request = StepRequest(episode_id=begun.episode_id, action=action, step=0)
    reply = step.sync(client=client, body=request)
    assert isinstance(reply, StepResult)
    return begun.observation.question, reply.observation.step_count, reply.reward

def wrong() -> None:  # --strict refuses an ignore without an error
    ResetRequest(sed=7)  # type: ignore[call-arg]
    ResetRequest(difficulty="extreme")  # type: ignore[arg-type]
    StepRequest(action="ANSWER: 1")  # type: ignore[call-arg]

"""
MAIN = """
if __name__ == "__main__":
    print(*play(Client(base_url=sys.argv[1])))
"""


@needs_program("openapi-python-client", missing("openapi-python-client"))
def test_a_python_client_takes_the_documented_bodies_and_plays(
    tmp_path: Path, document: Path, tiny_data: Path
) -> None:
    config = tmp_path / "config.yml"
    config.write_text("literal_enums: true\npost_hooks: []\n")
    made = run(
        *("openapi-python-client", "generate", "--meta", "none", "--config", config),
        *("--path", document, "--output-path", tmp_path / "sql_env_client", "--fail-on-warning"),
        cwd=tmp_path,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    models = {"reset": "ResetRequest", "step": "StepRequest"}
    lines = [
        f"{models[path]}({', '.join(f'{name}={value!r}' for name, value in body.items())})"
        for path, body in bodies()
    ]
    (tmp_path / "use.py").write_text(PYTHON + "\n".join(lines) + MAIN)
    checked = run(
        *(sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "use.py"),
        cwd=tmp_path,
    )
    assert checked.returncode == 0, checked.stdout
    server = ServerProcess(tiny_data, tmp_path / "server.log", settings={"sql_workers": 1})
    server.start()
    try:
        server.wait_ready()
        played = run(sys.executable, "use.py", server.url, cwd=tmp_path)
    finally:
        server.stop()
    assert played.stdout == "How many customers are there? 1 1.0\n", played.stderr
