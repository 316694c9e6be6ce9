"""The word lists of the cell makers, from lexicon.toml."""

import tomllib
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, TypeAdapter


def listed(text: str) -> tuple[str, ...]:
    """Split `text` into words at each `|`, or at white space if it has no `|`."""
    return tuple(word.strip() for word in (text.split("|") if "|" in text else text.split()))


WordList = Annotated[tuple[str, ...], BeforeValidator(listed)]

LISTS = TypeAdapter(dict[str, WordList]).validate_python(
    tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
)
LISTS["one_word_cities"] = tuple(city for city in LISTS["cities"] if " " not in city)
