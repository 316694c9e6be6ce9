"""Log lines name the episode they are about, as text and as JSON."""

import io
import json
import logging
from typing import Any

import pytest

from env_server.telemetry import TEXT, JsonLines, WithEpisode, about, episode_of


class Lines:
    """What a logger writes in one form."""

    def __init__(self, formatter: logging.Formatter) -> None:
        self.stream = io.StringIO()
        handler = logging.StreamHandler(self.stream)
        handler.setFormatter(formatter)
        handler.addFilter(WithEpisode())
        self.log = logging.Logger("env_server")
        self.log.addHandler(handler)

    @property
    def text(self) -> list[str]:
        return self.stream.getvalue().splitlines()

    @property
    def fields(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text]


@pytest.fixture
def as_json() -> Lines:
    return Lines(JsonLines())


def test_a_line_in_a_block_about_an_episode_names_it(as_json: Lines) -> None:
    as_text = Lines(logging.Formatter(TEXT))
    for log in (as_json.log, as_text.log):
        log.info("before")
        with about("ep-1"):
            log.warning('a "query"\nof %d lines', 2)
        log.info("after", extra={"episode_id": "ep-2"})
    assert [line.get("episode_id") for line in as_json.fields] == [None, "ep-1", "ep-2"]
    line = as_json.fields[1]
    assert (line["level"], line["message"]) == ("warning", 'a "query"\nof 2 lines')
    assert line["time"].endswith("+00:00")
    assert as_text.text[0].endswith("INFO env_server: before")
    assert as_text.text[-1].endswith("INFO env_server: after [ep-2]")


def test_exceptions_carry_the_episode_of_their_block(as_json: Lines) -> None:
    try:
        with about("ep-1"), about("ep-2"):
            raise ZeroDivisionError("a bug")
    except ZeroDivisionError as error:
        as_json.log.exception("a step failed", extra=episode_of(error))
    (line,) = as_json.fields
    assert line["episode_id"] == "ep-2", "the innermost block counts"
    assert "ZeroDivisionError: a bug" in line["traceback"]
