"""Whether a question's text gives its answer away."""

from typing import Any

import pytest

from data.choose import contains_answer


@pytest.mark.parametrize(
    ("text", "answer", "contained"),
    [
        ("Is it moo or low?", "Moo", True),
        ("Who is José.Vega7?", "jose vega", True),
        ("Which of Rex and Ida is older?", ["Ida", "Rex"], True),
        ("Who wrote the book?", "A book", True),
        ("What is a grade with the code 3?", "A", False),
        ("What is a grade with the code 3?", "Grade A", False),
        ("Who plays in The The?", "The The", True),
        ("Which food has most vitamin A in it?", "Vitamin A", True),
        ("Which state is it in?", "IN", False),
        ("What is the driver's size?", "S", False),
        ("Which sign has the code 3?", "+", False),
        ("Which code has the sign?", 3, False),
    ],
)
def test_an_answer_in_the_text(text: str, answer: Any, contained: bool) -> None:
    assert contains_answer(text, answer) is contained
