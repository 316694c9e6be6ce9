"""Decide whether an ANSWER is the gold answer: read many forms of text, compare them strictly.

    gold.py         `Gold`: a gold answer, and which other rows are the same answer
    layouts.py      an answer's text -> the rows that it may stand for
    gold_values.py  the gold's values, and which of them a cell of the answer may be
    pairing.py      pair the rows of two results, and their columns
    standards.py    `judge_answer`; `STANDARDS`: strict (ours), Spider's and BIRD's

`shared.answers` splits a text, and reads the numbers, dates and texts in it, with separators and
units. docs/trust.md has the rules. Whole texts are compared: 'It is 42' is not 42.
"""

from env_server.verifier.gold import Gold
from env_server.verifier.standards import (
    STANDARDS,
    STRICT,
    answer_verdicts,
    judge_answer,
    result_verdicts,
)

__all__ = ["STANDARDS", "STRICT", "Gold", "answer_verdicts", "judge_answer", "result_verdicts"]
