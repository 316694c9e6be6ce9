"""Answers: a copied result is right, by the server's data (`--data`), and judging long answers does
not delay other episodes."""

import time
from collections.abc import Callable
from typing import get_args

from shared.models import StandardName
from tests.conformance.check import Registry, in_time
from tests.conformance.wire import Skipped, Wire, brief, equal, expect

answers = Registry("answers")

QUESTIONS = 12  # of the data
LONG_ANSWERS = 60
LONG_TEXTS = ("1\n" * 10_000, "1," * 10_000, "a: 1\n" * 4_000, "[" + "['a',1]," * 2_400 + "]")
SLACK_S = 1.0  # of a busy machine
TRIES = 3
CUTS = ("(first ", "(cut: ")  # notes under a result that is not shown whole


@answers("/metadata names the standard of right answers")
async def _standard(wire: Wire) -> None:
    named = (await wire.get("/metadata")).body.get("standard")
    expect(named in get_args(StandardName), f"'standard' is {brief(named)}")


@answers(f"{LONG_ANSWERS} answers of 20,000 characters take no longer than short ones")
async def _long(wire: Wire) -> None:
    """Judging happens where all episodes wait: ten times the short ones' time is a stall."""

    async def measure() -> tuple[float, float]:
        short = await _answer_many(wire, lambda number: f"{number}")
        long = await _answer_many(wire, lambda number: LONG_TEXTS[number % len(LONG_TEXTS)].strip())
        return long, 10 * short + SLACK_S

    await in_time(TRIES, measure, "they")


async def _answer_many(wire: Wire, text: Callable[[int], str]) -> float:
    """Answer questions of different seeds in one batch. Returns the seconds."""
    episodes = [await wire.start(seed=number, step_budget=1) for number in range(LONG_ANSWERS)]
    steps = [
        {"episode_id": episode.episode_id, "action": f"ANSWER: {text(number)}", "step": 0}
        for number, episode in enumerate(episodes)
    ]
    began = time.monotonic()
    reply = (await wire.post("/step_batch", {"steps": steps})).ok("a batch of answers")
    took = time.monotonic() - began
    refused = [item for item in reply.body["results"] if "error" in item]
    expect(not refused, f"an answer was refused: {brief(refused[:1])}")
    return took


@answers("a copied result is the answer that it shows")
async def _copies(wire: Wire) -> None:
    copied = False
    many = [one for one in wire.questions if one.answer_type in ("list", "table")]
    for question in many[:: max(1, len(many) // QUESTIONS)]:
        episode = await wire.start(question_id=question.question_id, step_budget=2)
        (reply,) = await wire.steps(episode, [f"QUERY: {question.gold_sql}"])
        shown = reply.seen["result"]
        lines = shown.split("\n")
        has_bars = len({line.count(" | ") for line in lines}) > 1  # in a cell
        if shown and not has_bars and not lines[-1].startswith(CUTS):
            last = (await wire.step(episode, f"ANSWER: {shown}", 1)).ok("an ANSWER").body
            what = f"the outcome of {brief(shown)!r} for question {question.question_id}"
            equal(last["info"]["outcome"], "correct", what)
            copied = True
    if not copied:
        raise Skipped("no gold query's result is a list or a table that is shown whole")
