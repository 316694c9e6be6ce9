"""The texts that an agent reads, for frameworks in which an observation is one text."""

from shared.models import SQLObservation


def first_text(seen: SQLObservation) -> str:
    """Return the text of a reset: the question, the tables and the steps."""
    return f"Question: {seen.question}\n{seen.schema_info}\n{steps_left(seen)}"


def step_text(seen: SQLObservation) -> str:
    """Return the text of a step: its result or its error, and the steps left."""
    return f"{f'Error: {seen.error}' if seen.error else seen.result}\n{steps_left(seen)}"


def steps_left(seen: SQLObservation) -> str:
    """Return how many steps the episode has left, in words."""
    return "The episode is over." if seen.done else f"Steps left: {seen.budget_remaining}"
