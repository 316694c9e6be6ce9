"""Parse a model's text into an action. Text that is no action becomes a QUERY with the raw text."""

import contextlib
import json
import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from shared.actions import EXPECTED, MAX_ARGUMENT_BYTES, ActionType, SQLAction
from shared.sqltext import unquote_identifier
from trainer.errors import ActionParseError

logger = logging.getLogger(__name__)

EMPTY = "(empty)"  # the query of an empty text: a syntax error
TOOL_CALL = "<tool_call>"  # begins one in the texts of many models
MAX_OBJECTS = 100  # of JSON that a text is searched for

_TYPES = f"(?ai:{'|'.join(ActionType)})"  # ASCII: a Turkish dotted I is no I
_THINK_OPEN = re.compile("<think>", re.IGNORECASE)
_THINK = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL | re.IGNORECASE)
# at the start of a text; where the prompt opens the block, the text only closes it
_THOUGHTS = re.compile(
    r"\A(?:\s*<think>)?(?:(?!<think>).)*?</think>\s*|\A\s*<think>.*", re.DOTALL | re.IGNORECASE
)
_FENCE = re.compile(r"```(?:sqlite|sql|json|text|markdown)?[ \t]*\n?", re.IGNORECASE)
_ENDS = re.compile(r"[\n;]")  # where an action may end
_QUOTED_OR_COMMENT = re.compile(
    r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|\[[^\]]*\]|--[^\n]*\n|/\*.*?\*/""", re.DOTALL
)
_OPENED = re.compile(r"""['"`\[]|--|/\*""")
_MARKS = r"[\s>*_`#\-•\d.]*"  # bullets, numbers, bold, headings
_HEAD = re.compile(
    rf"{_MARKS}(?P<label>(?:next\s)?action[*_`]*\s?[:=]{_MARKS})?(?P<kind>{_TYPES})\b[*_`]*\s*(?P<rest>.*)",
    re.IGNORECASE,
)
_ARGUMENT = re.compile(
    r"[*_`]*(?:action input|argument|arg|input)[*_`]*\s?[:=][*_`]*\s*", re.IGNORECASE
)
_TABLE_OF_WITH = r"\s+(?i:RECURSIVE\s+)?\w+\s*(?:\([^)]*\)\s*)?(?i:AS)\s*\("
# the whole content of a fence
_FENCED_SQL = re.compile(rf"```\w*\s+((?i:SELECT\b|WITH{_TABLE_OF_WITH}).*?)(?:```|\Z)", re.DOTALL)
# from the start of a line up to a semicolon outside quotes, a blank line or the end of inline code;
# 'Select' begins prose
_BARE_SQL = re.compile(
    rf"^[ \t>]*(?P<code>`+)?(?P<sql>(?:(?:SELECT|select)\b|(?:WITH|with){_TABLE_OF_WITH})"
    r"(?:'[^'\n]*'|.)*?)(?:;|(?(code)`|(?!))|\n\s*\n|\Z)",
    re.DOTALL | re.MULTILINE,
)
_SELECT = re.compile(r"[\s>`]*(?:SELECT|select)\b")  # 'Select' begins prose
_KIND_KEYS = ("action_type", "action", "name", "tool", "function")
_ARGUMENT_KEYS = ("argument", "args", "arguments", "parameters", "input", "action_input")
_BOLD = re.compile(r"\*\*(?:[^*]|\*(?!\*))+\*\*")
# a line that goes on with a query ('From' begins prose), or with an answer of a row per line
_KEYWORDS = (
    "FROM|WHERE|AND|OR|ON|GROUP|HAVING|ORDER|LIMIT|OFFSET|JOIN|LEFT|RIGHT|FULL|INNER|CROSS|NATURAL"
    "|UNION|INTERSECT|EXCEPT|WINDOW|SELECT|CASE|WHEN|ELSE|END|AS"
)
_SQL_LINE = re.compile(rf"\s*(?:[),]|\((?i:SELECT|WITH)\b|(?:{_KEYWORDS}|{_KEYWORDS.lower()})\b)")
_ITEM_LINE = re.compile(r"\s*(?:[-*•]\s|\||\d{1,3}[.)]\s)")
_TABLE_WORD = re.compile(r"(?:the )?table ", re.IGNORECASE)
_QUOTED_NAME = re.compile(r'"(?:[^"]|"")+"')  # as observations write it
_ONE_NAME = re.compile(rf"""(?:{_QUOTED_NAME.pattern}|[`"'\[]?[^\s`"'\[\]]+[`"'\]]?)[;.]?""")


@dataclass(frozen=True, slots=True)
class ParsedAction:
    """`inferred`: from SQL alone or a tool call; `fallback`: the raw text of no action, a QUERY."""

    action: SQLAction
    inferred: bool = False
    fallback: bool = False


def parse_model_output(text: str, *, strict: bool = False) -> SQLAction:
    """Return the first action in `text`; other text becomes a QUERY with the raw text.

    Accepts what `parse_with_fallback` does. Text that is no action is logged as a warning, and
    raises `ActionParseError` if `strict`.
    """
    parsed = parse_with_fallback(text)
    if parsed.fallback:
        if strict:
            raise ActionParseError(f"no action in {text[:80]!r}; {EXPECTED}")
        logger.warning("no action in %r: it is sent as a QUERY", text[:200])
    return parsed.action


def parse_with_fallback(text: str) -> ParsedAction:
    """Return the first action in `text` and whether it is a fall-back. Never raises.

    Accepts `ACTION: argument` and similar forms: any case, `Action: QUERY` with `Argument: ...`,
    `QUERY(SELECT 1)`, `DESCRIBE table x`, code fences, bold, bullets, JSON with action_type and
    argument, prose or a <think> block before it. `inferred` is set where no such form comes before
    a tool call in JSON, whose action it then is, or before SQL in a fence or at the start of a
    line, a QUERY. A call after <tool_call> precedes all of these. Any other text becomes a QUERY
    with the raw text, with `fallback` set.
    """
    body = _visible(text).strip()
    if TOOL_CALL in body and (call := _from_json(body.partition(TOOL_CALL)[2])[0]):
        return ParsedAction(call, inferred=True)
    unfenced = _FENCE.sub("", body).strip()
    if action := _canonical(body):
        return ParsedAction(action)
    lines = body.split("\n")
    first = next((number for number, _ in _heads(lines)), len(lines))
    if parsed := _from_json_or_sql("\n".join(lines[:first])):
        return parsed
    if action := _from_lines(unfenced):
        return ParsedAction(action)
    if first < len(lines) and (parsed := _from_json_or_sql(body)):
        return parsed
    query = _action(ActionType.QUERY, unfenced or text.strip() or EMPTY)
    assert query is not None
    return ParsedAction(query, fallback=True)


def without_thinking(text: str) -> str:
    """Return `text` without the thinking that it begins with, or `text` itself if it has none."""
    return _THOUGHTS.sub("", text)


def without_half_pairs(text: str) -> str:
    """Replace by `?` each half of a surrogate pair: JSON can spell it, UTF-8 can't encode it."""
    return text.encode(errors="replace").decode()


def _visible(text: str) -> str:
    return _THINK.sub("", without_thinking(text))


def first_turn(text: str) -> str | None:
    """Return `text` up to the end of its first action, a line or an SQL statement; None while it
    may go on.

    It ends the turn of a model that would write the next turns, too. A code fence and thinking are
    waited for. An answer may span lines while its JSON array is open, and SQL that has no FROM on
    its first line, or no `QUERY:` before it, up to a semicolon or a blank line.
    """
    thoughts = len(text) - len(without_thinking(text))
    for match in _ENDS.finditer(text, thoughts):
        line = match[0] == "\n"
        before = text[: match.start() if line else match.end()]
        if len(_THINK_OPEN.findall(before)) > before.count("</think>"):
            continue
        if line and before.count("```") % 2:
            continue
        parsed = parse_with_fallback(before)
        if parsed.fallback:
            continue
        if not _may_go_on(_visible(before), parsed) if line else _is_statement(parsed.action):
            return before
    return None


def whole_turn(text: str) -> str:
    """Return a complete reply up to the end of its first action. Unlike in `first_turn`, the lines
    behind it are known: SQL may go on there, and an answer as bullets or a table."""
    turn = first_turn(text)
    if turn is None:
        return text
    action = parse_with_fallback(turn).action
    argument = action.argument
    for line in text[len(turn) + 1 :].split("\n"):
        goes_on = False
        if action.action_type is ActionType.QUERY and not turn.endswith((";", "`")):
            outside = _QUOTED_OR_COMMENT.sub("", argument)
            opened = outside.count("(") > outside.count(")")
            goes_on = opened or _SQL_LINE.match(line) is not None
        elif action.action_type is ActionType.ANSWER:
            goes_on = all(map(_ITEM_LINE.match, (argument, line)))
        if not goes_on or _head(line):
            break
        turn, argument = f"{turn}\n{line}", f"{argument}\n{line}"
    return turn


def begins_action(text: str) -> bool:
    """Return whether an unfinished turn has come to an action, or to what may hold one: thinking, a
    code fence or JSON."""
    opened = any(mark in text for mark in ("```", "{")) or _THINK_OPEN.search(text)
    return bool(opened) or not parse_with_fallback(text).fallback


def _is_statement(action: SQLAction) -> bool:
    """Return whether an action is a query that ends with a semicolon outside quotes and comments,
    none of which is left open."""
    if action.action_type is not ActionType.QUERY or not action.argument.endswith(";"):
        return False
    outside = _QUOTED_OR_COMMENT.sub("", action.argument)
    return outside.endswith(";") and not _OPENED.search(outside)


def _may_go_on(text: str, parsed: ParsedAction) -> bool:
    """Return whether the action that ends `text` may span lines, and has not ended."""
    kind, argument = parsed.action.action_type, parsed.action.argument
    if kind is ActionType.ANSWER:
        spans = argument.startswith("[") and argument.count("[") > argument.count("]")
    elif kind is ActionType.QUERY:
        spans = parsed.inferred or not re.search(r"\bfrom\b", argument.split("\n")[0], re.I)
    else:
        spans = False
    *_, last = lines = text.split("\n")
    # what closes a fence, inline code or JSON is no part of the argument
    ended = not last.strip() or last.rstrip()[-1:] == ";" or not text.rstrip().endswith(argument)
    return spans and not ended and len([*_heads(lines)]) == (not parsed.inferred)


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
        if isinstance(argument, str):
            with contextlib.suppress(ValueError, RecursionError):
                decoded = json.loads(argument)
                # a number stays as it is written
                argument = decoded if isinstance(decoded, (dict, str)) else argument
        if isinstance(argument, dict):
            if len(argument) != 1:
                return None
            argument = next(iter(argument.values()))
    if not isinstance(argument, str):
        argument = json.dumps(argument, ensure_ascii=False)
    return _action(kind, argument)


def _from_json_or_sql(text: str) -> ParsedAction | None:
    """Return the action of a JSON object, else of SQL in a fence, else at the start of a line."""
    action, inferred = _from_json(_FENCE.sub("", text))
    if action is not None:
        return ParsedAction(action, inferred)
    if (fenced := _FENCED_SQL.search(text)) is not None:
        query = _action(ActionType.QUERY, fenced[1])
    else:
        bare = _BARE_SQL.search(text)
        query = _action(ActionType.QUERY, bare["sql"]) if bare else None
    return ParsedAction(query, inferred=True) if query else None


def _from_lines(text: str) -> SQLAction | None:
    """Return the first action with an argument: its line and those up to the next action's."""
    lines = text.split("\n")
    heads = [*_heads(lines)]
    ends = [number for number, _ in heads[1:]] + [len(lines)]
    for (number, head), end in zip(heads, ends, strict=False):
        if action := _action(head["kind"], _argument(head["rest"], lines[number + 1 : end])):
            return action
    return None


def _heads(lines: Sequence[str]) -> Iterator[tuple[int, re.Match[str]]]:
    """Yield the lines that start an action, with their numbers. Within SQL, a name alone is none,
    nor one that an alias or a sign follows: a column may be called answer."""
    in_sql = False
    for number, line in enumerate(lines):
        starts = _SELECT.match(line) is not None
        if (head := _head(line)) is not None:
            before, kind = line[: head.start("kind")].strip(), head["kind"]
            if in_sql and not before and not kind.isupper() and head["rest"][:1] not in (":", "("):
                continue
            yield number, head
            starts = head["kind"].upper() == ActionType.QUERY
        ends = not line.strip() or line.rstrip().endswith(";")
        in_sql = not ends and (in_sql or starts)


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
    text = "\n".join([rest, *more]).strip()
    called = text.startswith("(")  # QUERY(SELECT 1)
    # an underscore that no space follows may begin a table's name
    text = re.sub(r"^[:=](?:[*_]+\s)?\s*", "", text)
    if _BOLD.fullmatch(text) or text.count("**") % 2:  # '**Ann**, **Bob**' has two pairs
        text = text.removeprefix("**").removesuffix("**").strip()
    if called and _closes_at_end(text.rstrip(";")):
        return text.rstrip(";")[1:-1].strip()
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
    first = argument.split("\n")[0].strip().rstrip(" ;.")
    if _QUOTED_NAME.fullmatch(first):
        return unquote_identifier(first)
    name = _TABLE_WORD.sub("", first, count=1)
    if len(name) > 2 and name[0] + name[-1] in ("``", '""', "''", "[]"):
        name = name[1:-1]
    return name or argument
