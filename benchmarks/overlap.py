"""Time training whose rollouts a model server samples, with and without overlap_rollouts.

    python -m benchmarks.overlap [--steps 6] [--rollouts 16] [--turn-s 0.5] [--turns 10]

Both ways train the offline model from the same weights on the same questions, in alternating
rounds. The fake model server waits without using CPU, and loads no weights: its actions are
random. So the update has all cores, as with a server on another GPU.
"""

import copy
import json
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from statistics import median
from typing import Annotated, Any

import typer

from benchmarks.measuring import JsonPath, print_table
from env_server.app import create_app
from shared.client import in_process
from shared.console import write_json
from trainer.config import GRPOConfig
from trainer.grpo.train import build_trainer, run_training_with_metrics
from trainer.rollout.dataset import load_question_prompts
from trainer.rollout.generators.completions import CompletionsGenerator
from trainer.rollout.row import RolloutStats
from trainer.rollout.tokens import codec_of
from trainer.runtime.models import load_model_and_tokenizer

WAYS = ("synchronous", "overlapped")
NAME = "slow"  # of the fake model
ACTIONS = ("QUERY: SELECT 1", "QUERY: SELECT 2", "QUERY: SELECT 3", "QUERY: SELECT 4", "ANSWER: 5")


def reply_to(body: dict[str, Any], mean_s: float, tokenizer: Any) -> dict[str, Any]:
    """Wait, exponentially distributed, and write an action; both follow from the request's seed."""
    drawn = random.Random(body["seed"])
    time.sleep(drawn.expovariate(1 / mean_s))
    text = drawn.choice(ACTIONS)
    ids = [*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id]
    choice = {"index": 0, "finish_reason": "stop", "text": text, "token_ids": ids}
    choice["logprobs"] = {"token_logprobs": [-1.0] * len(ids)}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    fields = {"id": "c", "object": "completion", "created": 0, "model": NAME}
    return {**fields, "choices": [choice], "usage": usage}


@contextmanager
def slow_model(mean_s: float, tokenizer: Any) -> Iterator[str]:
    """Serve the model `NAME`, whose turns take `mean_s` on average; yield the URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            data = json.dumps(reply_to(body, mean_s, tokenizer)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()


def measure(config: GRPOConfig, turn_s: float, rounds: int) -> dict[str, list[dict[str, float]]]:
    """Return way -> seconds per step of each round: in all, and waiting for rollouts."""
    model, tokenizer = load_model_and_tokenizer(config)
    prompts, steps = load_question_prompts(config), config.max_steps
    found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    with (
        in_process(create_app()).sync() as client,
        slow_model(turn_s, tokenizer) as url,
        CompletionsGenerator(
            NAME,
            url,
            codec_of(tokenizer),
            max_context_tokens=config.max_context_tokens,
            concurrency=config.rollouts_per_step,
        ) as generator,
        tempfile.TemporaryDirectory() as folder,
    ):
        for _ in range(rounds):
            for way in WAYS:
                stats = RolloutStats()
                trainer = build_trainer(
                    copy.deepcopy(model),
                    tokenizer,
                    config.override(
                        overlap_rollouts=way == "overlapped", generation_url=url, output_dir=folder
                    ),
                    prompts,
                    client=client,
                    stats=stats,
                    sampler=lambda trainer: generator,
                    save_strategy="no",
                )
                start = time.perf_counter()
                run_training_with_metrics(trainer)
                seconds = time.perf_counter() - start
                found[way].append({"step_s": seconds / steps, "waiting_s": stats.rollout_s / steps})
    return found


def main(
    steps: Annotated[int, typer.Option(help="Optimizer steps.")] = 6,
    rollouts: Annotated[int, typer.Option(help="Rollouts per step, a multiple of 8.")] = 16,
    turn_s: Annotated[float, typer.Option(help="Mean seconds of a turn.")] = 0.5,
    turns: Annotated[int, typer.Option(help="Most turns of an episode.")] = 10,
    rounds: Annotated[int, typer.Option(help="Rounds per way.")] = 2,
    json_path: JsonPath = None,
) -> None:
    """Time both ways and print a table."""
    config = GRPOConfig.preset(
        "offline",
        max_steps=steps,
        per_device_train_batch_size=rollouts // 2,
        gradient_accumulation_steps=2,
        updates_per_batch=1,
        skip_one_verdict_groups=False,  # random actions are all wrong
        step_budget=turns,
        live_view="off",
    )
    found = measure(config, turn_s, rounds)
    pairs = zip(*(found[way] for way in WAYS), strict=True)
    ratio = median(one["step_s"] / other["step_s"] for one, other in pairs)
    rows = []
    for way, measured in found.items():
        step_s, waiting_s = (
            median(one[name] for one in measured) for name in ("step_s", "waiting_s")
        )
        rows.append((way, f"{step_s:.2f}", f"{waiting_s:.2f}", f"{step_s - waiting_s:.2f}"))
    title = (
        f"{steps} steps of {rollouts} rollouts, turns of {turn_s:g} s on average, median of "
        f"{rounds} rounds: synchronous takes {ratio:.2f} x"
    )
    print_table(title, ("way", "s per step", "waiting for rollouts", "update"), rows)
    summary: dict[str, Any] = {
        "steps": steps,
        "rollouts": rollouts,
        "turns": turns,
        "turn_s": turn_s,
    }
    write_json(json_path, {**summary, "rounds": found, "ratio": ratio})


if __name__ == "__main__":
    typer.run(main)
