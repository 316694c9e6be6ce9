"""Play sets of questions with a model or another policy: servers, client, seeds, batch size."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import torch

from shared.models import ServerMetadata
from shared.run_stats import Mode
from shared.seeds import EVAL_SEED
from trainer.config.settings import GRPOConfig
from trainer.rollout.episode import EpisodeObserver
from trainer.rollout.loop import EpisodeClient, open_client, play_episodes, sampling
from trainer.rollout.row import RolloutRow
from trainer.rollout.servers import check_servers
from trainer.run.inputs import Inputs
from trainer.run.measurement import BATCH, Play
from trainer.runtime.memory import cache_token_bytes, machine_memory
from trainer.runtime.precision import precision
from trainer.runtime.ranks import Ranks
from trainer.runtime.server import SupervisedServer

EVAL_TEMPERATURE = 1.0


@dataclass(frozen=True)
class Connection:
    """The servers of a measurement or a run. `config` has their URLs; `own` is one it started."""

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
    """Connect to `servers` after `check_servers`; without any, start one for the block. Of several
    processes the first starts the server, and each has its own client."""
    ranks, own = ranks or Ranks(), None
    with ExitStack() as stack:

        def start() -> list[str]:
            nonlocal own
            options = ("--standard", config.standard)
            own = stack.enter_context(SupervisedServer(config.data_dir, log_path, *options))
            return [own.url]

        urls = list(servers) or ranks.first(start)
        connected_config = replace(config, server_urls=urls)
        metadata = ranks.together(lambda: check_servers(connected_config, inputs.data_digest))
        client = stack.enter_context(open_client(connected_config, metadata.digest))
        yield Connection(connected_config, client, metadata, own)


def play_with(
    config: GRPOConfig,
    client: EpisodeClient,
    seed: int = EVAL_SEED,
    *,
    model: Any = None,
    tokenizer: Any = None,
    **how: Any,
) -> Play:
    """Play with a model as it is at that moment, or with the policy or generator in `how`."""

    def play(
        prompts: Sequence[Any],
        repeats: Sequence[int] | None = None,
        observer: EpisodeObserver | None = None,
    ) -> list[RolloutRow]:
        doing = f"playing {len(prompts)} episodes of an evaluation"
        how.update(client=client, seed=seed, check_lost=False, repeats=repeats, observer=observer)
        with nullcontext() if model is None else sampling(model, config, doing):
            return play_episodes(prompts, model, tokenizer, config, **how)

    return play


def model_play(
    model: Any,
    tokenizer: Any,
    config: GRPOConfig,
    client: EpisodeClient,
    mode: Mode,
    seed: int = EVAL_SEED,
    temperature: float = EVAL_TEMPERATURE,
) -> Play:
    config = replace(config, temperature=temperature)
    greedy = mode == "greedy"
    return play_with(config, client, seed, model=model, tokenizer=tokenizer, greedy=greedy)


def shared_play(play: Play, ranks: Ranks) -> Play:
    """Split the questions over all processes; each gets all rows, in order and without ids. An
    observer sees the episodes of its own process."""

    def played(
        prompts: Sequence[Any],
        repeats: Sequence[int] | None = None,
        observer: EpisodeObserver | None = None,
    ) -> Sequence[RolloutRow]:
        if ranks.count == 1:
            return ranks.together(lambda: play(prompts, repeats, observer))
        part = slice(ranks.index, None, ranks.count)
        own, its_repeats = prompts[part], None if repeats is None else repeats[part]

        def play_own() -> list[RolloutRow]:
            return [row.without_ids() for row in play(own, its_repeats, observer)] if own else []

        shares = ranks.each(play_own)
        return [shares[at % ranks.count][at // ranks.count] for at in range(len(prompts))]

    return played


def cache_rows(model: Any, config: GRPOConfig, memory_bytes: int) -> int:
    """Return how many episodes to play at once: 1 to `BATCH`, full contexts in half the memory."""
    _, dtype = precision(config.device, config.dtype)
    token_bytes = cache_token_bytes(model.config.get_text_config(), dtype)
    return max(1, min(BATCH, memory_bytes // 2 // (token_bytes * config.max_context_tokens)))


def batch_of(model: Any, config: GRPOConfig, ranks: Ranks | None = None) -> int:
    """Return how many episodes all processes play at once, by the memory free at this moment: the
    process with the least decides, so that all play the same batches."""
    device, _ = precision(config.device, config.dtype)
    ranks = ranks or Ranks()
    free = free_memory_bytes(device, ranks.local_count)
    return ranks.count * min(ranks.gather(cache_rows(model, config, free)))


def free_memory_bytes(device: str, processes: int = 1) -> int:
    """Return what is free of a GPU's memory, or the share of each of the `processes` in a CPU's."""
    if device.startswith("cuda"):
        # torch reuses the memory that it holds
        reusable = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + reusable
    # of a container, what is available is the host's
    limit = machine_memory() - processes * psutil.Process().memory_info().rss
    return int(min(psutil.virtual_memory().available, limit) // processes)
