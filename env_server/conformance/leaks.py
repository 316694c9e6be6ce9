"""What replies must not reveal: gold, in field names, behaviour or text; and, in an episode that
withholds rewards until its end, anything that hints at the answer before.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from env_server.conformance.check import Check, Registry
from env_server.conformance.episodes import OTHER, QUERY, WRONG, refused, shaped
from env_server.conformance.wire import Reply, Skipped, Wire, brief, expect, fresh_id
from shared.dataset import Question
from shared.models import StepResult

gold = Registry("gold")
rewards = Registry("rewards")

_REVEALING = re.compile(r"gold|solution|expected|correct_answer|reference", re.IGNORECASE)
_ABOUT_REWARDS = re.compile(r"potential|progress|correctness|reward", re.IGNORECASE)
_MIN_CHARS = 4  # a shorter answer occurs in replies by chance
QUESTIONS = 25  # of the data, whose gold is searched for
GUESSES = (0, 1, 2, 7, 1000)


def field_names(value: Any) -> Iterator[str]:
    """Yield the names of all fields of a JSON value, at any depth."""
    if isinstance(value, dict):
        yield from value
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from field_names(inner)


async def every_reply(wire: Wire, **fields: Any) -> list[tuple[str, bytes]]:
    """Play a question without knowledge up to a wrong answer. Returns (request, reply) pairs."""
    episode = await wire.start(step_budget=9, **fields)
    table = episode.tables[0]
    actions = [f"DESCRIBE: {table}", QUERY, "QUERY: SELECT", "DESCRIBE: nothing", WRONG]
    replies = zip(actions, await wire.steps(episode, actions), strict=True)
    seen = [("the reset", episode.reset.model_dump_json().encode())]
    seen += [(action, reply.content) for action, reply in replies]
    for path in (f"/state?episode_id={episode.episode_id}", "/metadata", "/schema"):
        seen.append((f"GET {path}", (await wire.send("GET", path)).content))
    late = await wire.step(episode, QUERY, len(actions))
    return [*seen, ("a step after the end", late.content)]


@gold("no field of any reply is named after gold")
async def _names(wire: Wire) -> None:
    replies = await every_reply(wire)
    for path in ("/questions", "/databases"):
        replies.append((f"GET {path}", (await wire.send("GET", path)).content))
    for request, content in replies:
        names = sorted(filter(_REVEALING.search, field_names(json.loads(content))))
        expect(not names, f"{request} has the fields {', '.join(names)}")


@gold("replies to different wrong answers are equal")
async def _wrong(wire: Wire) -> None:
    replies = []
    for answer in ("surely not this, 31337", '["a", "b"]', "1234567.891"):
        episode = await wire.start()
        reply = wire.ok(await wire.step(episode, f"ANSWER: {answer}", 0), "an answer").body
        if reply["info"]["outcome"] == "correct":
            raise Skipped(f"the answer of question {episode.question_id} happens to be {answer!r}")
        reply["observation"]["action_history"] = []
        replies.append(reply)
    same = all(reply == replies[0] for reply in replies)
    expect(same, "two wrong answers were answered differently")


@gold("before the end, observations do not reveal rewards")
async def _observation(wire: Wire) -> None:
    episode = await wire.start(step_budget=5)
    reply = wire.ok(await wire.step(episode, QUERY, 0), "a step").body
    texts = [value for value in reply["observation"].values() if isinstance(value, str)]
    leaks = list(filter(_ABOUT_REWARDS.search, texts))
    expect(not leaks, f"an observation's text mentions rewards: {brief(leaks)}")


def with_data(questions: list[Question]) -> Check:
    """Return the check that searches replies for the gold of the server's questions."""

    async def body(wire: Wire) -> str:
        chosen = questions[:: max(1, len(questions) // QUESTIONS)]
        seen = []
        for question in chosen:
            replies = await every_reply(wire, question_id=question.question_id)
            seen.append([(request, searchable(reply)) for request, reply in replies])
        for number, question in enumerate(chosen):
            others = " ".join(text for _, text in seen[number - 1])  # in replies anyway
            for name, secret in secrets(question):
                for request, text in seen[number]:
                    leaked = secret in text and secret not in others
                    where = f"question {question.question_id}: {request}"
                    expect(not leaked, f"{where} holds the {name}, {brief(secret, 60)}")
        return f"{len(chosen)} questions"

    return Check("gold", "no reply holds a question's gold SQL or answer", body)


def searchable(reply: bytes) -> str:
    """Return a reply in lower case on one line, without the names of tables and columns."""
    body = json.loads(reply)
    seen = body.get("observation") if isinstance(body, dict) else None
    if isinstance(seen, dict) and isinstance(seen.get("result"), str):
        seen |= {"schema_info": "", "result": ""}
    return " ".join(json.dumps(body, ensure_ascii=False).lower().split())


def secrets(question: Question) -> Iterator[tuple[str, str]]:
    """Yield (name, `searchable` text) of what no reply may hold.

    Leaves out an answer that is short, a number or part of the question: it reveals nothing.
    """
    for name, value in (("gold SQL", question.gold_sql), ("gold answer", question.gold_answer)):
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        text = " ".join(json.dumps(text, ensure_ascii=False)[1:-1].lower().split())
        known = text.isdecimal() or text in question.question_text.lower()
        if len(text) >= _MIN_CHARS and not known:
            yield name, text


# -- rewards that are withheld until the end


def hidden(reply: Reply, request: str) -> None:
    """Check that a reply shows no reward and no ledger."""
    body = reply.body
    seen = (body["reward"], body["observation"]["reward"], body["info"]["ledger"])
    expect(seen == (None, None, None), f"{request} must show no reward and no ledger, not {seen}")


@rewards("rewards 'end': nothing before the last reply, whose reward is the episode's total")
async def _withheld(wire: Wire) -> None:
    episode = await wire.start(step_budget=5, rewards="end")
    replies = await wire.steps(episode, [f"DESCRIBE: {episode.tables[0]}", QUERY, OTHER, WRONG])
    start = (episode.reset.reward, episode.reset.info.ledger)
    expect(start == (None, None), "a reset pays no reward, and must show no ledger")
    for number, reply in enumerate(replies[:-1]):
        hidden(reply, f"step {number}")
    last = shaped(StepResult, replies[-1])
    total = last.ledger.total
    same = last.reward == last.observation.reward == total
    expect(same, f"the last reply's reward must be the total, {total}, not {last.reward}")


@rewards("rewards 'end': right and wrong guesses get equal replies")
async def _guesses(wire: Wire) -> None:
    replies: list[Any] = []
    for guess in GUESSES:
        episode = await wire.start(step_budget=5, rewards="end")
        table = episode.tables[0].replace('"', '""')
        query = f'QUERY: SELECT {guess} FROM "{table}" LIMIT 1'
        reply = wire.ok(await wire.step(episode, query, 0), "a guess").body
        expect(reply["observation"]["error"] is None, f"{query} must work: {brief(reply)}")
        reply["observation"] |= {"result": "", "action_history": []}
        replies.append(reply)
    same = all(reply == replies[0] for reply in replies)
    expect(same, "replies to different guesses must differ in nothing but the guess")


@rewards("rewards 'end': a replay is the same, and shows rewards at the end only")
async def _replayed(wire: Wire) -> None:
    episode = await wire.start(step_budget=5, rewards="end")
    actions = [QUERY, OTHER, WRONG]
    replies = await wire.steps(episode, actions)
    for length in (2, 3):
        body = episode.options | {"episode_id": fresh_id(), "rewards": "end"}
        reply = wire.ok(await wire.post("/reset", body | {"actions": actions[:length]}), "a replay")
        reply.body.pop("episode_id")
        expect(reply.body == replies[length - 1].body, "a replay must give the step's reply")
        await wire.send("DELETE", f"/episodes/{body['episode_id']}")
    body = episode.options | {"episode_id": episode.episode_id, "rewards": "step"}
    reply = await wire.post("/reset", body)
    refused(reply, 409, "conflict", "a reset of the episode with other rewards")


@rewards("an agent's key gets no reward before the end")
async def _agent(wire: Wire) -> None:
    if wire.second is None:
        raise Skipped("needs an agent's key: --second-api-key")
    reply = await wire.second.post("/reset", {"episode_id": fresh_id(), "rewards": "step"})
    refused(reply, 403, "forbidden", "a reset with rewards 'step' by an agent's key")
    episode = await wire.second.start(step_budget=5)
    hidden((await wire.second.steps(episode, [QUERY]))[0], "a step of an agent's")
