"""Log lines name the episode they are about, as text and as JSON."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from env_server.logs import TEXT, JsonLines, WithEpisode, about, episode_of

pytestmark = pytest.mark.anyio


class Lines:
    """What a logger wrote, in either form."""

    def __init__(self, formatter: logging.Formatter) -> None:
        self.stream = io.StringIO()
        self.handler = logging.StreamHandler(self.stream)
        self.handler.setFormatter(formatter)
        self.handler.addFilter(WithEpisode())

    @property
    def text(self) -> list[str]:
        return self.stream.getvalue().splitlines()

    @property
    def fields(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text]


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    logger = logging.getLogger("env_server")
    before, logger.level = logger.level, logging.DEBUG
    yield logger
    logger.setLevel(before)


@pytest.fixture
def as_json(log: logging.Logger) -> Iterator[Lines]:
    lines = Lines(JsonLines())
    log.addHandler(lines.handler)
    yield lines
    log.removeHandler(lines.handler)


@pytest.fixture
def as_text(log: logging.Logger) -> Iterator[Lines]:
    lines = Lines(logging.Formatter(TEXT))
    log.addHandler(lines.handler)
    yield lines
    log.removeHandler(lines.handler)


def test_a_line_in_a_block_about_an_episode_names_it(
    log: logging.Logger, as_json: Lines, as_text: Lines
) -> None:
    log.info("before")
    with about("ep-1"):
        log.warning('a "query"\nof %d lines', 2)
    log.info("after", extra={"episode_id": "ep-2"})
    assert [line.get("episode_id") for line in as_json.fields] == [None, "ep-1", "ep-2"]
    line = as_json.fields[1]
    assert (line["level"], line["logger"], line["message"]) == (
        "warning",
        "env_server",
        'a "query"\nof 2 lines',
    )
    assert line["time"].endswith("+00:00")
    assert len(as_json.text) == 3, "one object per line"
    assert as_text.text[0].endswith("INFO env_server: before")
    assert as_text.text[-1].endswith("INFO env_server: after [ep-2]")


def test_exceptions_carry_the_episode_of_their_block(log: logging.Logger, as_json: Lines) -> None:
    try:
        with about("ep-1"), about("ep-2"):
            raise ZeroDivisionError("a bug")
    except ZeroDivisionError as error:
        log.exception("a step failed", extra=episode_of(error))
    (line,) = as_json.fields
    assert line["episode_id"] == "ep-2", "the innermost block counts"
    assert "ZeroDivisionError: a bug" in line["traceback"]
