"""Every setting of the environment server, in one table: name, default, description.

A setting is read from the environment as `SQLENV_<NAME>` (`SQLENV_CAPACITY=500`), or given on the
command line where `python -m env_server --help` lists it. Limits on SQL itself are in
`env_server.sql.limits`, each with its reason.
"""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from shared.models import MAX_STEP_BUDGET

ENV_PREFIX = "SQLENV_"
MIN_KEY_CHARS = 16

# Empty is unset, so that a compose file can pass on what the host may not have. A header carries
# visible ASCII.
Key = Annotated[
    Annotated[SecretStr, Field(min_length=MIN_KEY_CHARS)] | None,
    BeforeValidator(lambda key: key or None),
]


class Settings(BaseSettings):
    """Units are in the names: `_s` seconds, `_bytes` bytes."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, extra="forbid", frozen=True)

    host: str = Field(
        default="127.0.0.1", description="Address to listen on; 0.0.0.0 for every interface."
    )
    port: int = Field(
        default=8000,
        ge=0,
        le=65_535,
        description="Port to listen on; 0 picks a free one and prints it.",
    )
    data_dir: Path = Field(
        default=Path("data"), description="Data directory, with databases/ and questions/ in it."
    )
    step_budget: int = Field(
        default=15,
        ge=1,
        le=MAX_STEP_BUDGET,
        description="Steps that an episode has, unless its reset says otherwise.",
    )
    sql_workers: int = Field(
        default=2, ge=1, le=64, description="Worker processes that run the agents' SQL."
    )
    capacity: int = Field(
        default=10_000,
        ge=1,
        description="Unfinished episodes held at once; one more is refused with 429 and Retry-After.",
    )
    finished_capacity: int = Field(
        default=10_000,
        ge=1,
        description="Finished episodes kept for repeated requests; past it the oldest is forgotten.",
    )
    lease_s: float = Field(
        default=900.0,
        gt=0,
        description="Seconds for which an idle episode is held; then it is abandoned and its place freed.",
    )
    sweep_interval_s: float = Field(
        default=5.0, gt=0, description="Seconds between searches for episodes past their lease."
    )
    max_batch: int = Field(
        default=512, ge=1, description="Items that one /reset_batch or /step_batch may hold."
    )
    max_body_bytes: int = Field(
        default=8 * 1024 * 1024,
        ge=1024,
        description="Bytes that a request's body may have; more is refused with 413.",
    )
    request_timeout_s: float = Field(
        default=50.0,
        gt=0,
        description="Seconds for one request; what of it is not done is answered 503 'timeout', and goes on.",
    )
    body_timeout_s: float = Field(
        default=20.0,
        gt=0,
        description="Seconds that a request's body may take to arrive; then 408.",
    )
    api_key: Key = Field(
        default=None,
        description="Bearer token that opens all but /operator and /metrics; unset: they need none.",
    )
    operator_key: Key = Field(
        default=None,
        description="Bearer token that opens everything. Unset, /operator and /metrics are open; with api_key, closed.",
    )
    drain_s: float = Field(
        default=0.0,
        ge=0,
        description="Seconds after SIGTERM in which held episodes go on, while /ready is 503 and no episode starts.",
    )
    shutdown_grace_s: int = Field(
        default=20,
        ge=1,
        description="Seconds after those in which requests in flight finish; every other gets 503.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="How much goes to stderr."
    )
    log_format: Literal["text", "json"] = Field(
        default="text",
        description="Lines for people, or one JSON object a line, with the episode's id.",
    )

    @model_validator(mode="after")
    def _keys_differ(self) -> Self:
        if self.api_key is not None and self.api_key == self.operator_key:
            raise ValueError(
                "api_key and operator_key are the same: agents would be operators; give two"
            )
        for name in ("api_key", "operator_key"):
            key: SecretStr | None = getattr(self, name)
            if key is not None and not all("!" <= char <= "~" for char in key.get_secret_value()):
                raise ValueError(
                    f"{name} holds a character that no header carries; use visible ASCII without spaces"
                )
        return self


def settings_table() -> str:
    """The table as text, one setting a line: environment variable, default, description."""
    rows = [
        (f"{ENV_PREFIX}{name.upper()}", str(field.default), field.description or "")
        for name, field in Settings.model_fields.items()
    ]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    return "\n".join(
        f"{name:<{widths[0]}}  {default:<{widths[1]}}  {text}" for name, default, text in rows
    )
