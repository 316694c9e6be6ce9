"""The error tree, with the HTTP status of each error.

An error crosses the wire as `{"error": {"code", "message", "retryable", ...details}}` (`to_wire`)
and becomes the same class again on the client (`from_wire`).
"""

from typing import Any, ClassVar

from pydantic import ValidationError


class SQLEnvError(Exception):
    """Base of the tree: `message` is what is wrong and what to do, `details` more JSON fields."""

    code: ClassVar[str] = "error"
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    def __init_subclass__(
        cls, code: str | None = None, status: int | None = None, retryable: bool | None = None
    ) -> None:
        cls.code, cls.status = code or cls.code, status or cls.status
        cls.retryable = cls.retryable if retryable is None else retryable

    def __init__(self, message: str, /, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def to_wire(self) -> dict[str, Any]:
        fields = {"code": self.code, "message": self.message, "retryable": self.retryable}
        return {"error": fields | self.details}


class InvalidRequest(SQLEnvError, code="invalid_request", status=422):
    """The body is not what the endpoint takes."""


class ActionParseError(SQLEnvError, code="invalid_action", status=400):
    """Neither an action object nor an action's text form."""


class Unauthorized(SQLEnvError, code="unauthorized", status=401):
    """No key, or one that does not open this path."""


class Forbidden(SQLEnvError, code="forbidden", status=403):
    """The key may not ask for this."""


class UnknownEpisode(SQLEnvError, code="unknown_episode", status=404):
    """No such episode here: reset it, with its actions."""


class UnknownQuestion(SQLEnvError, code="unknown_question", status=404):
    """No question matches the id or the filters."""


class Conflict(SQLEnvError, code="conflict", status=409):
    """The request contradicts the episode's history."""


class Behind(SQLEnvError, code="behind", status=409):
    """The caller has seen more steps than this server."""


class DigestMismatch(SQLEnvError, code="digest_mismatch", status=409):
    """A replay on a server whose data or rules differ."""


class BodyTooLarge(SQLEnvError, code="body_too_large", status=413):
    """The body is over the limit."""


class ReplyTooLarge(SQLEnvError, code="reply_too_large", status=413, retryable=True):
    """There is no room for an item's reply in that of its batch: send fewer items."""


class EpisodeTooLarge(SQLEnvError, code="episode_too_large", status=413):
    """The action would make the episode's actions larger than the limit; it was not played."""


class CapacityReached(SQLEnvError, code="capacity", status=429, retryable=True):
    """The server's pool is full. `details["retry_after_s"]` is the Retry-After header's seconds."""


class QueueFull(SQLEnvError, code="queue_full", status=429, retryable=True):
    """Too much of the caller's work is under way. `details["limit"]` names the setting."""


class InternalError(SQLEnvError, code="internal", status=500, retryable=True):
    """A fault of the server."""


class NotReady(SQLEnvError, code="not_ready", status=503, retryable=True):
    """The server starts, drains or has no SQL worker."""


class TimedOut(SQLEnvError, code="timeout", status=503, retryable=True):
    """The request exceeded the server's time. The work continues for a while: the same step sent
    again waits for it, or gets its reply."""


class ServerUnreachable(SQLEnvError, code="unreachable", status=503, retryable=True):
    """No reply from a server; raised only by the client. The message names the URL."""


class WrongAddress(ServerUnreachable, code="wrong_address", retryable=False):
    """No environment server can answer at the URL as it is."""


class ServerStartError(SQLEnvError, code="server_start"):
    """A server started as a child process did not get ready. The message ends with its log."""


class DataError(SQLEnvError, code="data", status=500):
    """Data on disk is missing, corrupt or malformed. The message names the path and the remedy."""


class QuestionLoadError(DataError, code="question_load"):
    """A questions file can't be used."""


class DatabaseLoadError(DataError, code="database_load"):
    """A SQLite file can't be used."""


BY_CODE: dict[str, type[SQLEnvError]] = {
    kind.code: kind
    for kind in list(globals().values())
    if isinstance(kind, type) and issubclass(kind, SQLEnvError)
}


def from_wire(body: object, status: int | None = None, source: str = "the server") -> SQLEnvError:
    """Return the error in `body`, the JSON of a reply from `source`, as its class.

    An unknown code becomes a plain `SQLEnvError` with the sender's `code` and `retryable` in its
    details, and a body of another program (a proxy's page) one with the HTTP `status`.
    """
    fields = body.get("error") if isinstance(body, dict) else None
    if not isinstance(fields, dict):
        answered = "answered" if status is None else f"answered HTTP {status}"
        message = f"{source} {answered} with a body that is not SQLEnv's; check the address"
        return SQLEnvError(message, status=status)
    kind = BY_CODE.get(str(fields.get("code")))
    known = ("message",) if kind is None else ("code", "message", "retryable")
    details = {key: value for key, value in fields.items() if key not in known}
    if kind is None and status is not None:
        details["status"] = status
    return (kind or SQLEnvError)(str(fields.get("message", "")), **details)


def first_problem(error: ValidationError, whole: str) -> str:
    """Return `field.path: what is wrong` of the first invalid field; `whole` names the root."""
    problem = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, problem['loc'])) or whole}: {problem['msg']}"


def is_retryable(error: SQLEnvError) -> bool:
    """Return whether sending the same request again can help."""
    stated, status = error.details.get("retryable"), error.details.get("status")
    return error.retryable or stated is True or status in (429, 502, 503, 504)
