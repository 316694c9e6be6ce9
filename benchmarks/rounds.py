"""Time rollouts in whole rounds, and with steps sent while other turns are under way.

    python -m benchmarks.rounds [--model DIR] [--data DIR] [--questions 8] [--repeats 2]

A call of the generator returns when a share of the turns under way have ended: in whole rounds all
of them. The ways alternate, with the same questions, 8 episodes of each, and the same seeds; they
sample the same turns but for the rounding of batches of other sizes.
"""

import time
from collections.abc import Sequence
from statistics import mean
from typing import Annotated, Any

import torch
import typer

from benchmarks.measuring import DATA, DataDir, JsonPath, print_table
from shared.console import write_json
from shared.server_process import running_server
from trainer.config import GRPOConfig
from trainer.rollout.dataset import load_question_prompts
from trainer.rollout.loop import (
    EpisodeClient,
    local_generator,
    open_client,
    play_episodes,
    sampling,
)
from trainer.rollout.row import RolloutStats
from trainer.rollout.tokens import codec_of
from trainer.runtime.models import load_model_and_tokenizer, preset_of

SHARES = (1.0, 0.5, 0.25)
EPISODES = 8  # per question


def measure(
    model: Any, tokenizer: Any, config: GRPOConfig, client: EpisodeClient, questions: int, seed: int
) -> list[dict[str, Any]]:
    """Return one line per share: seconds, sampled tokens, and how many episodes are right."""
    rows = load_question_prompts(config)
    chosen = rows[:: max(1, len(rows) // questions)][:questions]
    prompts = [row["prompt"] for row in chosen for _ in range(EPISODES)]
    lines = []
    for share in SHARES:
        codec = codec_of(tokenizer, config.thinking)
        generator = local_generator(model, codec, config, ended_share=share)
        stats, started = RolloutStats(), time.process_time()
        with sampling(model, config, "measuring rollouts"):
            played = play_episodes(
                prompts,
                model,
                tokenizer,
                config,
                client=client,
                generator=generator,
                seed=seed,
                stats=stats,
            )
        lines.append(
            {
                "ended_share": share,
                "cpu_s": time.process_time() - started,
                "env_wait_s": stats.env_wait_s,
                "tokens": stats.sampled_tokens,
                "correct": sum(row.outcome == "correct" for row in played),
            }
        )
    return lines


def summary(rounds: Sequence[Sequence[dict[str, Any]]]) -> list[dict[str, float]]:
    """Return the means over repeats, one line per share, with `ratio` of CPU to whole rounds."""
    ways = zip(*rounds, strict=True)
    lines = [{name: mean(one[name] for one in way) for name in way[0]} for way in ways]
    return [{**one, "ratio": one["cpu_s"] / lines[0]["cpu_s"]} for one in lines]


def main(
    model: Annotated[
        str | None, typer.Option(help="Model directory.", show_default="the offline model")
    ] = None,
    data: DataDir = DATA,
    questions: Annotated[int, typer.Option(help="Questions, with 8 episodes each.")] = 8,
    repeats: Annotated[int, typer.Option(help="Repeats, with a seed each.")] = 2,
    json_path: JsonPath = None,
) -> None:
    """Time all shares and print a table."""
    torch.set_num_threads(1)  # several threads take more CPU time for the same work
    choice = preset_of(model)
    config = GRPOConfig.preset(choice.preset, **choice.settings, data_dir=data)
    loaded, tokenizer = load_model_and_tokenizer(config)
    with running_server(data) as server:
        config = config.override(server_urls=[server.url])
        with open_client(config) as client:
            rounds = [
                measure(loaded, tokenizer, config, client, questions, seed)
                for seed in range(repeats)
            ]
    lines = summary(rounds)
    rows = [
        (
            f"{line['ended_share']:g}",
            f"{line['cpu_s']:.1f}",
            f"{line['ratio']:.2f}",
            f"{line['env_wait_s']:.2f}",
            f"{line['tokens']:.0f}",
            f"{line['correct']:.1f}",
        )
        for line in lines
    ]
    title = f"{questions * EPISODES} episodes, mean of {repeats} repeats, on one thread"
    print_table(
        title, ("share that ends", "CPU s", "ratio", "environment s", "tokens", "correct"), rows
    )
    write_json(json_path, {"lines": lines})


if __name__ == "__main__":
    typer.run(main)
