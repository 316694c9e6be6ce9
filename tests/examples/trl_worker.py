"""Runs examples/trl_tools.py with only the rollout process of TRL's asynchronous trainer:
URL MODEL VLLM_URL. What it leaves out needs a GPU and vLLM: the updates, and sending the weights.
"""

import json
import sys
from typing import Any

import trl_tools
from transformers import AutoTokenizer
from trl.experimental import async_grpo
from trl.experimental.async_grpo import async_rollout_worker


class RolloutsOnly:
    """Plays as `AsyncGRPOTrainer` does, by the worker that it makes, and prints each reward."""

    def __init__(self, model: str, args: Any, train_dataset: Any, environment_factory: Any) -> None:
        tokenizer = AutoTokenizer.from_pretrained(model)
        self.worker = async_rollout_worker.AsyncRolloutWorker(
            model_name=model,
            dataset=train_dataset,
            reward_funcs=[],
            processing_class=tokenizer,
            eos_token_ids=[tokenizer.eos_token_id],
            environment_factory=environment_factory,
            num_generations=args.num_generations,
            max_inflight_tasks=args.num_generations,
            vllm_server_url=args.vllm_server_base_url,
            max_tokens=args.max_completion_length,
            chat_template_kwargs=args.chat_template_kwargs,
            max_tool_calling_iterations=args.max_tool_calling_iterations,
        )
        self.samples = args.max_steps * args.num_generations
        self.state = args  # of which only `log_history` is read
        self.state.log_history = []

    def train(self) -> None:
        self.worker.start()
        try:
            for _ in range(self.samples):
                sample = self.worker.rollout_buffer.get(timeout=120)
                print(json.dumps(sample.metrics), flush=True)
        finally:
            self.worker.stop()


if __name__ == "__main__":
    async_rollout_worker.is_vllm_available = lambda: True  # it is only asked over HTTP
    async_grpo.AsyncGRPOTrainer = RolloutsOnly
    url, model, vllm_url = sys.argv[1:]
    trl_tools.train(url, model, "1", vllm_url)
