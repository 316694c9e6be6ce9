"""Every setting of the environment server, in one table: name, default, description.

A setting is read from the environment as `SQLENV_<NAME>` (`SQLENV_CAPACITY=500`), or from the
command line if `python -m env_server --help` lists it. Limits on SQL are in
`env_server.sql.limits`, each with its reason.
"""

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from shared.key_files import key_of, split_keys
from shared.models import DEFAULT_STANDARD, DEFAULT_STEP_BUDGET, MAX_STEP_BUDGET, StandardName

ENV_PREFIX = "SQLENV_"
MIN_KEY_CHARS = 16


class Settings(BaseSettings):
    """The settings of one server. Names end in their units: `_s` seconds, `_bytes` bytes."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        env_ignore_empty=True,  # a compose file can pass on a variable that the host lacks
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,  # it may be a key
        use_attribute_docstrings=True,
    )

    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 for all interfaces."""
    port: int = Field(default=8000, ge=0, le=65_535)
    """Port to listen on; 0 chooses a free one and prints it."""
    hosts: str | None = None
    """Other names under which it answers requests without a key, comma-separated; *: any."""
    data_dir: Path = Path("data")
    """Data directory, which holds databases/ and questions/."""
    follow_links: bool = False
    """Whether to serve databases that are links to files outside data_dir."""
    step_budget: int = Field(default=DEFAULT_STEP_BUDGET, ge=1, le=MAX_STEP_BUDGET)
    """Steps per episode, unless its reset sets them."""
    standard: StandardName = DEFAULT_STANDARD
    """Standard by which answers are right: strict, spider or bird (docs/trust.md)."""
    sql_workers: int = Field(default=2, ge=1, le=64)
    """Worker processes that run agents' SQL."""
    capacity: int = Field(default=10_000, ge=1)
    """Maximum number of unfinished episodes; beyond it, resets get 429."""
    agent_capacity: int = Field(default=1_000, ge=1)
    """Maximum number of unfinished episodes per agent key; it gets that share of max_held_bytes."""
    agent_tries: int | None = Field(default=None, ge=1)
    """Maximum number of tries (judged answers) of a question per agent key; beyond it 403."""
    finished_capacity: int = Field(default=10_000, ge=1)
    """Maximum number of finished episodes kept for repeated requests."""
    lease_s: float = Field(default=900.0, gt=0)
    """Seconds after which an idle episode is abandoned."""
    max_batch: int = Field(default=512, ge=1)
    """Maximum number of items per /reset_batch or /step_batch."""
    max_body_bytes: int = Field(default=2 * 1024 * 1024, ge=1024)
    """Bytes that a request's body may have (a client's batches: 512 KiB); larger ones get 413."""
    max_unfinished_bytes: int = Field(default=128 * 1024 * 1024, ge=1024)
    """Bytes of unfinished bodies that the server holds; beyond it the oldest get 503."""
    max_connections: int = Field(default=2048, ge=1)
    """Maximum number of connections; beyond it the oldest without a whole request is closed."""
    max_head_bytes: int = Field(default=32 * 1024, ge=1024)
    """Bytes of a request outside its body: its line, headers and chunk sizes; beyond it 431."""
    head_timeout_s: float = Field(default=10.0, gt=0)
    """Seconds for a request's head, and for a new connection to send one; after them 408."""
    send_timeout_s: float = Field(default=60.0, gt=0)
    """Seconds for a client to take a reply; after them the connection is closed."""
    max_reply_bytes: int = Field(default=16 * 1024 * 1024, ge=1024)
    """Bytes that the reply to a batch may have; further items get 413 'reply_too_large'."""
    # Those of 16 processes of a trainer, which share a key and send 256 at a time.
    max_client_items: int = Field(default=4_096, ge=1)
    """Maximum number of a client's requests, items and replayed actions at once; beyond it 429."""
    # All steps of the longest episode in one batch, and repeats of them.
    max_episode_items: int = Field(default=128, ge=1)
    """Maximum number of requests and items of batches that wait for an episode; beyond it 429."""
    max_episode_bytes: int = Field(default=256 * 1024, ge=1024)
    """Bytes that an episode's actions may have; further ones get 413. Replies repeat them."""
    max_held_bytes: int = Field(default=512 * 1024 * 1024, ge=1024 * 1024)
    """Bytes of memory for all episodes' actions and replies; beyond it 429."""
    request_timeout_s: float = Field(default=50.0, gt=0)
    """Seconds per request; after them 503 'timeout', while its work continues."""
    body_timeout_s: float = Field(default=20.0, gt=0)
    """Seconds for a request's body to arrive; after them 408."""
    api_key: SecretStr | None = None
    """Trainer's token, or several by commas, for all paths but /operator and /metrics."""
    api_key_file: Path | None = None
    """File that holds SQLENV_API_KEY, such as a secret of Compose or Kubernetes."""
    agent_keys: SecretStr | None = None
    """Other agents' tokens, comma-separated; each has its own episodes, and no rewards of steps."""
    agent_keys_file: Path | None = None
    """File that holds SQLENV_AGENT_KEYS, comma-separated or one per line."""
    operator_key: SecretStr | None = None
    """Token for all paths. Without any key /metrics is open, and /operator on loopback only."""
    operator_key_file: Path | None = None
    """File that holds SQLENV_OPERATOR_KEY."""
    drain_s: float = Field(default=0.0, ge=0)
    """Seconds after SIGTERM in which episodes continue, none starts and /ready is 503."""
    shutdown_grace_s: int = Field(default=20, ge=1)
    """Seconds after the drain for requests in flight to finish; it takes no others."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level of the log, which goes to stderr."""
    log_format: Literal["text", "json"] = "text"
    """Log lines as text, or as one JSON object per line."""

    @property
    def host_names(self) -> list[str]:
        return [name.strip().lower() for name in (self.host, *(self.hosts or "").split(","))]

    @property
    def trainers(self) -> list[str]:
        return [] if self.api_key is None else split_keys(self.api_key.get_secret_value())

    @property
    def agents(self) -> list[str]:
        return split_keys(self.agent_keys.get_secret_value()) if self.agent_keys else []

    @model_validator(mode="before")
    @classmethod
    def _read_key_files(cls, given: dict[str, Any]) -> dict[str, Any]:
        for name in ("api_key", "agent_keys", "operator_key"):
            variable = f"{ENV_PREFIX}{name.upper()}"
            if key := key_of(variable, given.get(name), given.get(f"{name}_file")):
                given[name] = key
        return given

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        keys = [("api_key", key) for key in self.trainers]
        keys += (
            [("operator_key", self.operator_key.get_secret_value())] if self.operator_key else []
        )
        keys += [("agent_keys", key) for key in self.agents]
        for name, key in keys:
            if not all("!" <= char <= "~" for char in key):
                raise ValueError(f"{name} may hold only visible ASCII, without spaces")
            if len(key) < MIN_KEY_CHARS:
                raise ValueError(
                    f"{name}: a key has at least {MIN_KEY_CHARS} characters, and no comma, which "
                    "separates keys"
                )
        if len({key for _, key in keys}) < len(keys):
            raise ValueError(
                "two keys of api_key, operator_key and agent_keys are equal: make each its own"
            )
        if self.api_key and len(self.agents) * self.agent_capacity >= self.capacity:
            raise ValueError(
                f"{len(self.agents)} agent_keys with agent_capacity {self.agent_capacity:,} may "
                f"take all places of capacity {self.capacity:,}, and the trainer would have none: "
                "lower agent_capacity, or raise capacity"
            )
        return self
