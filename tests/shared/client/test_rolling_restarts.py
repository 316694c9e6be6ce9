"""Real servers that are restarted one after another with other settings, under episodes."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from shared.client import ClientLimits, SQLEnvClient
from shared.client.sync import SyncSQLEnvClient
from shared.errors import SQLEnvError, Unauthorized
from shared.server_process import ServerProcess, running_server
from tests.chaos.gateway import missing, running_gateway
from tests.conftest import needs_program
from tests.docker.conftest import PATIENT_CHECK_S

LIMITS = ClientLimits(stall_s=60.0, patience_s=30.0)  # a busy machine is slow, not lost
HASTY = ClientLimits(max_attempts=2)
QUESTION = {"question_id": "shop-1"}
OLD, NEW = "old-key-0123456789", "new-key-0123456789"


class Servers:
    """Servers that keep their ports."""

    def __init__(self, data_dir: Path, running: list[ExitStack], **settings: object) -> None:
        self.data_dir, self.running = data_dir, running
        self.servers = [self.started(one, 0, **settings) for one in self.running]
        self.urls = [one.url for one in self.servers]

    def started(self, stack: ExitStack, port: int, **settings: object) -> ServerProcess:
        server = running_server(self.data_dir, port=port, sql_workers=1, **settings)
        return stack.enter_context(server)

    def restart(self, number: int, **settings: object) -> None:
        self.running[number].close()
        self.started(self.running[number], self.servers[number].port, **settings)


@contextmanager
def servers_of(data_dir: Path, count: int, **settings: object) -> Iterator[Servers]:
    with ExitStack() as stack:
        running = [stack.enter_context(ExitStack()) for _ in range(count)]
        yield Servers(data_dir, running, **settings)


@contextmanager
def client_of(urls: Any, limits: ClientLimits = LIMITS, **options: Any) -> Iterator[Any]:
    with SQLEnvClient(urls, limits, **options).sync() as client:
        yield client


def errors(replies: list[Any]) -> list[str]:
    return [str(one) for one in replies if isinstance(one, SQLEnvError)]


def play(client: SyncSQLEnvClient, names: list[str], action: str) -> None:
    assert not errors(client.step_many((name, action) for name in names))


@pytest.mark.slow
def test_a_new_key_replaces_an_old_one_without_losing_an_episode(tiny_data):
    """Episodes go on under either key while the servers take both."""
    names = [f"e{n}" for n in range(8)]
    with (
        servers_of(tiny_data, 2, api_key=OLD) as servers,
        client_of(servers.urls, api_key=OLD) as old,
        client_of(servers.urls, api_key=NEW) as new,
    ):
        assert not errors(old.reset_many(QUESTION | {"episode_id": name} for name in names))
        for number in range(2):
            servers.restart(number, api_key=f"{OLD},{NEW}")
            play(old, names, f"QUERY: SELECT {number}")
        assert old.stats.rebuilds >= len(names), "each server was restarted under its episodes"
        play(new, names[:4], "ANSWER: 5")
        play(old, names[4:], "ANSWER: 5")

        names = [f"f{n}" for n in range(8)]
        assert not errors(new.reset_many(QUESTION | {"episode_id": name} for name in names))
        for number in range(2):
            servers.restart(number, api_key=NEW)
            play(new, names, f"QUERY: SELECT {number}")
        with pytest.raises(Unauthorized) as caught:
            old.reset(**QUESTION)
        url = caught.value.details["url"]
        assert url in servers.urls
        remedy = "set SQLENV_API_KEY, or pass api_key=, with a key of that server"
        assert str(caught.value) == f"{url}/reset_batch: wrong key; {remedy}"


@pytest.mark.slow
@needs_program("haproxy", missing())
def test_behind_a_gateway_episodes_continue_where_their_rules_are(tiny_data):
    """The standard is part of the digest, so a server of another one can't rebuild an episode."""
    names = [f"e{n}" for n in range(64)]
    with (
        servers_of(tiny_data, 3, standard="strict") as servers,
        running_gateway(servers.urls, PATIENT_CHECK_S) as front,
        client_of(front.url) as client,
        client_of(front.url, digest=client.metadata().digest) as run,
    ):
        assert not errors(client.reset_many(QUESTION | {"episode_id": name} for name in names))
        for number in range(2):
            play(client, names, f"QUERY: SELECT {number}")
            servers.restart(number, standard="bird")
            front.wait_serving(3)
        play(client, names, "QUERY: SELECT 2")
        assert client.stats.rebuilds > 0, "servers were replaced under the episodes"
        assert not errors(run.reset_many([QUESTION] * 64)), "a run starts others"
        play(client, names, "ANSWER: 5")

        servers.restart(2, standard="bird")
        front.wait_serving(3)
        assert not errors(client.reset_many([QUESTION] * 64)), "without a digest, under others"
        with (
            client_of(front.url, HASTY, digest="that of nobody") as nobody,
            pytest.raises(SQLEnvError, match="this server's digest is"),
        ):
            nobody.reset(**QUESTION)
