"""The texts that an agent reads and writes, for frameworks in which each is one text."""

from shared.actions import ACTIONS, MAX_ARGUMENT_BYTES, ActionType, SQLAction, parse_action
from shared.errors import ActionParseError
from shared.models import SQLObservation

MAX_ACTION_CHARS = MAX_ARGUMENT_BYTES // 4  # a character has at most 4 bytes
INSTRUCTIONS = (
    "Answer a question about a SQLite database that you can't see. Each of your replies is one "
    "action and nothing else; after it you are shown its result.\n"
) + "\n".join(f"{kind}: {what}" for kind, what in ACTIONS.items())


def action_of(text: str) -> SQLAction:
    """Return the action in a text; any other text, cut if too long, is a QUERY and fails."""
    try:
        return parse_action(text)
    except ActionParseError:
        argument = text.strip()[:MAX_ACTION_CHARS] or ";"
        return SQLAction(action_type=ActionType.QUERY, argument=argument)


def first_text(seen: SQLObservation) -> str:
    """Return the text of a reset: the question, the tables and the steps."""
    return f"Question: {seen.question}\n{seen.schema_info}\n{steps_left(seen)}"


def step_text(seen: SQLObservation) -> str:
    """Return the text of a step: its result or its error, and the steps left."""
    return f"{f'Error: {seen.error}' if seen.error else seen.result}\n{steps_left(seen)}"


def steps_left(seen: SQLObservation) -> str:
    return "The episode is over." if seen.done else f"Steps left: {seen.budget_remaining}"
