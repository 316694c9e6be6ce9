"""Every setting of the environment server, in one table: name, default, description.

A setting is read from the environment as `SQLENV_<NAME>` (`SQLENV_CAPACITY=500`), or from the
command line if `python -m env_server --help` lists it. Limits on SQL are in
`env_server.sql.limits`, each with its reason.
"""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from shared.models import MAX_STEP_BUDGET

ENV_PREFIX = "SQLENV_"
MIN_KEY_CHARS = 16

# An empty key counts as unset, so that a compose file can pass on a variable that the host lacks.
Key = Annotated[
    Annotated[SecretStr, Field(min_length=MIN_KEY_CHARS)] | None,
    BeforeValidator(lambda key: key or None),
]


class Settings(BaseSettings):
    """The settings of one server. Names end in their units: `_s` seconds, `_bytes` bytes."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, extra="forbid", frozen=True)

    host: str = Field(
        default="127.0.0.1", description="Address to listen on; 0.0.0.0 for all interfaces."
    )
    port: int = Field(
        default=8000,
        ge=0,
        le=65_535,
        description="Port to listen on; 0 chooses a free one and prints it.",
    )
    data_dir: Path = Field(
        default=Path("data"), description="Data directory, which holds databases/ and questions/."
    )
    step_budget: int = Field(
        default=15,
        ge=1,
        le=MAX_STEP_BUDGET,
        description="Steps per episode, unless its reset sets them.",
    )
    sql_workers: int = Field(
        default=2, ge=1, le=64, description="Worker processes that run agents' SQL."
    )
    capacity: int = Field(
        default=10_000,
        ge=1,
        description="Maximum of unfinished episodes; beyond it resets get 429.",
    )
    finished_capacity: int = Field(
        default=10_000,
        ge=1,
        description="Finished episodes kept for repeated requests; beyond it the oldest goes.",
    )
    lease_s: float = Field(
        default=900.0, gt=0, description="Seconds after which an idle episode is abandoned."
    )
    sweep_interval_s: float = Field(
        default=5.0, gt=0, description="Seconds between searches for idle episodes."
    )
    max_batch: int = Field(
        default=512, ge=1, description="Maximum of items per /reset_batch, /step_batch."
    )
    max_body_bytes: int = Field(
        default=8 * 1024 * 1024,
        ge=1024,
        description="Bytes that a request's body may have; beyond it 413.",
    )
    request_timeout_s: float = Field(
        default=50.0,
        gt=0,
        description="Seconds per request; then 503 'timeout', while its work continues.",
    )
    body_timeout_s: float = Field(
        default=20.0, gt=0, description="Seconds for a request's body to arrive; then 408."
    )
    api_key: Key = Field(
        default=None,
        description="Bearer token for all paths but /operator and /metrics; unset: none needed.",
    )
    operator_key: Key = Field(
        default=None,
        description="Bearer token for all paths. Unset, /operator and /metrics are open, or closed "
        "if api_key is set.",
    )
    drain_s: float = Field(
        default=0.0,
        ge=0,
        description="Seconds after SIGTERM in which episodes continue, none starts and /ready is "
        "503.",
    )
    shutdown_grace_s: int = Field(
        default=20,
        ge=1,
        description="Seconds after those in which requests in flight finish; all others get 503.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Lowest level of the log, which goes to stderr."
    )
    log_format: Literal["text", "json"] = Field(
        default="text", description="Log lines as text, or as one JSON object per line."
    )

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        if self.api_key is not None and self.api_key == self.operator_key:
            raise ValueError(
                "api_key and operator_key are the same: agents would be operators; set two keys"
            )
        for name in ("api_key", "operator_key"):
            key: SecretStr | None = getattr(self, name)
            if key is not None and not all("!" <= char <= "~" for char in key.get_secret_value()):
                raise ValueError(
                    f"{name} holds a character that HTTP headers can't carry; use visible ASCII "
                    "without spaces"
                )
        return self


def settings_table() -> str:
    """Return the table as text, one line per setting: variable, default, description."""
    rows = [
        (f"{ENV_PREFIX}{name.upper()}", str(field.default), field.description or "")
        for name, field in Settings.model_fields.items()
    ]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    return "\n".join(
        f"{name:<{widths[0]}}  {default:<{widths[1]}}  {text}" for name, default, text in rows
    )
