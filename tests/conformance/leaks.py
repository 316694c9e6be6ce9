"""What replies must not reveal: gold, in field names, behaviour or text; in an episode that
withholds rewards until its end, anything that hints at the answer before; others' episodes.
"""

import json
import re
from collections.abc import Iterator
from itertools import combinations
from typing import Any
from uuid import UUID

from shared.dataset import Question
from shared.errors import Conflict, Forbidden, UnknownEpisode
from shared.models import StepResult
from shared.sqltext import quote_identifier
from tests.conformance.check import Registry
from tests.conformance.episodes import OTHER, QUERY, WRONG
from tests.conformance.wire import Reply, Wire, brief, equal, expect, fresh_id, options_of

gold = Registry("gold")
rewards = Registry("rewards")
ownership = Registry("ownership")

_REVEALING = re.compile(
    r'"(\w*(?:gold|solution|expected|correct_answer|reference)\w*)" *:', re.IGNORECASE
)
_ABOUT_REWARDS = re.compile(r"potential|progress|correctness|reward", re.IGNORECASE)
_MIN_CHARS = 4  # a shorter answer occurs in replies by chance
QUESTIONS = 25  # of the data, whose gold is searched for
GUESSES = (0, 1, 2, 7, 1000)
IDS = 8
PROPOSED = "x-by-a-gateway"
PREFIX = re.compile(rf"^{PROPOSED}[:._-]?")  # one separator: the random part may begin with others
RANDOM_BITS = 122  # of a UUID of version 4
LEAST_CHANGED_BITS = 25  # of the ids' text: of two random ones, 50 and more differ


async def every_reply(wire: Wire, **fields: Any) -> list[tuple[str, bytes]]:
    """Play a question without knowledge up to a wrong answer. Returns (request, reply) pairs."""
    episode = await wire.start(step_budget=9, **fields)
    actions = [f"DESCRIBE: {episode.observation.tables[0]}", QUERY]
    actions += ["QUERY: SELECT", "DESCRIBE: nothing", WRONG]
    seen = [("the reset", episode.model_dump_json().encode())]
    for action, reply in zip(actions, await wire.steps(episode, actions), strict=True):
        seen.append((action, reply.content))
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
        equal(_REVEALING.findall(content.decode()), [], f"the fields of {request} named after gold")


@gold("replies to different wrong answers are equal")
async def _wrong(wire: Wire) -> None:
    replies = []
    for answer in ("surely not this, 31337", '["a", "b"]', "1234567.891"):
        replies += await wire.steps(await wire.start(), [f"ANSWER: {answer}"])
    alike(replies)


def alike(replies: list[Reply]) -> None:
    """Check that replies differ in nothing but the action and a query's result."""
    for reply in replies:
        reply.seen.update(result="", action_history=[])
    same = all(reply.body == replies[0].body for reply in replies)
    expect(same, "different guesses must get equal replies")


@gold("before the end, observations do not reveal rewards")
async def _observation(wire: Wire) -> None:
    (reply,) = await wire.steps(await wire.start(step_budget=5), [QUERY])
    texts = [value for value in reply.seen.values() if isinstance(value, str)]
    leaks = list(filter(_ABOUT_REWARDS.search, texts))
    expect(not leaks, f"an observation's text mentions rewards: {brief(leaks)}")


