"""Parse a model's text into an action. Text that is no action becomes a QUERY with the raw text.

Models that were not trained on the actions write SQL alone or in a code fence, or a tool call as
their own training has it; these are inferred to be the action that they mean, and counted.
"""

import contextlib
import json
import logging
import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shared.actions import EXPECTED, MAX_ARGUMENT_BYTES, ActionType, SQLAction
from trainer.errors import ActionParseError

logger = logging.getLogger(__name__)

EMPTY = "(empty)"  # the query of an empty text: a syntax error
MAX_OBJECTS = 100  # of JSON that a text is searched for

_TYPES = f"(?ai:{'|'.join(ActionType)})"  # ASCII: a Turkish dotted I is no I
_THINK_OPEN = re.compile("<think>", re.IGNORECASE)
_THINK = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL | re.IGNORECASE)
# at the start of a text; where the prompt opens the block, the text only closes it
_THOUGHTS = re.compile(
    r"\A(?:\s*<think>)?(?:(?!<think>).)*?</think>\s*|\A\s*<think>.*", re.DOTALL | re.IGNORECASE
)
_FENCE = re.compile(r"```(?:sqlite|sql|json|text|markdown)?[ \t]*\n?", re.IGNORECASE)
_MARKS = r"[\s>*_`#\-•\d.]*"  # bullets, numbers, bold, headings
_HEAD = re.compile(
    rf"{_MARKS}(?P<label>(?:next\s)?action[*_`]*\s?[:=]{_MARKS})?(?P<kind>{_TYPES})\b[*_`]*\s*(?P<rest>.*)",
    re.IGNORECASE,
)
_ARGUMENT = re.compile(
    r"[*_`]*(?:action input|argument|arg|input)[*_`]*\s?[:=][*_`]*\s*", re.IGNORECASE
)
# SQL at the start of a line; of a fence: its whole content
_SQL = r"(?:SELECT\b|WITH\s+(?:RECURSIVE\s+)?\w+\s*(?:\([^)]*\)\s*)?AS\s*\()"
_FENCED_SQL = re.compile(rf"```\w*\s+({_SQL}.*?)(?:```|\Z)", re.DOTALL | re.IGNORECASE)
_BARE_SQL = re.compile(
    rf"^[ \t>`]*({_SQL}.*?)(?:;|`|\n\s*\n|\Z)", re.DOTALL | re.IGNORECASE | re.MULTILINE
)
_KIND_KEYS = ("action_type", "action", "name", "tool", "function")
_ARGUMENT_KEYS = ("argument", "args", "arguments", "parameters", "input", "action_input")
_TABLE_WORD = re.compile(r"(?:the )?table ", re.IGNORECASE)
_ONE_NAME = re.compile(r"""[`"'\[]?[^\s`"'\[\]]+[`"'\]]?[;.]?""")


@dataclass(frozen=True, slots=True)
class ParsedAction:
    """`inferred`: from SQL alone or a tool call; `fallback`: the raw text of no action, a QUERY."""

    action: SQLAction
    inferred: bool = False
    fallback: bool = False


