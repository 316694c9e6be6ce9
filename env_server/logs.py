"""Log lines that name the episode they are about, as text or as one JSON object per line.

The episode is that of the request being handled (`about`); a line about another one passes
`extra={"episode_id": ...}`.
"""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Literal

TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s%(suffix)s"
_episode_id: ContextVar[str | None] = ContextVar("episode_id", default=None)
_RECORD = logging.LogRecord("", 0, "", 0, "", (), None)
_STANDARD = {*vars(_RECORD), "message", "asctime", "taskName", "suffix"}


@contextmanager
def about(episode_id: str) -> Iterator[None]:
    """Attribute the block's log lines, and the exceptions that leave it, to an episode."""
    token = _episode_id.set(episode_id)
    try:
        yield
    except Exception as error:
        vars(error).setdefault("episode_id", episode_id)
        raise
    finally:
        _episode_id.reset(token)


def episode_of(error: BaseException) -> dict[str, str]:
    """Return `extra` for a line about an error that left an `about` block."""
    return {"episode_id": str(vars(error).get("episode_id", ""))}


class WithEpisode(logging.Filter):
    """Sets each record's `episode_id`, "" if it is about none, and its form in `TEXT`."""

    def filter(self, record: logging.LogRecord) -> bool:
        episode_id = getattr(record, "episode_id", "") or _episode_id.get() or ""
        record.episode_id, record.suffix = episode_id, f" [{episode_id}]" if episode_id else ""
        return True


class JsonLines(logging.Formatter):
    """`{"time", "level", "logger", "message", ...}`, with `extra`'s fields and a `traceback`."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        extra = {name: value for name, value in vars(record).items() if name not in _STANDARD}
        fields |= {name: value for name, value in extra.items() if value != ""}
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False, default=str)


def configure(level: str, form: Literal["text", "json"]) -> None:
    """Make every logger write to stderr; uvicorn's, which log each request, from warnings up."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if form == "json" else logging.Formatter(TEXT))
    handler.addFilter(WithEpisode())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("uvicorn").setLevel(max(logging.WARNING, logging.getLogger().level))
