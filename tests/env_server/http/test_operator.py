"""Outcomes by each standard, as text or SQL; operators see the tries of agents' keys."""

from typing import Any

import httpx
import pytest

from shared.models import Outcome, QuestionTries, ResetResult, StepResult, TriesPage
from tests.env_server.http.conftest import AGENT, OPERATOR, TRAINER, bearer

pytestmark = pytest.mark.anyio
RIGHT = "elephant | 1\nlion | 2\npenguin | 2"  # zoo-2
TURNED = "1 | elephant\n2 | lion\n2 | penguin"


async def play(http: httpx.AsyncClient, answer: str, **options: Any) -> StepResult:
    reply = await http.post("/reset", json={"question_id": "zoo-2", **options})
    episode_id = ResetResult.model_validate_json(reply.content).episode_id
    reply = await http.post("/step", json={"episode_id": episode_id, "action": f"ANSWER: {answer}"})
    return StepResult.model_validate_json(reply.content)


SQL = "SELECT species, count(*) FROM animals GROUP BY species"


TEXTS = [
    (RIGHT, "strict spider bird"),
    (TURNED, "spider"),
    (f"{RIGHT}\nlion | 2", "bird"),
    (SQL, ""),  # needs the form "sql"
]
STATEMENTS = [
    (SQL, "strict spider bird"),
    (f"```sql\n{SQL} ORDER BY 2 DESC;\n```", "strict spider bird"),
    (f"Answer: {SQL}", "strict spider bird"),
    ("SELECT count(*), species FROM animals GROUP BY species", "spider"),
    ("SELECT a.species, b.n FROM animals a JOIN (SELECT species, count(*) AS n FROM animals "
     "GROUP BY 1) b USING (species)", "bird"),
    # a guess
    ("SELECT 'elephant', 1 UNION SELECT 'lion', 2 UNION SELECT 'penguin', 2", "spider bird"),
    ("SELECT species FROM animals", ""),
    (RIGHT, ""),
    ("SELECT nonsense FROM animals", ""),
    ("DROP TABLE animals", ""),
    ("SELECT x.* FROM animals a CROSS JOIN animals b CROSS JOIN animals c CROSS JOIN animals d "
     f"CROSS JOIN ({SQL}) x", ""),  # more rows than are compared
]  # fmt: skip


@pytest.mark.parametrize("settings", [{"standard": name} for name in ("strict", "spider", "bird")])
async def test_the_servers_standard_decides_outcomes(http, settings):
    standard = settings["standard"]
    assert (await http.get("/metadata")).json()["standard"] == standard
    answers = [("text", *one) for one in TEXTS] + [("sql", *one) for one in STATEMENTS]
    for form, answer, right in answers:
        result = await play(http, answer, answer_form=form)
        assert (result.done, result.observation.result) == (True, "")
        expected = Outcome.CORRECT if standard in right else Outcome.WRONG
        assert result.info.outcome == expected, answer
        assert result.info.ledger.correctness == (standard in right)


async def test_the_form_of_answers_is_an_option_of_the_episode(http):
    body: dict[str, Any] = {"question_id": "zoo-2", "episode_id": "e"}
    body["actions"] = ["DESCRIBE: animals"]
    for form, status in (("sql", 200), ("sql", 200), ("text", 409), ("python", 422)):
        reply = await http.post("/reset", json=body | {"answer_form": form})
        assert reply.status_code == status
    other = {"episode_id": "f", "answer_form": "sql", "actions": [f"ANSWER: {SQL}"]}
    rebuilt = await http.post("/reset", json=body | other)
    assert rebuilt.json()["info"]["outcome"] == "correct"


# -- agents' tries

KEYS = {"api_key": TRAINER, "agent_keys": f"{AGENT},{AGENT}-two", "operator_key": OPERATOR}
keyed = pytest.mark.parametrize("settings", [KEYS])


async def listed(http: httpx.AsyncClient, **query: int) -> TriesPage:
    reply = await http.get("/operator/tries", params=query, headers=bearer(OPERATOR))
    return TriesPage.model_validate_json(reply.content)


@keyed
async def test_the_operator_sees_every_try_however_it_ended(http):
    guesses = [{"question_id": "zoo-2", "actions": [f"ANSWER: {text}"]} for text in ("a", RIGHT)]
    for key in (AGENT, f"{AGENT}-two", TRAINER):
        headers = bearer(key)
        began = await http.post("/reset", json={"question_id": "shop-1"}, headers=headers)
        step = {"episode_id": began.json()["episode_id"], "action": "ANSWER: 5"}
        await http.post("/step", json=step, headers=headers)
        await http.post("/step", json=step | {"step": 0}, headers=headers)  # a repeat
        await http.delete(f"/episodes/{step['episode_id']}", headers=headers)
        if key == AGENT:
            await http.post("/reset_batch", json={"resets": guesses}, headers=headers)
            began = await http.post("/reset", json={"question_id": "zoo-2"}, headers=headers)
            step = {"episode_id": began.json()["episode_id"], "action": f"ANSWER: {RIGHT}"}
            await http.post("/step_batch", json={"steps": [step]}, headers=headers)
    every = [
        QuestionTries(key="agent-1", question_id="zoo-2", tries=3, right=2, first_right=False),
        QuestionTries(key="agent-1", question_id="shop-1", tries=1, right=1, first_right=True),
        QuestionTries(key="agent-2", question_id="shop-1", tries=1, right=1, first_right=True),
    ]
    assert await listed(http) == TriesPage(total=3, next_offset=None, tries=every)
    assert await listed(http, limit=2) == TriesPage(total=3, next_offset=2, tries=every[:2])
    assert (await listed(http, offset=2)).tries == every[2:]
    for key, status in ((AGENT, 401), (TRAINER, 401), (None, 401), (OPERATOR, 422)):
        reply = await http.get("/operator/tries?limit=0", headers=bearer(key))
        assert reply.status_code == status
    metrics = (await http.get("/metrics", headers=bearer(OPERATOR))).text
    for line in (
        'sqlenv_tries_total{key="agent-1"} 4.0',
        'sqlenv_tries_repeated_total{key="agent-1"} 2.0',
        'sqlenv_tries_total{key="agent-2"} 1.0',
        'sqlenv_tries_repeated_total{key="agent-2"} 0.0',
    ):
        assert line in metrics
    assert "zoo-2" not in metrics
