"""Time a batch of episodes with the KV cache kept across turns, and with it rebuilt each turn.

    python -m benchmarks.kv_cache [--model DIR] [--episodes 64] [--json PATH]

Both play the same questions greedily against one in-process environment server; their actions must
be equal.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import torch
import typer

from benchmarks.measuring import JsonPath, print_table
from env_server.app import create_app
from shared.client import in_process
from shared.console import write_json
from shared.errors import SQLEnvError
from trainer.config import GRPOConfig
from trainer.rollout.dataset import load_question_prompts
from trainer.rollout.generators.base import Generator, Sample
from trainer.rollout.loop import local_generator, play_episodes
from trainer.rollout.row import RolloutStats
from trainer.rollout.tokens import codec_of
from trainer.runtime.models import load_model_and_tokenizer


class Rebuilding:
    """A generator that drops its cache after every turn and computes the whole history again."""

    def __init__(self, inner: Generator) -> None:
        self._inner, self._histories = inner, list[list[int]]()
        self.room = inner.room

    def start(self, streams: Sequence[tuple[int, ...]]) -> None:
        self._inner.start(streams)
        self._histories = [[] for _ in streams]

    def sample(self, appended: Mapping[int, Sequence[int]]) -> Mapping[int, Sample | SQLEnvError]:
        for row, ids in appended.items():
            self._histories[row] += ids
            self._inner.restart(row)
        samples = self._inner.sample({row: self._histories[row] for row in appended})
        for row, sample in samples.items():
            if isinstance(sample, Sample):
                self._histories[row] += sample.ids
        return samples

    def restart(self, row: int) -> None:
        self._inner.restart(row)
        self._histories[row] = []


def measure(model: Any, tokenizer: Any, config: GRPOConfig, episodes: int) -> list[dict[str, Any]]:
    """Return one line per way: seconds, turns, and how many episodes act as in the first way."""
    prompts = [row["prompt"] for row in load_question_prompts(config, "eval")][:episodes]
    lines: list[dict[str, Any]] = []
    with in_process(create_app()).sync() as client:
        actions = None
        for way in ("kept", "rebuilt"):
            generator = local_generator(model, codec_of(tokenizer), config, greedy=True)
            used = generator if way == "kept" else Rebuilding(generator)
            stats, started = RolloutStats(), time.process_time()
            options: dict[str, Any] = {"client": client, "stats": stats, "generator": used}
            rows = play_episodes(prompts, model, tokenizer, config, **options)
            played = [row.actions for row in rows]
            actions = actions or played
            lines.append(
                {
                    "cache": way,
                    "generate_s": stats.generate_s,
                    "cpu_s": time.process_time() - started,
                    "turns": stats.steps,
                    "same_actions": sum(a == b for a, b in zip(actions, played, strict=True)),
                    "episodes": len(rows),
                }
            )
    return lines


def main(
    model: Annotated[
        str | None, typer.Option(help="Model directory.", show_default="the offline model")
    ] = None,
    episodes: Annotated[int, typer.Option(help="Episodes in the batch.")] = 64,
    json_path: JsonPath = None,
) -> None:
    """Time both ways and print a table."""
    config = GRPOConfig.preset("offline", **({"model_name": model} if model else {}))
    loaded, tokenizer = load_model_and_tokenizer(config)
    loaded.eval()
    measure(loaded, tokenizer, config, 8)  # warm-up
    lines = measure(loaded, tokenizer, config, episodes)
    ratio = lines[1]["generate_s"] / lines[0]["generate_s"]
    threads = torch.get_num_threads()
    rows = []
    for line in lines:
        times = (f"{line['generate_s']:.2f}", f"{line['cpu_s']:.2f}")
        same = f"{line['same_actions']}/{line['episodes']}"
        rows.append((line["cache"], *times, str(line["turns"]), same))
    title = f"Rebuilding takes {ratio:.2f} x the generation time, on {threads} threads"
    print_table(title, ("cache", "generate s", "CPU s", "turns", "same actions"), rows)
    write_json(json_path, {"lines": lines, "ratio": ratio})


if __name__ == "__main__":
    typer.run(main)
