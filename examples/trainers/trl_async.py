"""Train with TRL's asynchronous trainer: python trl_async.py URL MODEL VLLM_URL [STEPS]

Needs a running server, the extra 'trainer' and aiohttp here, a GPU, and vLLM that serves MODEL; TRL
documents its command. The trainer sends the factory to its rollout process as a pickle. With TRL's
synchronous trainer: ../trl_tools.py.
"""

import sys

import torch
from datasets import Dataset
from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer

from shared.agents.tools import SQLEnvToolsFactory
from shared.errors import SQLEnvError

TASK = "Answer the question about a SQLite database with the tools. Look at tables, query, answer."


def train(url: str, model: str, vllm_url: str, steps: int) -> None:
    rows = [
        {"prompt": [{"role": "user", "content": TASK}], "seed": seed, "split": "train"}
        for seed in range(64)
    ]
    config = AsyncGRPOConfig(
        output_dir="runs/trl-async",
        max_steps=steps,
        per_device_train_batch_size=4,
        num_generations=4,
        max_completion_length=512,
        max_tool_calling_iterations=8,
        vllm_server_base_url=vllm_url,
        report_to="none",
        save_strategy="no",
        bf16=torch.cuda.is_available(),
        chat_template_kwargs={"enable_thinking": False},
    )
    trainer = AsyncGRPOTrainer(
        model=model,
        args=config,
        train_dataset=Dataset.from_list(rows),
        environment_factory=SQLEnvToolsFactory(url),
    )
    trainer.train()
    for row in trainer.state.log_history:
        if "reward" in row:
            print("reward:", row["reward"])


if __name__ == "__main__":
    try:
        train(*sys.argv[1:4], int(sys.argv[4]) if len(sys.argv) > 4 else 100)
    except SQLEnvError as error:
        sys.exit(f"error: {error}")
