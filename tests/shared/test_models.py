"""The wire's models: what is refused, and that each side reads what the other writes."""

import json

import pytest

from shared.models import SQLObservation, StepResult
from tests.shared.client.fake_server import FakeServer

EPISODE = {"actions": ["QUERY: 1"], "budget": 5, "question_id": "q"}
RESULT = FakeServer().result(EPISODE, "n\n1")


def test_unknown_fields_of_a_newer_server_are_ignored():
    later = json.loads(json.dumps(RESULT)) | {"later": 1}
    later["observation"]["later"] = later["info"]["later"] = 2
    assert StepResult.model_validate(later) == StepResult.model_validate(RESULT)


def test_observations_have_no_id_no_clock_and_no_gold():
    hidden = ("id", "gold", "time", "clock", "ledger", "outcome", "sql")
    names = SQLObservation.model_fields
    assert [name for name in names if any(word in name for word in hidden)] == []


@pytest.mark.parametrize(
    ("schema_info", "tables"),
    [
        ("Tables: a, b c", ["a", "b c"]),
        ("Tables: a, b\na(x, y)\nb(z)", ["a", "b"]),
        ("Tables: ", []),
    ],
)
def test_an_observation_lists_its_tables(schema_info, tables):
    fields = RESULT["observation"] | {"schema_info": schema_info}
    observation = SQLObservation.model_validate(fields)
    assert observation.tables == tables
    assert "tables" not in observation.model_dump()
