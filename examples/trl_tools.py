"""Train a tool-calling model with TRL's own loop: python examples/trl_tools.py URL MODEL [STEPS]

Needs a running server and the extra 'trainer'. MODEL is one whose chat template TRL knows to call
tools, such as Qwen/Qwen3-0.6B, or a folder. `python -m trainer train` plays its episodes at once
and is faster; this shows that the environment fits TRL's interface.
"""

import sys

import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from shared.agents.tools import SQLEnvToolsFactory
from shared.errors import SQLEnvError

TASK = "Answer the question about a SQLite database with the tools. Look at tables, query, answer."


def train(url: str, model: str, steps: int) -> None:
    rows = [
        {"prompt": [{"role": "user", "content": TASK}], "seed": seed, "difficulty": "easy"}
        for seed in range(64)
    ]
    config = GRPOConfig(
        output_dir="runs/trl-tools",
        max_steps=steps,
        per_device_train_batch_size=4,
        num_generations=4,
        max_completion_length=512,
        max_tool_calling_iterations=8,
        logging_steps=1,
        report_to="none",
        save_strategy="no",
        bf16=torch.cuda.is_available(),
        chat_template_kwargs={"enable_thinking": False},
    )
    trainer = GRPOTrainer(
        model=model,
        args=config,
        train_dataset=Dataset.from_list(rows),
        environment_factory=SQLEnvToolsFactory(url),
    )
    trainer.train()
    for row in trainer.state.log_history:
        if "reward" in row:
            print("reward:", row["reward"], "tool calls:", row.get("tools/call_frequency"))


if __name__ == "__main__":
    try:
        train(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 100)
    except SQLEnvError as error:
        sys.exit(f"error: {error}")
