"""The template of each shipped question."""

from functools import cache

from data.build import shipped_questions


@cache
def shipped_forms() -> dict[str, str]:
    """Return the template's name of each shipped question by its id; `hard` if it has none."""
    return {
        f"{shipped.domain.db_id}-{split}-{number:04d}": item.draft.form
        for shipped, questions in shipped_questions()
        for split, items in questions.items()
        for number, item in enumerate(items, start=1)
    }
