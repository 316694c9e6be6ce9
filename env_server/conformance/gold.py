"""No gold in replies: neither in field names nor in behaviour nor, with the data, as text."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from env_server.conformance.check import Check, Registry
from env_server.conformance.episodes import WRONG
from env_server.conformance.wire import Skipped, Wire, brief, expect
from shared.dataset import Question, load_splits

gold = Registry("gold")

_REVEALING = re.compile(r"gold|solution|expected|correct_answer|reference", re.IGNORECASE)
_ABOUT_REWARDS = re.compile(r"potential|progress|correctness|reward", re.IGNORECASE)
_MIN_CHARS = 4  # a shorter answer occurs in replies by chance
QUESTIONS = 25  # of the data, whose gold is searched for


def field_names(value: Any) -> Iterator[str]:
    """Yield the names of all fields of a JSON value, at any depth."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield str(name)
            yield from field_names(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from field_names(inner)


async def every_reply(wire: Wire, **fields: Any) -> list[tuple[str, bytes]]:
    """Play a question without knowledge up to a wrong answer. Returns (request, reply) pairs."""
    episode = await wire.start(step_budget=9, **fields)
    table = episode.tables[0]
    queries = ["QUERY: SELECT 1", "QUERY: SELECT"]
    actions = [f"DESCRIBE: {table}", *queries, "DESCRIBE: nothing", WRONG]
    seen = [("the reset", episode.reset.model_dump_json().encode())]
    for action in actions:
        seen.append((action, wire.ok(await wire.step(episode, action), action).content))
    state = {"episode_id": episode.episode_id}
    for path, params in (("/state", state), ("/metadata", None), ("/schema", None)):
        seen.append((f"GET {path}", (await wire.send("GET", path, params=params)).content))
    late = await wire.step(episode, "QUERY: SELECT 1", len(actions))
    seen.append(("a step after the end", late.content))
    return seen


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
    reply = wire.ok(await wire.step(episode, "QUERY: SELECT 1 AS one", 0), "a step").body
    texts = [value for value in reply["observation"].values() if isinstance(value, str)]
    leaks = list(filter(_ABOUT_REWARDS.search, texts))
    expect(not leaks, f"an observation's text mentions rewards: {brief(leaks)}")


def with_data(data_dir: Path) -> Check:
    """Return the check that searches for a data directory's gold. `DataError` if it has no data."""
    questions = [question for split in load_splits(data_dir).values() for question in split]

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
