"""Log lines with the id of the episode that they are about: for people, or as one JSON object a
line.

The id is that of the request under way (`about`); a line about another gives its own:
`extra={"episode_id": ...}`.
"""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Literal

_episode_id: ContextVar[str | None] = ContextVar("episode_id", default=None)

_STANDARD = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None))) | {
    "message",
    "asctime",
    "taskName",
}


@contextmanager
def about(episode_id: str) -> Iterator[None]:
    """Lines written inside the block are about this episode, and so is what it raises (`blamed`)."""
    token = _episode_id.set(episode_id)
    try:
        yield
    except Exception as error:
        vars(error).setdefault("episode_id", episode_id)
        raise
    finally:
        _episode_id.reset(token)


def blamed(error: BaseException) -> dict[str, str]:
    """`extra` for a line about an error that left an `about` block."""
    return {"episode_id": str(vars(error).get("episode_id", ""))}


class WithEpisode(logging.Filter):
    """Gives each record its `episode_id`; "" where it is about none."""

    def filter(self, record: logging.LogRecord) -> bool:
        if not getattr(record, "episode_id", ""):
            record.episode_id = _episode_id.get() or ""
        return True


class TextLines(logging.Formatter):
    """`time LEVEL logger: message [episode]`."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        line = super().formatMessage(record)
        episode_id = getattr(record, "episode_id", "")
        return f"{line} [{episode_id}]" if episode_id else line


class JsonLines(logging.Formatter):
    """`{"time", "level", "logger", "message", ...}`: the fields of `extra` and, after a failure,
    `traceback`."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields |= {
            name: value
            for name, value in vars(record).items()
            if name not in _STANDARD and value != ""
        }
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False, default=str)


def configure(level: str, form: Literal["text", "json"]) -> None:
    """Every logger writes to stderr in this form. Uvicorn's own, and it logs each request, only
    warns."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    handler.addFilter(WithEpisode())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("uvicorn").setLevel(max(logging.WARNING, logging.getLogger().level))
