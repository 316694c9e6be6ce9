"""Playing whole sets of questions with a model or at random: the servers, the client and the seeds
of a measurement."""

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from shared.client import SQLEnvClient
from shared.models import ServerMetadata
from shared.run_stats import Mode
from trainer.config import GRPOConfig
from trainer.errors import RolloutError
from trainer.evaluation.evaluate import BATCH, EvalResult, Play, PromptRow, evaluate
from trainer.evaluation.inputs import Inputs, check_server_data
from trainer.rollout.loop import EpisodeClient, open_client, play_episodes, sample_random_baseline
from trainer.rollout.row import RolloutRow
from trainer.run.console import bar, number
from trainer.run.records import Book, EpisodeRecord
from trainer.runtime.out_of_memory import reporting_out_of_memory
from trainer.runtime.precision import precision
from trainer.runtime.ranks import Ranks
from trainer.runtime.server import SupervisedServer

SERVER_READY_S = 30.0  # for a server that somebody else runs
# the evaluations' random streams: the same before and after, and not those of training
EVAL_SEED = 1_000_003
EVAL_TEMPERATURE = 1.0


@dataclass(frozen=True)
class Connection:
    """Servers that a measurement or a run plays on. `config` has their URLs; `own` is the server
    that it started."""

    config: GRPOConfig
    client: EpisodeClient
    metadata: ServerMetadata
    own: SupervisedServer | None = None


@contextmanager
def connected(
    config: GRPOConfig,
    servers: Sequence[str],
    inputs: Inputs,
    log_path: Path,
    ranks: Ranks | None = None,
) -> Iterator[Connection]:
    """An open client of `servers`, or of a server that lives as long as the block and logs to
    `log_path`.

    Of several processes the first starts the server, and each has a client of its own; `own` is
    None in the others. `ServerUnreachable` names a URL that doesn't answer, `DigestMismatch` a
    server of other data.
    """
    ranks, own = ranks or Ranks(), None
    with ExitStack() as stack:

        def start() -> list[str]:
            nonlocal own
            own = stack.enter_context(SupervisedServer(config.data_dir, log_path))
            return [own.url]

        def ask() -> ServerMetadata:
            with SQLEnvClient(urls).sync() as probe:
                probe.wait_ready(SERVER_READY_S)
                metadata = probe.metadata()
            check_server_data(metadata, inputs, here)
            return metadata

        urls = list(servers) or ranks.first(start)
        here = replace(config, server_urls=urls)
        metadata = ranks.together(ask)
        stack.enter_context(last_words(own))
        yield Connection(
            here, stack.enter_context(open_client(here, metadata.digest)), metadata, own
        )


@contextmanager
def last_words(server: SupervisedServer | None) -> Iterator[None]:
    """Where episodes were lost because the run's own server ended for good, the error says so, with
    its log's end."""
    try:
        yield
    except RolloutError as error:
        died = server.died() if server else None
        if died is None:
            raise
        raise RolloutError(f"{error.message}\n{died}", **error.details) from error


def random_play(config: GRPOConfig, client: EpisodeClient, seed: int = EVAL_SEED) -> Play:
    return lambda prompts: sample_random_baseline(
        prompts, config, client, seed=seed, check_lost=False
    )


def model_play(
    model: Any,
    tokenizer: Any,
    config: GRPOConfig,
    client: EpisodeClient,
    mode: Mode,
    seed: int = EVAL_SEED,
) -> Play:
    """Play with a model as it stands, and leave it in the mode, training or not, in which it was.

    `sampled` is at temperature 1, whatever training samples at. How many episodes may be lost is
    for `evaluate` to say.
    """
    config = replace(config, temperature=EVAL_TEMPERATURE)

    def play(prompts: Sequence[Any]) -> list[RolloutRow]:
        with sampling(model, config, len(prompts)):
            return play_episodes(
                prompts,
                model,
                tokenizer,
                config,
                client=client,
                greedy=mode == "greedy",
                seed=seed,
                check_lost=False,
            )

    return play


