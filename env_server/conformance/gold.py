"""No gold in replies: by their fields and by what they give away; where the data are known, by the
gold's own text."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from env_server.conformance.check import Check, Registry
from env_server.conformance.wire import Skipped, Wire, brief, expect, tables_of
from shared.dataset import Question, load_splits

gold = Registry("gold")

_TELLING = re.compile(r"gold|solution|expected|correct_answer|reference", re.IGNORECASE)
_SHORT = 4  # a shorter answer is found in a reply by chance
QUESTIONS = 25  # of the data, whose gold is looked for


def field_names(value: Any) -> Iterator[str]:
    """The names of all fields of a JSON value, at any depth."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield str(name)
            yield from field_names(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from field_names(inner)


async def every_reply(wire: Wire, **fields: Any) -> list[tuple[str, bytes]]:
    """What an agent that knows nothing gets to see of a question, from the reset to a wrong answer:
    (what, bytes)."""
    episode = await wire.begin(step_budget=9, **fields)
    tables = tables_of(episode.reset.observation.schema_info)
    wrong = "ANSWER: surely not this, 31337"
    actions = [
        f"DESCRIBE: {tables[0]}",
        "QUERY: SELECT 1",
        "QUERY: SELECT",
        "DESCRIBE: nothing",
        wrong,
    ]
    seen = [("the reset", episode.reset.model_dump_json().encode())]
    for action in actions:
        seen.append((action, wire.ok(await wire.step(episode, action), action).content))
    for what, path in (
        ("the state", "/state"),
        ("the metadata", "/metadata"),
        ("the schema", "/schema"),
    ):
        reply = await wire.send(
            "GET", path, params={"episode_id": episode.episode_id} if path == "/state" else None
        )
        seen.append((what, reply.content))
    seen.append(
        (
            "a step after the end",
            (await wire.step(episode, "QUERY: SELECT 1", len(actions))).content,
        )
    )
    await wire.end(episode)
    return seen


@gold("no field of any reply is named after gold")
async def _names(wire: Wire) -> None:
    for what, content in await every_reply(wire):
        telling = sorted(name for name in field_names(json.loads(content)) if _TELLING.search(name))
        expect(not telling, f"{what} has the fields {', '.join(telling)}")


@gold("wrong answers are told apart by nothing but themselves")
async def _wrong(wire: Wire) -> None:
    replies = []
    for answer in ("surely not this, 31337", '["a", "b"]', "1234567.891"):
        episode = await wire.begin()
        reply = wire.ok(await wire.step(episode, f"ANSWER: {answer}", 0), "an answer").body
        if reply["info"]["outcome"] == "correct":
            raise Skipped(f"the answer of question {episode.question_id} happens to be {answer!r}")
        reply["observation"]["action_history"] = []
        replies.append(reply)
        await wire.end(episode)
    expect(
        all(reply == replies[0] for reply in replies), "two wrong answers were answered differently"
    )


@gold("before the end the agent's part says nothing of how near it is")
async def _observation(wire: Wire) -> None:
    episode = await wire.begin(step_budget=5)
    reply = wire.ok(await wire.step(episode, "QUERY: SELECT 1 AS one", 0), "a step").body
    texts = [value for value in reply["observation"].values() if isinstance(value, str)]
    leaks = [
        text
        for text in texts
        if re.search(r"potential|progress|correctness|reward", text, re.IGNORECASE)
    ]
    expect(not leaks, f"an observation's text speaks of rewards: {brief(leaks)}")
    await wire.end(episode)


def with_data(data_dir: Path) -> Check:
    """The check that looks for the gold of a data directory. `DataError` where there is none."""
    questions = [question for split in load_splits(data_dir).values() for question in split]

    async def body(wire: Wire) -> str:
        chosen = questions[:: max(1, len(questions) // QUESTIONS)]
        seen = [[(what, text_of(reply)) for what, reply in await every_reply(wire, question_id=question.question_id)]
                for question in chosen]  # fmt: skip
        for number, (question, replies) in enumerate(zip(chosen, seen, strict=True)):
            others = " ".join(text for _, text in seen[number - 1])  # what replies hold anyway
            for name, secret in secrets(question):
                for what, text in replies:
                    found = secret in text and secret not in others
                    expect(
                        not found,
                        f"question {question.question_id}: {what} holds the {name}, {brief(secret, 60)}",
                    )
        return f"{len(chosen)} questions"

    return Check("gold", "no reply holds a question's gold SQL or answer before it was found", body)


def text_of(reply: bytes) -> str:
    """A reply for a search: lower-case, on one line, without the names of tables and columns that
    it shows."""
    body = json.loads(reply)
    seen = body.get("observation") if isinstance(body, dict) else None
    if isinstance(seen, dict) and isinstance(seen.get("result"), str):
        seen |= {"schema_info": "", "result": ""}
    return " ".join(json.dumps(body, ensure_ascii=False).lower().split())


def secrets(question: Question) -> Iterator[tuple[str, str]]:
    """(name, text as `text_of` would have it) of what no reply may hold.

    An answer that is short, a number or part of the question is left out: its text tells nothing.
    """
    for name, value in (("gold SQL", question.gold_sql), ("gold answer", question.gold_answer)):
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        text = " ".join(json.dumps(text, ensure_ascii=False)[1:-1].lower().split())
        if (
            len(text) >= _SHORT
            and not text.isdecimal()
            and text not in question.question_text.lower()
        ):
            yield name, text
