"""Answers: copied results and the usual forms of text are right, by the server's data (`--data`);
and judging long answers does not delay other episodes."""

import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any, get_args

from env_server.conformance.check import Registry, in_time
from env_server.conformance.wire import Skipped, Wire, brief, expect
from shared.dataset import Question
from shared.models import ResetResult, StandardName

answers = Registry("answers")

QUESTIONS = 6  # of the data, for each form
LONG_ANSWERS = 60
LONG_TEXTS = ("1\n" * 10_000, "1," * 10_000, "a: 1\n" * 4_000, "[" + "['a',1]," * 2_400 + "]")
SLACK_S = 1.0  # of a busy machine
TRIES = 3
CUTS = ("(first ", "(cut: ")  # notes under a result that is not shown whole
SEPARATORS = ("\n", "\t", ",", ";", ":", "|", '"', "'", "(", "[", "{", " and ", "-", ".")

Row = list[Any]


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
    for question in many[:: max(1, len(many) // (2 * QUESTIONS))]:
        episode = await wire.start(question_id=question.question_id, step_budget=2)
        (reply,) = await wire.steps(episode, [f"QUERY: {question.gold_sql}"])
        shown = reply.seen["result"]
        lines = shown.split("\n")
        has_bars = len({line.count(" | ") for line in lines}) > 1  # in a cell
        if shown and not has_bars and not lines[-1].startswith(CUTS):
            await _expect_right(wire, episode, question, shown, 1)
            copied = True
    if not copied:
        raise Skipped("no gold query's result is a list or a table that is shown whole")


async def _form(kind: str, written: Callable[[list[Row]], str | None], wire: Wire) -> None:
    """Check answers of a type, as `written`, which returns None for rows that it can't write."""
    found = [
        (question, text)
        for question in wire.questions
        if question.answer_type == kind and (rows := _plain_rows(question))
        if (text := written(rows)) is not None
    ]
    if not found:
        raise Skipped("no question of the data has an answer of this type")
    for question, text in found[:: max(1, len(found) // QUESTIONS)]:
        episode = await wire.start(question_id=question.question_id, step_budget=1)
        await _expect_right(wire, episode, question, text, 0)


async def _expect_right(
    wire: Wire, episode: ResetResult, question: Question, text: str, step: int
) -> None:
    reply = (await wire.step(episode, f"ANSWER: {text}", step)).ok("an ANSWER").body
    outcome, gold = reply["info"]["outcome"], json.dumps(question.gold_answer)
    message = f"{brief(text)!r} is {outcome}; {brief(gold)} is right"
    expect(outcome == "correct", f"question {question.question_id}: {message}")


def _plain(cell: Any) -> bool:
    """Return whether a cell is written alike by everybody and holds no separator."""
    if isinstance(cell, str):
        return bool(cell.strip()) and not any(mark in cell for mark in SEPARATORS)
    return isinstance(cell, int)


def _plain_rows(question: Question) -> list[Row]:
    """Return the rows of an answer; none if a cell of it is not plain."""
    gold = question.gold_answer
    items = gold if isinstance(gold, list) else [gold]
    rows = [item if isinstance(item, list) else [item] for item in items]
    return rows if all(_plain(cell) for row in rows for cell in row) else []


def _joined(rows: list[Row]) -> str | None:
    *first, last = (str(row[0]) for row in rows)
    return f"{', '.join(first)} and {last}" if first else None


def _keys(rows: list[Row]) -> str | None:
    return "\n".join(f"{key}: {value}" for key, value in rows) if len(rows[0]) == 2 else None


FORMS: dict[str, tuple[str, Callable[[list[Row]], str | None]]] = {
    "'A, B and C' is a list": ("list", _joined),
    "'A; B; C' is a list": ("list", lambda rows: "; ".join(str(row[0]) for row in rows)),
    "lines with tabs are a table":
        ("table", lambda rows: "\n".join("\t".join(map(str, row)) for row in rows)),
    "lines 'key: value' are a table of two columns": ("table", _keys),
    r"\boxed{5} is 5": ("integer", lambda rows: rf"\boxed{{{rows[0][0]}}}"),
    "'- 5', one bullet, is 5": ("integer", lambda rows: f"- {rows[0][0]}"),
}  # fmt: skip
for _name, _how in FORMS.items():
    answers(_name)(partial(_form, *_how))