@gold("no reply holds a question's gold SQL or answer")
async def _gold(wire: Wire) -> None:
    chosen = wire.questions[:: max(1, len(wire.questions) // QUESTIONS)]
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


def searchable(reply: bytes) -> str:
    """Return a reply in lower case on one line, without the names of tables and columns."""
    body = json.loads(reply)
    seen = body.get("observation")
    if seen is not None:
        seen |= {"schema_info": "", "result": ""}
    return _plain(body)


def _plain(value: Any) -> str:
    return " ".join(json.dumps(value, ensure_ascii=False).lower().split())


def secrets(question: Question) -> Iterator[tuple[str, str]]:
    """Yield (name, `searchable` text) of what no reply may hold; short answers are left out."""
    for name, value in (("gold SQL", question.gold_sql), ("gold answer", question.gold_answer)):
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        text = _plain(text)[1:-1].strip()
        known = text.isdecimal() or text in question.question_text.lower()
        if len(text) >= _MIN_CHARS and not known:
            yield name, text


# -- rewards that are withheld until the end


def hidden(reply: Reply, request: str) -> None:
    """Check that a reply shows no reward and no ledger."""
    body = reply.body
    seen = (body["reward"], body["observation"]["reward"], body["info"]["ledger"])
    equal(seen, (None, None, None), f"reward, its copy and ledger of {request}")


@rewards("rewards 'end': nothing but whether the answer is right, in the last reply")
async def _withheld(wire: Wire) -> None:
    episode = await wire.start(step_budget=5, rewards="end")
    describe = f"DESCRIBE: {episode.observation.tables[0]}"
    replies = await wire.steps(episode, [describe, QUERY, OTHER, WRONG])
    equal((episode.reward, episode.info.ledger), (None, None), "reward and ledger of a reset")
    for number, reply in enumerate(replies[:-1]):
        hidden(reply, f"step {number}")
    last = replies[-1].shaped(StepResult)
    shown = (last.reward, last.observation.reward, last.info.ledger)
    equal(shown, (0.0, 0.0, None), "rewards and ledger of the last reply")


@rewards("rewards 'end': right and wrong guesses get equal replies")
async def _guesses(wire: Wire) -> None:
    replies = []
    for guess in GUESSES:
        episode = await wire.start(step_budget=5, rewards="end")
        table = quote_identifier(episode.observation.tables[0])
        replies += await wire.steps(episode, [f"QUERY: SELECT {guess} FROM {table} LIMIT 1"])
    equal(replies[0].seen["error"], None, "the error of a query of a constant")
    alike(replies)


@rewards("rewards 'end': a replay is the same, and shows rewards at the end only")
async def _replayed(wire: Wire) -> None:
    episode = await wire.start(step_budget=5, rewards="end")
    actions = [QUERY, OTHER, WRONG]
    replies = await wire.steps(episode, actions)
    options = {**options_of(episode), "rewards": "end"}
    for length in (2, 3):
        again = await wire.start(**options, actions=actions[:length])
        same = again.model_dump(mode="json", exclude={"episode_id"}) == replies[length - 1].body
        expect(same, "a replay must give the step's reply")
    reply = await wire.post(
        "/reset", {**options, "episode_id": episode.episode_id, "rewards": "step"}
    )
    reply.refused(Conflict, "a reset of the episode with other rewards")


@rewards("an agent's key gets no reward before the end")
async def _agent(wire: Wire) -> None:
    reply = await wire.second.post("/reset", {"episode_id": fresh_id(), "rewards": "step"})
    reply.refused(Forbidden, "a reset with rewards 'step' by an agent's key")
    episode = await wire.second.start(step_budget=5)
    hidden((await wire.second.steps(episode, [QUERY]))[0], "a step of an agent's")


# -- ownership: nobody guesses the id of another's episode, or uses it with another key


async def new_ids(wire: Wire, **headers: str) -> list[str]:
    """Return ids that the server makes, of episodes that are closed at once."""
    ids = []
    for _ in range(IDS):
        reply = (await wire.send("POST", "/reset", json={}, headers=headers)).ok("a reset")
        ids.append(str(reply.body["episode_id"]))
        await wire.end(ids[-1])
    return ids


def random_bits(text: str) -> int:
    """Return how many random bits a text may hold: those of a UUID, else 6 per character."""
    if re.fullmatch(r"[0-9a-f-]{36}", text):
        return RANDOM_BITS if UUID(text).version == 4 else 0
    return 6 * len(text)


@ownership("the server's ids can't be guessed, whatever a header proposes")
async def _ids(wire: Wire) -> None:
    for ids in (await new_ids(wire), await new_ids(wire, **{"X-Episode-Id": PROPOSED})):
        expect(len(set(ids)) == IDS, f"every episode must get an id of its own, not {ids[:2]}")
        for one, other in combinations(ids, 2):
            tail, other_tail = (PREFIX.sub("", name) for name in (one, other))
            enough = random_bits(tail) >= RANDOM_BITS and len(tail) == len(other_tail)
            expect(enough, f"an id needs {RANDOM_BITS} random bits, unlike {one!r}")
            pairs = zip(tail.encode(), other_tail.encode(), strict=True)
            changed = sum((a ^ b).bit_count() for a, b in pairs)
            expect(changed >= LEAST_CHANGED_BITS, f"ids must not resemble: {one!r} and {other!r}")


@ownership("an episode belongs to the key that began it")
async def _keys(wire: Wire) -> None:
    other = wire.second
    episode = await wire.start(step_budget=5)
    await wire.steps(episode, [QUERY])
    name = episode.episode_id
    for reply, request in [
        (await other.step(name, QUERY, 1), "a step"),
        (await other.step(name, QUERY, 0), "a repeat"),
        (await other.send("GET", f"/state?episode_id={name}"), "the state"),
        (await other.end(name), "closing"),
    ]:
        reply.refused(UnknownEpisode, f"{request} of an episode with another key")
    own = (await other.post("/reset", {"episode_id": name, "seed": 3})).ok("the id's reuse")
    equal(own.seen["step_count"], 0, "the steps of an episode under another key's id")
    (await other.end(name)).ok("closing it")
    seen = (await wire.step(episode, OTHER, 1)).ok("the owner's next step").seen
    equal(seen["step_count"], 2, "the count of the owner's steps")
