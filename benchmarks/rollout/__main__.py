"""Where the time of a rollout goes: sampling, waiting for the environment, all else.

    python -m benchmarks.rollout [--episodes 64] [--rounds 3] [--json PATH] [--figure PATH]

Plays batches of the offline model against a real server over HTTP, samples the same turns again
with no environment, and plays the same batches with every request held back for `--latency-ms`.
All are compared within a round, in one process: trust the ratios, not the seconds. On a machine
with other work, set OMP_NUM_THREADS=1, as threads that share a core wait for each other.
"""

import os
from pathlib import Path
from statistics import median
from typing import Annotated

import torch
import typer

from benchmarks.measuring import DATA, DataDir, JsonPath, print_table
from benchmarks.rollout.figure import draw
from benchmarks.rollout.measure import measure
from shared.console import failure, percent, write_json
from shared.server_process import running_server
from trainer.config import GRPOConfig
from trainer.runtime.models import load_model_and_tokenizer

# figure -> its line in the table, and the most it should be
TARGETS = {
    "environment_share": ("environment wait, of the rollout", 0.03),
    "else_share": ("all else, of the rollout", None),
    "over_pure": ("rollout without environment wait, over pure generation", 0.08),
    "cpu_over_pure": ("CPU of the rollout, over pure generation", 0.08),
    "environment_share_with_latency": ("environment wait with latency, of the rollout", None),
    "added_ms_per_turn": ("added by latency, ms per turn", None),
}
LATENCY_EXTRA_MS = 10.0  # what a turn may take beyond the injected latency


def main(
    data: DataDir = DATA,
    episodes: Annotated[
        int, typer.Option(min=8, help="Episodes of a batch, a multiple of 8.")
    ] = 64,
    latency_ms: Annotated[float, typer.Option(help="Injected into every request.")] = 50.0,
    rounds: Annotated[int, typer.Option(min=1, help="Batches played each way.")] = 3,
    json_path: JsonPath = None,
    figure: Annotated[Path | None, typer.Option(help="Draw the time line as this PNG.")] = None,
) -> None:
    """Measure where the time of a rollout goes."""
    config = GRPOConfig.preset("offline", data_dir=data)
    if episodes % config.num_generations:
        raise failure(f"--episodes {episodes} is not a multiple of {config.num_generations}")
    model, tokenizer = load_model_and_tokenizer(config)
    model.eval()
    with running_server(data) as near, running_server(data) as far:
        urls = near.url, far.url
        played = measure(urls, model, tokenizer, config, episodes, latency_ms / 1000, rounds)
    figures = [one for _, _, one in played]
    rows = []
    for name, (label, most) in TARGETS.items():
        shown = percent if name != "added_ms_per_turn" else "{:.1f}".format
        if name == "added_ms_per_turn":
            most = latency_ms + LATENCY_EXTRA_MS
        values = [shown(one[name]) for one in figures]
        middle = shown(median(one[name] for one in figures))
        rows.append((label, middle, ", ".join(values), "" if most is None else shown(most)))
    title = f"{episodes} episodes, {torch.get_num_threads()} threads, {latency_ms:g} ms of latency"
    print_table(title, ("", "median", "rounds", "at most"), rows)
    machine = {"cpus": os.cpu_count(), "threads": torch.get_num_threads()}
    write_json(json_path, machine | {"latency_ms": latency_ms, "rounds": figures})
    if figure is not None:
        plain, slow, _ = sorted(played, key=lambda one: one[2]["environment_share"])[rounds // 2]
        titles = (
            f"A rollout of {episodes} episodes",
            f"With {latency_ms:g} ms of latency per request",
        )
        draw(dict(zip(titles, (plain.spans(), slow.spans()), strict=True)), figure)


if __name__ == "__main__":
    typer.run(main)