@contextmanager
def sampling(model: Any, config: GRPOConfig, episodes: int) -> Iterator[None]:
    """The model in eval mode and computing in the number format of `config`; after the block in the
    mode it was in.

    Where memory runs out over so many `episodes`, the error tells what to do.
    """
    device, plan = precision(config.device, config.dtype)
    low, was_training = plan.compute is not torch.float32, model.training
    model.eval()
    try:
        autocast = (
            torch.autocast(torch.device(device).type, dtype=plan.compute) if low else nullcontext()
        )
        with (
            reporting_out_of_memory(config, f"playing {episodes} episodes of an evaluation"),
            autocast,
        ):
            yield
    finally:
        model.train(was_training)


def shared_play(play: Play, ranks: Ranks) -> Play:
    """`play` by all processes, each its share of the questions. Every one gets all rows, in order
    and without ids."""

    def played(prompts: Sequence[Any]) -> Sequence[RolloutRow]:
        if ranks.count == 1:
            return ranks.together(lambda: play(prompts))
        own = ranks.deal(prompts)
        return ranks.collect(
            ranks.each(lambda: [row.without_ids() for row in play(own)] if own else [])
        )

    return played


def cache_rows(model: Any, config: GRPOConfig, memory_bytes: int) -> int:
    """How many episodes may be played at once: up to `BATCH`, as full contexts fit in half of the
    memory; at least 1.

    A token's place in the KV cache holds a key and a value a layer and head, in the number format
    that is computed in.
    """
    shape = model.config.get_text_config()
    head_dim = getattr(shape, "head_dim", None) or shape.hidden_size // shape.num_attention_heads
    heads = getattr(shape, "num_key_value_heads", None) or shape.num_attention_heads
    _, plan = precision(config.device, config.dtype)
    row_bytes: int = (
        2
        * shape.num_hidden_layers
        * heads
        * head_dim
        * plan.compute.itemsize
        * config.max_context_tokens
    )
    return max(1, min(BATCH, memory_bytes // 2 // row_bytes))


def batch_of(model: Any, config: GRPOConfig, ranks: Ranks | None = None) -> int:
    """`cache_rows` for the memory that is free at this moment, of all processes; those of a machine
    share its memory.

    The process with the least decides, so that all play the same batches.
    """
    device, _ = precision(config.device, config.dtype)
    ranks = ranks or Ranks()
    share = ranks.local_count if device == "cpu" else 1
    return ranks.count * min(
        ranks.gather(cache_rows(model, config, free_memory_bytes(device) // share))
    )


def free_memory_bytes(device: str) -> int:
    """Of the GPU that `device` names; of the machine for a CPU, where Linux tells it, else 8 GiB."""
    if device.startswith("cuda"):
        # torch's, for its next tensors
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + kept
    try:
        found = re.search(
            r"^MemAvailable:\s+(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE
        )
    except OSError:
        found = None
    return int(found[1]) * 1024 if found else 8 * 2**30


def measure(
    console: Console,
    title: str,
    mode: Mode,
    play: Play,
    prompts: Sequence[PromptRow],
    book: Book,
    *,
    batch: int = BATCH,
    max_lost_fraction: float = GRPOConfig.max_lost_fraction,
) -> EvalResult:
    """`evaluate` with a progress bar."""
    played: list[EpisodeRecord] = []
    with bar(console, title, len(prompts)) as shown:

        def on_batch(episodes: Sequence[EpisodeRecord]) -> None:
            played.extend(episodes)
            shown.to(
                len(played),
                f"success {number(sum(one.correct for one in played) / len(played), '.1%')}",
            )

        return evaluate(
            play,
            prompts,
            book,
            mode=mode,
            batch=batch,
            max_lost_fraction=max_lost_fraction,
            on_batch=on_batch,
        )
