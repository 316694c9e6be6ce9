"""Operators see verdicts by every standard, agents see none; SQL answers are counted separately."""

from typing import Any

import httpx
import pytest

from shared.models import (
    EpisodeVerdicts,
    Outcome,
    ResetResult,
    ServerMetadata,
    StandardName,
    StepResult,
    VerdictTotals,
)

pytestmark = pytest.mark.anyio
RIGHT = "elephant | 1\nlion | 2\npenguin | 2"  # zoo-2
TURNED = "1 | elephant\n2 | lion\n2 | penguin"


async def play(
    http: httpx.AsyncClient, answer: str, **options: Any
) -> tuple[StepResult, EpisodeVerdicts]:
    """One episode with one answer: its last reply, and its verdicts."""
    reply = await http.post("/reset", json={"question_id": "zoo-2", **options})
    episode_id = ResetResult.model_validate_json(reply.content).episode_id
    reply = await http.post("/step", json={"episode_id": episode_id, "action": f"ANSWER: {answer}"})
    result = StepResult.model_validate_json(reply.content)
    return result, EpisodeVerdicts.model_validate_json(
        (await http.get(f"/operator/verdicts/{episode_id}")).content
    )


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        (RIGHT, "strict spider bird"),
        (TURNED, "spider"),
        (f"{RIGHT}\nlion | 2", "bird"),
        ("lion | 2", ""),
    ],
)
async def test_an_answer_by_every_standard(
    http: httpx.AsyncClient, answer: str, right: str
) -> None:
    result, seen = await play(http, answer)
    assert seen.verdicts == {name: name in right.split() for name in ("strict", "spider", "bird")}
    assert (seen.standard, seen.answer_form, seen.question_id) == ("strict", "text", "zoo-2")
    assert (
        seen.outcome
        == result.info.outcome
        == (Outcome.CORRECT if "strict" in right else Outcome.WRONG)
    )
    assert result.info.ledger.correctness == ("strict" in right)


@pytest.mark.parametrize("settings", [{"standard": name} for name in ("spider", "bird")])
async def test_the_servers_standard_decides_outcomes(
    http: httpx.AsyncClient, settings: dict[str, StandardName]
) -> None:
    standard = settings["standard"]
    metadata = ServerMetadata.model_validate_json((await http.get("/metadata")).content)
    totals = VerdictTotals.model_validate_json((await http.get("/operator/verdicts")).content)
    assert metadata.standard == totals.standard == standard
    turned_sql = "SELECT count(*), species FROM animals GROUP BY species"
    answers = [(RIGHT, "text", True), (TURNED, "text", standard == "spider")]
    answers += [(f"{RIGHT}\nlion | 2", "text", standard == "bird")]
    answers += [(turned_sql, "sql", standard == "spider")]
    for text, form, right in answers:
        result, seen = await play(http, text, answer_form=form)
        assert seen.standard == standard
        assert result.info.outcome == (Outcome.CORRECT if right else Outcome.WRONG)
        assert result.info.ledger.correctness == right


async def test_replies_to_agents_hold_no_verdict(http: httpx.AsyncClient) -> None:
    """Not even of its own: what others than training's standard say is no part of any reply but the
    operator's."""
    reset = await http.post("/reset", json={"question_id": "zoo-2", "episode_id": "e"})
    step = await http.post("/step", json={"episode_id": "e", "action": f"ANSWER: {TURNED}"})
    replies = [
        reset,
        step,
        await http.get("/state", params={"episode_id": "e"}),
        await http.get("/metadata"),
    ]
    for reply in replies:
        assert reply.status_code == 200
        text = reply.text.replace('"standard":"strict"', "")  # the server's setting
        assert not any(word in text for word in ("verdict", "spider", "bird", "strict"))


async def test_there_is_no_verdict_before_the_end(http: httpx.AsyncClient) -> None:
    await http.post("/reset", json={"question_id": "zoo-2", "episode_id": "e", "step_budget": 1})
    reply = await http.get("/operator/verdicts/e")
    assert (reply.status_code, reply.json()["error"]["code"]) == (409, "conflict")
    await http.post("/step", json={"episode_id": "e", "action": "DESCRIBE: animals"})
    seen = EpisodeVerdicts.model_validate_json((await http.get("/operator/verdicts/e")).content)
    assert (seen.outcome, seen.verdicts) == (Outcome.BUDGET, None)


async def test_an_unknown_episode_has_no_verdict(http: httpx.AsyncClient) -> None:
    reply = await http.get("/operator/verdicts/nobody")
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "unknown_episode")


SQL = "SELECT species, count(*) FROM animals GROUP BY species"


@pytest.mark.parametrize(
    ("answer", "right"),
    [
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
    ],
)  # fmt: skip
async def test_an_answer_as_sql(http: httpx.AsyncClient, answer: str, right: str) -> None:
    result, seen = await play(http, answer, answer_form="sql")
    assert seen.verdicts == {name: name in right.split() for name in ("strict", "spider", "bird")}
    assert (seen.answer_form, result.done, result.observation.result) == ("sql", True, "")
    assert result.info.outcome == (Outcome.CORRECT if "strict" in right else Outcome.WRONG)


async def test_sql_answers_need_the_sql_form(http: httpx.AsyncClient) -> None:
    result, seen = await play(http, SQL)
    assert result.info.outcome == Outcome.WRONG
    assert seen.verdicts == {"strict": False, "spider": False, "bird": False}


async def test_sql_answers_are_counted_separately(http: httpx.AsyncClient) -> None:
    for answer, options in [
        (RIGHT, {}),
        (TURNED, {}),
        ("?", {}),
        (SQL, {"answer_form": "sql"}),
        ("?", {"answer_form": "sql"}),
    ]:
        await play(http, answer, **options)
    totals = VerdictTotals.model_validate_json((await http.get("/operator/verdicts")).content)
    assert totals.standard == "strict"
    assert {form: (one.answered, one.right) for form, one in totals.forms.items()} == {
        "text": (3, {"strict": 1, "spider": 2, "bird": 1}),
        "sql": (2, {"strict": 1, "spider": 1, "bird": 1}),
    }


async def test_the_form_of_answers_is_an_option_of_the_episode(http: httpx.AsyncClient) -> None:
    body = {
        "question_id": "zoo-2",
        "episode_id": "e",
        "answer_form": "sql",
        "actions": ["DESCRIBE: animals"],
    }
    assert (await http.post("/reset", json=body)).status_code == 200
    assert (await http.post("/reset", json=body)).status_code == 200
    assert (await http.post("/reset", json=body | {"answer_form": "text"})).status_code == 409
    rebuilt = await http.post(
        "/reset", json=body | {"episode_id": "f", "actions": [f"ANSWER: {SQL}"]}
    )
    assert rebuilt.json()["info"]["outcome"] == "correct"
    assert (await http.post("/reset", json=body | {"answer_form": "python"})).status_code == 422


async def test_the_endpoints_are_documented(http: httpx.AsyncClient) -> None:
    paths = (await http.get("/openapi.json")).json()["paths"]
    assert {"/operator/verdicts", "/operator/verdicts/{episode_id}"} <= set(paths)
