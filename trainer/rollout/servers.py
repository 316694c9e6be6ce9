"""The environment servers of a run: that they answer, and have its data and standard."""

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

from shared.client import SQLEnvClient
from shared.dataset import data_digest
from shared.errors import DigestMismatch, ServerUnreachable, SQLEnvError, is_retryable
from shared.models import ServerMetadata
from trainer.config.settings import DEFAULT_SERVER_URL, ConfigError, GRPOConfig
from trainer.rollout.loop import open_client
from trainer.rollout.turns import EpisodeClient
from trainer.runtime.server import SupervisedServer

log = logging.getLogger(__name__)
ROUND_S = 8.0  # of a wait, before names are resolved again and the reason is printed
HERE = ("localhost", "127.0.0.1", "::1")  # a server listens there before it loads its data
LOOK_S = 2.0
DEFAULT_READY_S = 2.0  # for a server at the default URL, which may not be there


def check_servers(config: GRPOConfig, digest: str) -> ServerMetadata:
    """Return the metadata of the servers in `config`; wait `config.server_wait_s` for them. Raise
    `ServerUnreachable` if one does not answer, at once if nothing listens on this machine;
    `DigestMismatch` for other data than `digest`; `ConfigError` for another standard."""
    metadata = _wait_for(config.server_urls, config.server_wait_s)
    urls = ", ".join(config.server_urls)
    if metadata.data_digest != digest:
        raise DigestMismatch(
            f"the server at {urls} serves other data (digest {metadata.data_digest[:12]}) than "
            f"{config.data_dir} (digest {digest[:12]}): start it with --data {config.data_dir}, "
            "or give the trainer the server's data with --data"
        )
    if metadata.standard != config.standard:
        raise ConfigError(
            f"the server at {urls} judges answers by the standard {metadata.standard}, and "
            f"this run by {config.standard}: start the server with --standard {config.standard}, "
            f"or the run with --standard {metadata.standard}"
        )
    return metadata


def look_at(urls: Sequence[str]) -> None:
    """Raise the error of a URL that can't work, and log who does not answer yet, without torch."""
    try:
        with SQLEnvClient(urls).sync() as probe:
            probe.wait_ready(LOOK_S)
    except SQLEnvError as error:
        if not is_retryable(error):
            raise
        log.warning("%s", error)


def _wait_for(urls: Sequence[str], wait_s: float) -> ServerMetadata:
    deadline = time.monotonic() + wait_s
    while True:
        left_s = max(0.0, deadline - time.monotonic())
        try:
            with SQLEnvClient(urls).sync() as probe:
                probe.wait_ready(min(ROUND_S, left_s))
                return probe.metadata()
        except ServerUnreachable as error:
            if not is_retryable(error):
                raise
            nobody = error.details.get("refused") and httpx.URL(error.details["url"]).host in HERE
            if nobody or left_s <= ROUND_S:
                waited = f"{ROUND_S:g} s" if left_s > ROUND_S else f"{wait_s:g} s (server_wait_s)"
                raise ServerUnreachable(
                    f"{error.message}. Waited {waited} for the environment servers: start them, or "
                    "name others with --server",
                    **error.details,
                ) from error
            log.warning("waiting up to %.0f s for %s: %s", left_s, ", ".join(urls), error)


@contextmanager
def serving(config: GRPOConfig) -> Iterator[EpisodeClient]:
    """Open a client of the config's servers, after `check_servers`. If their URL is the default and
    no such server answers there, start one for the block."""
    digest = data_digest(config.data_dir)
    with ExitStack() as stack:
        if config.server_urls == [DEFAULT_SERVER_URL]:
            try:
                check_servers(replace(config, server_wait_s=DEFAULT_READY_S), digest)
            except (ServerUnreachable, DigestMismatch, ConfigError):
                folder = Path(stack.enter_context(TemporaryDirectory(prefix="sqlenv-rollout-")))
                options = ("--standard", config.standard)
                own = SupervisedServer(config.data_dir, folder / "server.log", *options)
                config = replace(config, server_urls=[stack.enter_context(own).url])
        else:
            check_servers(config, digest)
        yield stack.enter_context(open_client(config))
