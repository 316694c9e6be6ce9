"""Every setting of the environment server, in one table: name, default, description.

A setting is read from the environment as `SQLENV_<NAME>` (`SQLENV_CAPACITY=500`), or given on the command line where
`python -m env_server --help` lists it. Limits on SQL itself are in `env_server.sql.policy`, each with its reason.
"""

from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from shared.models import MAX_STEP_BUDGET

ENV_PREFIX = "SQLENV_"


class Settings(BaseSettings):
    """Units are in the names: `_s` seconds, `_bytes` bytes."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, extra="forbid", frozen=True)

    host: str = Field(default="127.0.0.1", description="Address to listen on; 0.0.0.0 for every interface.")
    port: int = Field(default=8000, ge=0, le=65_535, description="Port to listen on; 0 picks a free one and prints it.")
    data_dir: Path = Field(default=Path("data"), description="Data directory, with databases/ and questions/ in it.")
    step_budget: int = Field(
        default=15, ge=1, le=MAX_STEP_BUDGET, description="Steps that an episode has, unless its reset says otherwise."
    )
    sql_workers: int = Field(default=2, ge=1, le=64, description="Worker processes that run the agents' SQL.")
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
    max_batch: int = Field(default=512, ge=1, description="Items that one /reset_batch or /step_batch may hold.")
    max_body_bytes: int = Field(
        default=8 * 1024 * 1024, ge=1024, description="Bytes that a request's body may have; more is refused with 413."
    )
    drain_s: float = Field(
        default=0.0,
        ge=0,
        description="Seconds from SIGTERM to closing the port; meanwhile /ready is 503 and no episode starts.",
    )
    shutdown_grace_s: int = Field(
        default=20, ge=1, description="Seconds that requests in flight have to finish once the port is closed."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="How much goes to stderr."
    )


def settings_table() -> str:
    """The table as text, one setting a line: environment variable, default, description."""
    rows = [
        (f"{ENV_PREFIX}{name.upper()}", str(field.default), field.description or "")
        for name, field in Settings.model_fields.items()
    ]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    return "\n".join(f"{name:<{widths[0]}}  {default:<{widths[1]}}  {text}" for name, default, text in rows)
