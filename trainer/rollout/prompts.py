"""What the model reads: the system prompt and the text of an observation.

The offline model is trained on exactly these bytes; after a change it must be pretrained again.
"""

import hashlib
import re

from shared.actions import ACTIONS, ActionType
from shared.code_digest import code_digest
from shared.models import SQLObservation, StepResult

ERROR = "Error:"  # begins the observation of an action that failed
STEPS_LEFT = "Steps left:"  # after an observation, before their number
NO_ROWS = "(no rows)"
NOTE = "(note: "  # begins a remark below a result
# beginnings of lines of a result that are no rows
REMARKS = (NO_ROWS, "(first ", "(cut: ", NOTE)
_AFTER_RESULT = re.compile(rf"\n?{STEPS_LEFT} -?\d+(?:\n.+)?\Z")  # and a hint
SHORT_SYSTEM_PROMPT = "Answer from the database: " + ", ".join(ActionType) + "."

_EXAMPLES = {
    ActionType.DESCRIBE: "DESCRIBE: orders",
    ActionType.SAMPLE: "SAMPLE: orders",
    ActionType.QUERY: "QUERY: SELECT COUNT(*) FROM orders WHERE total > 100",
    ActionType.ANSWER: "ANSWER: 42",
}

FULL_SYSTEM_PROMPT = "\n".join(
    [
        "You answer a question about a SQLite database that you can't see. "
        "You explore it with one action per turn.",
        "",
        "Each of your replies is one line that begins with DESCRIBE:, SAMPLE:, QUERY: or ANSWER:, "
        "and nothing else. After each you are shown its result. What the four do:",
        *(f"- {kind}: {ACTIONS[kind]}." for kind in ActionType),
        "",
        "For example, the replies to 'How many orders have a total above 100?', one per turn:",
        *(_EXAMPLES[kind] for kind in ActionType),
        "",
        "Describe the tables that you need before you query them: names are not "
        "what you would guess. Only SELECT works.",
        "Write the answer as the data has it: a number or text alone; "
        'several values as a JSON array, for example ["Ann", "Bo"]; '
        'several columns as JSON rows, for example [["Ann", 3], ["Bo", 1]].',
        "Each action costs one step. "
        "When you know the answer, give it: without an ANSWER the question is lost.",
    ]
)

_SYSTEM_PROMPTS = {"full": FULL_SYSTEM_PROMPT, "short": SHORT_SYSTEM_PROMPT}


# After a result, by the action that it is of; without them a small model repeats its action.
_HINTS = {
    "": "Describe the table that the question is about.",
    ActionType.DESCRIBE: "Now send the QUERY that answers: {question} Or describe another table.",
    ActionType.SAMPLE: "Now send the QUERY that answers: {question}",
    ActionType.QUERY: "If this result answers the question, send it as ANSWER: value. "
    "Otherwise send another QUERY.",
}
_ERROR_HINT = "Send another action: the column may be in another table, which you can describe."
_NO_ROWS_HINT = (
    "No row matches. Use SAMPLE to see how the values are written, then send another QUERY."
)
_NOTE_HINT = "No row matches: read the note, then send another QUERY."


def get_system_prompt(kind: str = "full") -> str:
    """Return a system prompt: `full` instructs a general model, also after each observation;
    `short` is one line, for a model that was trained on it; other text stands for itself."""
    return _SYSTEM_PROMPTS.get(kind, kind)


def prompt_digest(kind: str) -> str:
    """Return a digest of what decides a model's messages and how its turns are read: the system
    prompt and the code of both."""
    code = code_digest(*(f"trainer/rollout/{name}.py" for name in ("prompts", "parsing")))
    texts = code_digest("shared/actions.py")
    return hashlib.sha256("\n".join([get_system_prompt(kind), code, texts]).encode()).hexdigest()


def opening_messages(kind: str = "full") -> list[dict[str, str]]:
    return [{"role": "system", "content": get_system_prompt(kind)}]


def _hint(text: str, observation: SQLObservation) -> str:
    action = observation.action_history[-1] if observation.action_history else ""
    kind = action.split(":")[0]
    if kind == ActionType.QUERY and f"\n{NO_ROWS}\n" in text:
        return _NOTE_HINT if f"\n{NOTE}" in text else _NO_ROWS_HINT
    if text.startswith(ERROR):
        return _ERROR_HINT
    return _HINTS.get(kind, "").format(question=observation.question)


def format_observation(observation: SQLObservation | StepResult, kind: str = "full") -> str:
    """Return the user message that shows `observation`, or that of a step's or reset's reply.

    At step 0 it is the question and the tables' names; later the last action's result or error.
    Both end with the steps left, and except with the short prompt with a hint at the next action.
    It never shows the reward, which would reveal the gold.
    """
    if isinstance(observation, StepResult):
        observation = observation.observation
    if observation.step_count == 0:
        body = f"Question: {observation.question}\n{observation.schema_info}"
    elif observation.error is not None:
        body = f"{ERROR} {observation.error}"
    else:
        body = observation.result
    text = f"{body}\n{STEPS_LEFT} {observation.budget_remaining}"
    ended = observation.done or not observation.budget_remaining
    hint = "" if ended or kind == "short" else _hint(text, observation)
    return f"{text}\n{hint}" if hint else text


def result_of(message: str) -> str:
    """Return the result in a user message: what `format_observation` wrote, without its end."""
    return _AFTER_RESULT.sub("", message)


def result_lines(result: str) -> tuple[list[str], list[str]]:
    """Return the rows of a QUERY's or a SAMPLE's result as lines, and the remarks below them."""
    rows, remarks = result.split("\n")[1:], list[str]()
    while rows and rows[-1].startswith(REMARKS):
        remarks.append(rows.pop())
    return rows, remarks


def result_rows(result: str) -> list[list[str]]:
    """Return the cells of a QUERY's or a SAMPLE's result, without its header and remarks."""
    return [line.split(" | ") for line in result_lines(result)[0]]
