"""Success by form of question: how a run's episodes are grouped, and the page."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.learning.forms import Forms, Played, as_json, eval_questions, grouped, line, page
from data.domains.held_out import DATA_DIR
from shared.dataset import questions_path
from tests.benchmarks.test_learning import episode, finished
from trainer.errors import RunError

TEXTS = {
    "a": ("easy", "extreme_value", "What is the highest price of the orders?"),
    "b": ("easy", "extreme_value", "What is the smallest price of the orders?"),  # held out
    "c": ("easy", "count_all", "How many orders are there?"),
    "d": ("medium", "top_names", "Which three orders have the lowest price?"),
    "e": ("hard", "hard", "Which orders cost more than the mean of their city?"),
    "f": ("easy", "count_all", "Count the orders."),  # not played
}
QUESTIONS: list[Mapping[str, Any]] = [
    {"question_id": name, "difficulty": difficulty, "form": form, "question_text": text}
    for name, (difficulty, form, text) in TEXTS.items()
]


def played(right: Mapping[tuple[str, str], str], asked: str = "abcd") -> Played:
    """Return the episodes of one question per letter; those of `right` are correct."""
    return {
        key: [episode("1", name in names, question=name) for name in asked]
        for key, names in right.items()
    }


RUN = played(
    {
        ("before", "greedy"): "c",
        ("before", "sampled"): "",
        ("after", "greedy"): "abcd",
        ("after", "sampled"): "ac",
    }
)


def test_every_played_question_counts_once_by_form_and_difficulty() -> None:
    forms, sets = grouped(QUESTIONS, RUN)
    assert [(one.name, one.difficulty, one.n) for one in forms] == [
        ("count_all", "easy", 1),
        ("extreme_value", "easy", 2),
        ("top_names", "medium", 1),
    ]
    assert forms[1].rates["before"]["greedy"]["rate"] == 0
    assert forms[1].rates["after"]["greedy"]["rate"] == 1
    assert forms[1].rates["after"]["sampled"]["rate"] == 0.5
    assert [(one.name, one.difficulty, one.n) for one in sets] == [
        ("all forms", "easy and medium", 4),
        ("held-out pairs", "easy", 1),
    ]
    assert sets[1].rates["after"]["sampled"]["rate"] == 0


def test_the_page_has_a_row_per_form_and_set_with_intervals() -> None:
    forms, sets = grouped(QUESTIONS, RUN)
    hard = played(dict.fromkeys(RUN, "") | {("after", "greedy"): "e"}, asked="e")
    found = Forms(finished(), forms, [*sets, line("hard", [QUESTIONS[4]], hard)])
    text = page(found, "python -m benchmarks.learning forms --run runs/x")
    assert "    python -m benchmarks.learning forms --run runs/x\n" in text
    rows = [row for row in text.splitlines() if row.startswith("| ")]
    assert len(rows) == 2 * 2 + 3 + 3  # two heads of two lines
    assert "| extreme_value | easy | 2 | 0.0 [0.0, 65.8] | 100.0 [34.2, 100.0] |" in text
    assert "| hard | hard | 1 | 0.0 [0.0, 79.3] | 100.0 [20.7, 100.0] |" in text
    stored = json.loads(json.dumps(as_json(found, "c")))
    assert stored["sets"][2]["rates"]["after"]["greedy"]["rate"] == 1


def test_shipped_questions_get_their_forms_and_others_are_refused(tmp_path: Path) -> None:
    rows = eval_questions(questions_path(DATA_DIR, "train"))
    easy_and_medium = [one for one in rows if one["difficulty"] != "hard"]
    assert (len(rows), len(easy_and_medium)) == (494, 407)
    assert {one["form"] for one in rows if one["difficulty"] == "hard"} == {"hard"}
    other = [{name: one for name, one in QUESTIONS[0].items() if name != "form"}]
    questions_path(tmp_path, "eval").parent.mkdir()
    questions_path(tmp_path, "eval").write_text(json.dumps(other))
    with pytest.raises(RunError, match="a is of no template"):
        eval_questions(questions_path(tmp_path, "train"))
