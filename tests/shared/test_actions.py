"""The action grammar."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from shared.actions import (
    MAX_ARGUMENT_BYTES,
    ActionType,
    SQLAction,
    as_action,
    parse_action,
    render_action,
)
from shared.errors import ActionParseError


@pytest.mark.parametrize(
    ("text", "kind", "argument"),
    [
        ("DESCRIBE: singer", "DESCRIBE", "singer"),
        ("describe singer", "DESCRIBE", "singer"),
        ("  Sample :  singer \n", "SAMPLE", "singer"),
        ("QUERY:SELECT 1", "QUERY", "SELECT 1"),
        ("QUERY\nSELECT a,\n  b\nFROM t;", "QUERY", "SELECT a,\n  b\nFROM t;"),
        ("ANSWER: QUERY: 3", "ANSWER", "QUERY: 3"),
        ("ANSWER: : x", "ANSWER", ": x"),
        ("ANSWER: [1, 2]", "ANSWER", "[1, 2]"),
        ("ANSWER: naïve – 東京", "ANSWER", "naïve – 東京"),
    ],
)
def test_texts_that_are_actions(text, kind, argument):
    assert parse_action(text) == SQLAction(action_type=ActionType(kind), argument=argument)


@pytest.mark.parametrize(
    "text",
    ["", " ", "SELECT 1", "DESCRIBEsinger", "I say QUERY: SELECT 1", "DESCRıBE: t", ": x"]
    + [f"{kind}{rest}" for kind in ActionType for rest in (":", " ", ":\n\t ")],
)
def test_texts_that_are_no_actions(text):
    with pytest.raises(ActionParseError):
        parse_action(text)


def test_an_argument_may_be_long_but_not_longer():
    longest = "x" * MAX_ARGUMENT_BYTES
    assert parse_action(f"QUERY: {longest} ").argument == longest
    with pytest.raises(ActionParseError, match="20,000"):
        parse_action(f"QUERY: {longest}x")
    with pytest.raises(ValidationError):
        SQLAction(action_type=ActionType.QUERY, argument=longest + "x")


@given(kind=st.sampled_from(ActionType), argument=st.text(min_size=1, max_size=80))
def test_every_action_is_read_back_from_its_text(kind, argument):
    if not argument.strip():
        with pytest.raises(ValidationError):
            SQLAction(action_type=kind, argument=argument)
        return
    action = SQLAction(action_type=kind, argument=argument)
    assert parse_action(render_action(action)) == action
    assert render_action(parse_action(render_action(action))) == render_action(action)


@pytest.mark.parametrize(
    "action",
    [
        "SAMPLE: t",
        SQLAction(action_type=ActionType.SAMPLE, argument="t"),
        {"action_type": "SAMPLE", "argument": " t "},
    ],
)
def test_an_action_is_a_text_an_object_or_its_fields(action):
    assert render_action(as_action(action)) == "SAMPLE: t"


@pytest.mark.parametrize(
    ("action", "error"),
    [
        ({"action_type": "LOOK", "argument": "t"}, ActionParseError),
        ({"action_type": "QUERY"}, ActionParseError),
        ({"action_type": "QUERY", "argument": "x", "more": 1}, ActionParseError),
        (b"QUERY: 1", TypeError),
        (["QUERY", "1"], TypeError),
    ],
)
def test_what_is_no_action_is_refused(action, error):
    with pytest.raises(error):
        as_action(action)


@pytest.mark.parametrize(
    "text", ["QUERY:" + " " * 200_000 + "x" * 30_000, " " * 400_000, "QUERY: " + "\n " * 200_000]
)
def test_a_hostile_text_costs_little(text):
    started = time.process_time()
    with pytest.raises(ActionParseError):
        parse_action(text)
    assert time.process_time() - started < 0.5
