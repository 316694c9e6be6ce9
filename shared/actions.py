"""The action grammar: text to `SQLAction` and back, and the table of action types.

The canonical text form is `TYPE: argument` (`DESCRIBE: singer`). `TYPE argument`, any letter case
and surrounding white space are accepted too. The argument runs to the end of the text. The
trainer's `parse_model_output` is more lenient with models.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from shared.errors import ActionParseError, first_problem

MAX_ARGUMENT_BYTES = 20_000  # of UTF-8


class ActionType(StrEnum):
    """What an agent can do. `ACTIONS` has the argument and the effect of each."""

    DESCRIBE = "DESCRIBE"
    SAMPLE = "SAMPLE"
    QUERY = "QUERY"
    ANSWER = "ANSWER"


ACTIONS: dict[ActionType, str] = {
    ActionType.DESCRIBE: "a table's name: shows its columns, types, keys and row count",
    ActionType.SAMPLE: "a table's name: shows 5 of its rows",
    ActionType.QUERY: "one SELECT statement: shows up to 20 rows of its result",
    ActionType.ANSWER: "the answer to the question: ends the episode",
}
EXPECTED = "expected 'TYPE: argument' with TYPE one of " + ", ".join(ActionType)

# Takes linear time, as the text is untrusted. `a` (ASCII): else the Turkish i's match I.
_HEAD = re.compile(rf"\s*((?ai:{'|'.join(ActionType)}))(?:\s*:|\s)")


class SQLAction(BaseModel):
    """One action of an agent. White space around the argument is removed."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    action_type: ActionType
    """What to do: look at a table, query, or answer."""
    argument: str = Field(min_length=1, max_length=MAX_ARGUMENT_BYTES)
    """Table's name, SELECT statement or answer; at most 20,000 bytes of UTF-8."""

    @field_validator("argument", mode="before")
    @classmethod
    def _strip(cls, value: Any) -> Any:
        return value.strip() if isinstance(value, str) else value

    @field_validator("argument")
    @classmethod
    def _bound(cls, value: str) -> str:
        if too_long(value):
            raise ValueError(f"over {MAX_ARGUMENT_BYTES:,} bytes")
        return value


AnyAction = SQLAction | str | Mapping[str, Any]  # an action, its text form, or its fields


def too_long(argument: str) -> bool:
    """Return whether an argument has more than `MAX_ARGUMENT_BYTES` bytes."""
    if len(argument) * 4 <= MAX_ARGUMENT_BYTES:  # most are; a character has at most 4 bytes
        return False
    return len(argument.encode(errors="surrogatepass")) > MAX_ARGUMENT_BYTES


def parse_action(text: str) -> SQLAction:
    """Return the action that `text` is; `ActionParseError` if it is none."""
    match = _HEAD.match(text)
    if match is None:
        raise ActionParseError(f"not an action: {text[:80]!r}; {EXPECTED}")
    kind, argument = ActionType(match[1].upper()), text[match.end() :].strip()
    if not argument:
        raise ActionParseError(f"{kind} needs an argument: {ACTIONS[kind]}")
    if too_long(argument):
        raise ActionParseError(f"{kind}'s argument is over {MAX_ARGUMENT_BYTES:,} bytes")
    return SQLAction(action_type=kind, argument=argument)


def as_action(action: AnyAction) -> SQLAction:
    """Return the action that a text or a mapping of fields is; `ActionParseError` if it is none."""
    if isinstance(action, SQLAction):
        return action
    if isinstance(action, str):
        return parse_action(action)
    if not isinstance(action, Mapping):
        raise TypeError(
            "an action is a text such as 'DESCRIBE: t', an SQLAction, or a dict of action_type and"
            f" argument, not a {type(action).__name__}"
        )
    try:
        return SQLAction.model_validate(dict(action))
    except ValidationError as error:
        problem = first_problem(error, "its fields")
        raise ActionParseError(f"not an action: {problem}; {EXPECTED}") from None


def render_action(action: SQLAction) -> str:
    """Return the canonical text form, which `parse_action` reads back to the same action."""
    return f"{action.action_type}: {action.argument}"


# what SQL skips; else a quoted text, a word or a sign
_TOKENS = re.compile(
    r"""(?:\s++|--[^\n]*+|/\*.*?(?:\*/|\Z))++"""
    r"""|('(?:[^']|'')*+(?:'|\Z)|"(?:[^"]|"")*+(?:"|\Z)|`[^`]*+(?:`|\Z)|\w++|.)""",
    re.DOTALL,
)


def normalise(action: str) -> str:
    """Return an action's text without differences that SQL ignores outside quotes: letter case,
    white space, comments and final semicolons."""
    words = [
        token if token[0] in "'\"`" else token.lower()
        for token in _TOKENS.findall(action)
        if token  # else it is skipped
    ]
    while words and words[-1] == ";":
        words.pop()
    return " ".join(words)
