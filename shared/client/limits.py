"""The limits of a client, and the counts that it keeps."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ClientLimits:
    """How long a client waits, how often it tries, and how much it sends at once."""

    timeout_s: float = 60.0  # one request, from connecting to the last byte
    # A request that takes this long makes the client check `/health`; without an answer for as
    # long again, other servers take over.
    stall_s: float = 3.0
    max_attempts: int = 8  # tries of one request, and rounds over all servers
    patience_s: float = 0.0  # keeps trying for at least this long, past `max_attempts`
    backoff_s: float = 0.25  # upper bound of the first wait; doubles each time; x 0.5 to 1.0
    longest_wait_s: float = 10.0  # where the doubling ends
    max_batch: int = 256  # steps or resets in one request
    max_batch_bytes: int = 512 * 1024  # of one request, unless a single item is larger
    # Requests under way, of steps and of resets each, per server. Behind a gateway that spreads
    # episodes over shards: one per shard.
    batches_in_flight: int = 2
    refresh_s: float = 10.0  # between two look-ups of a host name's addresses

    def __post_init__(self) -> None:
        for name in ("timeout_s", "stall_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be over 0")
        for name in ("max_attempts", "max_batch", "max_batch_bytes", "batches_in_flight"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")


@dataclass
class ClientStats:
    """What a client has done so far."""

    requests: int = 0  # HTTP requests sent, retries included
    batches: int = 0  # of them, /step_batch and /reset_batch
    steps: int = 0  # steps answered
    retries: int = 0  # requests sent again, and batch items sent again
    rebuilds: int = 0  # episodes rebuilt by replay
    moves: int = 0  # of them, those that went to another server
    servers_lost: int = 0  # times that a server was taken out of use
    calls_waiting: int = 0  # calls that wait for a server now
    # seconds in which at least one call waited for a server; concurrent waits count once
    wait_s: float = 0.0
