"""The template of each shipped question."""

from functools import cache

from data.build import _questions, _sources


@cache
def shipped_forms() -> dict[str, str]:
    """Return the template's name of each shipped question by its id; `hard` if it has none."""
    return {
        question_id: item.draft.form
        for source in _sources()
        for _, question_id, item in _questions(source)
    }