class FallbackWarnings:
    """Logs the first fall-back as a warning, then at most one line per `every_s` with the count."""

    def __init__(self, every_s: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._every_s, self._clock = every_s, clock
        self._next_s, self._unreported = -math.inf, 0

    def add(self, text: str) -> None:
        """Count a text that was no action."""
        self._unreported += 1
        if (now := self._clock()) < self._next_s:
            return
        logger.warning(
            "%d of the model's texts since the last such line were no action and were sent as a "
            "QUERY; the latest: %r",
            *(self._unreported, text[:200]),
        )
        self._next_s, self._unreported = now + self._every_s, 0


fallback_warnings = FallbackWarnings()


def parse_model_output(text: str, *, strict: bool = False) -> SQLAction:
    """Return the first action in `text`; other text becomes a QUERY with the raw text.

    Accepts what `parse_with_fallback` does. Never raises, unless `strict`: then text that is no
    action raises `ActionParseError`. A fall-back is logged as a warning, at most once a minute.
    """
    parsed = parse_with_fallback(text)
    if parsed.fallback:
        if strict:
            raise ActionParseError(f"no action in {text[:80]!r}; {EXPECTED}")
        fallback_warnings.add(text)
    return parsed.action


def parse_with_fallback(text: str) -> ParsedAction:
    """Return the first action in `text` and whether it is a fall-back. Never raises.

    Accepts `ACTION: argument` and similar forms: any case, `Action: QUERY` with `Argument: ...`,
    `QUERY(SELECT 1)`, `DESCRIBE table x`, code fences, bold, bullets, JSON with action_type and
    argument, prose or a <think> block before it. If there is none, `inferred` is set and the action
    is that of a tool call in JSON, else a QUERY of SQL in a fence, else of SQL at the start of a
    line. Any other text becomes a QUERY with the raw text, with `fallback` set.
    """
    body = _THINK.sub("", without_thinking(text)).strip()
    unfenced = _FENCE.sub("", body).strip()
    if action := _canonical(body):
        return ParsedAction(action)
    value, inferred = _from_json(unfenced)
    if value is not None:
        return ParsedAction(value, inferred)
    if action := _from_lines(unfenced):
        return ParsedAction(action)
    if action := _from_sql(body):
        return ParsedAction(action, inferred=True)
    query = _action(ActionType.QUERY, unfenced or text.strip() or EMPTY)
    assert query is not None
    return ParsedAction(query, fallback=True)


def without_thinking(text: str) -> str:
    """Return `text` without the thinking that it begins with, or `text` itself if it has none."""
    return _THOUGHTS.sub("", text)


def first_turn(text: str) -> str | None:
    """Return `text` up to the end of the line of its first action; None while it may go on.

    An action line ends the turn of a model that would write the next turns, too. A code fence and
    thinking are waited for, and SQL that has no FROM on its first line, or no `QUERY:` before it,
    may span lines.
    """
    thoughts = len(text) - len(without_thinking(text))
    for match in re.compile("\n").finditer(text, thoughts):
        before = text[: match.start()]
        if before.count("```") % 2 or len(_THINK_OPEN.findall(before)) > before.count("</think>"):
            continue
        parsed = parse_with_fallback(before)
        if not parsed.fallback and not _may_go_on(before, parsed):
            return before
    return None


def _may_go_on(text: str, parsed: ParsedAction) -> bool:
    """Return whether the action that ends `text` is SQL that may span lines, and has not ended."""
    lines, first = text.split("\n"), parsed.action.argument.split("\n")[0]
    if not parsed.inferred and (
        parsed.action.action_type is not ActionType.QUERY or re.search(r"\bfrom\b", first, re.I)
    ):
        return False
    ended = lines[-1].rstrip()[-1:] in ("", ";", "`", "}", ">")
    return not ended and sum(_head(line) is not None for line in lines) < 2


def _canonical(text: str) -> SQLAction | None:
    """Parse the most frequent form without regular expressions: one line `TYPE: argument`."""
    kind, colon, argument = text.partition(": ")
    if not colon or kind not in ActionType.__members__ or "\n" in argument or "`" in argument:
        return None
    return _action(kind, argument)


def _from_json(text: str) -> tuple[SQLAction | None, bool]:
    """Return the action of the first JSON object that is one, and whether it is a tool call."""
    decoder, start = json.JSONDecoder(strict=False), text.find("{")
    for _ in range(MAX_OBJECTS):
        if start < 0:
            break
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            end = start + 1
        else:
            if action := _from_object(value):
                return action, not {"action_type", "action"} & value.keys()
        start = text.find("{", end)
    return None, False


def _from_object(value: dict[str, Any]) -> SQLAction | None:
    """Return the action of `{"action_type": ..., "argument": ...}` or of a tool call.

    A tool call names the action by its first word (`describe_table`); its arguments are an object
    or the text of one, with a single value.
    """
    if isinstance(value.get("function"), dict):  # OpenAI's
        value = value["function"]
    kind = next((value[key] for key in _KIND_KEYS if key in value), None)
    argument = next((value[key] for key in _ARGUMENT_KEYS if key in value), None)
    if not isinstance(kind, str) or argument is None:
        return None
    if "action" not in value and "action_type" not in value:
        kind = re.split(r"[\W_]", kind, maxsplit=1)[0]
        with contextlib.suppress(ValueError, RecursionError):
            argument = json.loads(argument) if isinstance(argument, str) else argument
        if isinstance(argument, dict):
            if len(argument) != 1:
                return None
            argument = next(iter(argument.values()))
    if not isinstance(argument, str):
        argument = json.dumps(argument, ensure_ascii=False)
    return _action(kind, argument)


def _from_sql(text: str) -> SQLAction | None:
    match = _FENCED_SQL.search(text) or _BARE_SQL.search(text)
    return _action(ActionType.QUERY, match[1]) if match else None


def _from_lines(text: str) -> SQLAction | None:
    """Return the first action with an argument: its line and those up to the next action's."""
    lines = text.split("\n")
    heads = [(number, head) for number, line in enumerate(lines) if (head := _head(line))]
    ends = [number for number, _ in heads[1:]] + [len(lines)]
    for (number, head), end in zip(heads, ends, strict=False):
        if action := _action(head["kind"], _argument(head["rest"], lines[number + 1 : end])):
            return action
    return None


def _head(line: str) -> re.Match[str] | None:
    """Return the match if `line` starts an action and not prose ('Query results show ...')."""
    head = _HEAD.fullmatch(line)
    if head is None:
        return None
    kind, rest = ActionType(head["kind"].upper()), head["rest"]
    if head["label"] or not rest or rest[0] in ":(=":
        return head
    if kind is ActionType.QUERY:
        plausible = rest[:6].upper() == "SELECT" or rest[:5].upper() == "WITH "
    elif kind is ActionType.ANSWER:
        plausible = head["kind"].isupper()
    else:
        plausible = _ONE_NAME.fullmatch(_TABLE_WORD.sub("", rest.strip(), count=1)) is not None
    return head if plausible else None


def _argument(rest: str, more: list[str]) -> str:
    """Extract the argument from the `rest` of the action's line and the lines after it."""
    text = "\n".join([rest, *more]).strip().removesuffix("**").rstrip()
    if text.startswith("(") and _closes_at_end(text.rstrip(";")):
        return text.rstrip(";")[1:-1].strip()
    text = re.sub(r"^[:=][\s*_]*", "", text)
    text = _ARGUMENT.sub("", text, count=1) if _ARGUMENT.match(text) else text
    if text.count("`") == 2 and text[0] == text[-1] == "`":
        text = text[1:-1]
    return text.strip()


def _closes_at_end(text: str) -> bool:
    """Return whether the last character closes the bracket that opens `text`."""
    depth = 0
    for index, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if depth == 0:
            return index == len(text) - 1
    return False


def _action(kind: str, argument: str) -> SQLAction | None:
    kind, argument = kind.strip().upper(), argument.strip()
    if kind not in ActionType.__members__ or not argument:
        return None
    if kind in (ActionType.DESCRIBE, ActionType.SAMPLE):
        argument = _table_name(argument)
    # JSON can spell half a surrogate pair
    encoded = argument.encode("utf-8", "replace")[:MAX_ARGUMENT_BYTES]
    argument = encoded.decode(errors="ignore")  # without half a character at the cut
    return SQLAction(action_type=ActionType(kind), argument=argument)


def _table_name(argument: str) -> str:
    """Extract a table's name from `table x;`, `"x"` or the first of several lines."""
    name = _TABLE_WORD.sub("", argument.split("\n")[0].strip(), count=1).rstrip(" ;.")
    if len(name) > 2 and name[0] + name[-1] in ("``", '""', "''", "[]"):
        name = name[1:-1]
    return name or argument
