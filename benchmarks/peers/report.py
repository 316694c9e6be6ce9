"""What is compared, in which order it plays, and what the waves of a run add up to."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

from benchmarks.measuring import Timing
from shared.console import failure

CLIENT, LOOP = "sqlenv", "sqlenv-loop"  # SQLEnv's own, with which others are compared
Report = dict[str, Any]


@dataclass(frozen=True)
class Peer:
    """A way to play the workload: a client or a loop, and the server it plays on."""

    name: str
    title: str
    player: str
    """`module:function` for `worker.py`."""
    server: Literal["sqlenv", "openenv"] | None
    environment: str | None = None
    """Its file in `requirements/`; None is SQLEnv's own environment."""
    packages: tuple[str, ...] = ()
    """Packages whose versions the report names."""
    base: str = CLIENT
    """The peer that its costs are divided by: a loop has work that a client has not."""


PEERS = (
    Peer(CLIENT, "SQLEnv: client and server", "players.sqlenv:client", "sqlenv"),
    Peer(
        "httpx", "one httpx request per step, SQLEnv's server", "players.sqlenv:plain", "sqlenv",
        None, ("httpx",),
    ),
    Peer(
        "openenv", "OpenEnv: client and server", "players.openenv:client", "openenv", "openenv",
        ("openenv",),
    ),
    Peer(
        "openenv-client", "OpenEnv's client, SQLEnv's server", "players.openenv:client", "sqlenv",
        "openenv", ("openenv",),
    ),
    Peer("bare", "SQLEnv's environment alone, no server", "players.sqlenv:in_process", None),
    Peer(LOOP, "SQLEnv: rollout loop and server", "players.sqlenv:loop", "sqlenv", base=LOOP),
    Peer(
        "trl", "TRL's environment_factory, SQLEnv's server", "players.trl_loop:tools", "sqlenv",
        None, ("trl",), LOOP,
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Wave:
    """A wave of one peer: the CPU time of its client, and of its server if it has one."""

    client: Timing
    server: Timing

    @property
    def cpu_us(self) -> float:
        """CPU time per step of both."""
        return self.client.cpu_us + self.server.cpu_us


def order(names: Sequence[str], waves: int) -> list[str]:
    """Return who plays when: each name once per wave, every second wave backwards.

    So nobody always plays right after the same one, and each pair is equally far apart on average.
    """
    return [name for wave in range(waves) for name in (names if wave % 2 == 0 else names[::-1])]


def summary(waves: Sequence[Wave], base: Sequence[Wave]) -> Report:
    """Return the costs of a peer per step, as multiples of its base's, too.

    A ratio is of two waves of the same number, played one soon after the other. Ends the benchmark
    if a wave was too short for the clock of CPU time.
    """
    if not all(wave.cpu_us > 0 for wave in (*waves, *base)):
        raise failure("too few steps to measure CPU time: raise --episodes or --steps")
    steps = sum(wave.client.steps for wave in waves)
    client = sum(wave.client.cpu_s for wave in waves) / steps * 1e6
    server = sum(wave.server.cpu_s for wave in waves) / steps * 1e6
    pairs = [*zip(waves, base, strict=True)]
    cpu = [wave.cpu_us / first.cpu_us for wave, first in pairs]
    wall = [first.client.steps_per_s / wave.client.steps_per_s for wave, first in pairs]
    return {
        "steps": steps,
        "client_cpu_us": round(client, 1),
        "server_cpu_us": round(server, 1),
        "cpu_us": round(client + server, 1),
        "steps_per_s": round(steps / sum(wave.client.wall_s for wave in waves), 1),
        "cpu_ratio": spread(cpu),
        "time_ratio": spread(wall),
    }


def spread(values: Sequence[float]) -> Report:
    """Return the median of some ratios, the lowest and the highest."""
    found = {"median": median(values), "min": min(values), "max": max(values)}
    return {name: round(value, 2) for name, value in found.items()}


HEADINGS = ("played by", "server", "client", "CPU us/step", "CPU x", "steps/s", "time x")


def row(peer: Report) -> tuple[str, ...]:
    """Return a peer's line of the table."""
    if "not_measured" in peer:
        return (peer["title"], *["-"] * (len(HEADINGS) - 2), "not measured")
    costs = [f"{peer[key]:,.0f}" for key in ("server_cpu_us", "client_cpu_us", "cpu_us")]
    cpu, time = (f"{peer[key]['median']:.1f}" for key in ("cpu_ratio", "time_ratio"))
    return (peer["title"], *costs, cpu, f"{peer['steps_per_s']:,.0f}", time)
