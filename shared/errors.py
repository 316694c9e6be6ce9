"""The error tree, with the HTTP status of each error.

    SQLEnvError                     anything this project raises on purpose
    ├── InvalidRequest              the body is not what the endpoint takes (422)
    ├── InvalidAction               neither an action object nor an action's text form (400)
    ├── Unauthorized                no key, or one that does not open this path (401)
    ├── UnknownEpisode              no such episode here: reset it, with its actions (404)
    ├── UnknownQuestion             no question matches the id or the filters (404)
    ├── Conflict                    contradicts the episode's history (409)
    ├── Behind                      the caller has seen more steps than this server (409)
    ├── DigestMismatch              a replay on a server whose data or rules differ (409)
    ├── BodyTooLarge                the body is over the limit (413)
    ├── CapacityReached             the server's pool is full; retryable (429)
    ├── InternalError               a fault of the server; retryable (500)
    ├── NotReady                    starting, draining or without a SQL worker; retryable (503)
    ├── TimedOut                    exceeded the server's time for a request; retryable (503)
    ├── ServerUnreachable           client side: no reply from the server's URL
    ├── ServerStartError            a server started as a child process did not get ready
    └── DataError                   data on disk: a file is missing, corrupt or malformed
        ├── QuestionLoadError       a questions file
        └── DatabaseLoadError       a SQLite file

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

    def __init__(self, message: str, /, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON body of this error."""
        fields = {"code": self.code, "message": self.message, "retryable": self.retryable}
        return {"error": fields | self.details}


class InvalidRequest(SQLEnvError):
    code, status = "invalid_request", 422


class InvalidAction(SQLEnvError):
    code, status = "invalid_action", 400


class Unauthorized(SQLEnvError):
    code, status = "unauthorized", 401


class UnknownEpisode(SQLEnvError):
    code, status = "unknown_episode", 404


class UnknownQuestion(SQLEnvError):
    code, status = "unknown_question", 404


class Conflict(SQLEnvError):
    code, status = "conflict", 409


class Behind(SQLEnvError):
    code, status = "behind", 409


class DigestMismatch(SQLEnvError):
    code, status = "digest_mismatch", 409


class BodyTooLarge(SQLEnvError):
    code, status = "body_too_large", 413


class CapacityReached(SQLEnvError):
    """`details["retry_after_s"]` has the seconds of the Retry-After header."""

    code, status, retryable = "capacity", 429, True


class InternalError(SQLEnvError):
    code, status, retryable = "internal", 500, True


class NotReady(SQLEnvError):
    code, status, retryable = "not_ready", 503, True


class TimedOut(SQLEnvError):
    """The work continues: the same step sent again waits for it, or gets its reply."""

    code, status, retryable = "timeout", 503, True


class ServerUnreachable(SQLEnvError):
    """Raised only by the client. The message names the URL."""

    code, status, retryable = "unreachable", 503, True


class ServerStartError(SQLEnvError):
    """The message holds the end of the server's log."""

    code = "server_start"


class DataError(SQLEnvError):
    """Data on disk can't be used. The message names the path and the remedy."""

    code, status = "data", 500


class QuestionLoadError(DataError):
    code = "question_load"


class DatabaseLoadError(DataError):
    code = "database_load"


def _tree(root: type[SQLEnvError]) -> dict[str, type[SQLEnvError]]:
    found = {root.code: root}
    for child in root.__subclasses__():
        found |= _tree(child)
    return found


BY_CODE: dict[str, type[SQLEnvError]] = _tree(SQLEnvError)


def from_wire(body: object, status: int | None = None, source: str = "the server") -> SQLEnvError:
    """Return the error in `body`, the JSON of a reply from `source`, as its class.

    A code that this version does not know becomes a plain `SQLEnvError` with the sender's `code`
    and `retryable` in its details. So does a body of another program (a proxy's page), with the
    HTTP `status`.
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
    """Return whether sending the same request again can help, by its class, its sender or a
    gateway's status."""
    details = error.details
    return (
        error.retryable
        or details.get("retryable") is True
        or details.get("status") in (429, 502, 503, 504)
    )
