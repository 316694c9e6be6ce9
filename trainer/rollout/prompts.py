"""What the model reads: the system prompt and the text of an observation.

The offline model is trained on exactly these bytes; after a change it must be pretrained again.
"""

from shared.actions import ACTIONS, ActionType
from shared.models import SQLObservation, StepResult
from trainer.config import PromptKind
from trainer.errors import ConfigError

STEPS_LEFT = "Steps left:"  # before the number that ends each observation
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
        "You explore it with one action a turn.",
        "",
        "Reply with one line, 'ACTION: argument', and nothing else. The actions are:",
        *(f"- {kind}: {ACTIONS[kind]}. Example: {_EXAMPLES[kind]}" for kind in ActionType),
        "",
        "Describe the tables that you need before you query them: names are not "
        "what you would guess. Only SELECT works.",
        "Write the answer as the data has it: a number or text alone; "
        "several values as a JSON array; "
        'several columns as JSON rows, for example [["Ann", 3], ["Bo", 1]].',
        "Each action costs one step. "
        "When you know the answer, give it: without an ANSWER the question is lost.",
    ]
)

_SYSTEM_PROMPTS: dict[str, str] = {"full": FULL_SYSTEM_PROMPT, "short": SHORT_SYSTEM_PROMPT}


def get_system_prompt(kind: PromptKind = "full") -> str:
    """Return the system prompt: `full` instructs a general model; `short` is one line, for a model
    that was trained on it."""
    if kind not in _SYSTEM_PROMPTS:
        raise ConfigError(f"no system prompt {kind!r}: use one of {', '.join(_SYSTEM_PROMPTS)}")
    return _SYSTEM_PROMPTS[kind]


def format_observation(observation: SQLObservation | StepResult) -> str:
    """Return the user message that shows `observation`, or that of a step's or reset's reply.

    At step 0 it is the question and the tables' names; later the last action's result or error.
    Both end with the steps left. It never shows the reward, which would reveal the gold.
    """
    if isinstance(observation, StepResult):
        observation = observation.observation
    if not isinstance(observation, SQLObservation):
        raise TypeError(
            f"format_observation takes an SQLObservation or a StepResult, not a "
            f"{type(observation).__name__}: for JSON use SQLObservation.model_validate(...)"
        )
    if observation.step_count == 0:
        body = f"Question: {observation.question}\n{observation.schema_info}"
    elif observation.error is not None:
        body = f"Error: {observation.error}"
    else:
        body = observation.result
    return f"{body}\n{STEPS_LEFT} {observation.budget_remaining}"
