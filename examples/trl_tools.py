"""Train a tool-calling model with TRL: python examples/trl_tools.py URL MODEL [STEPS [VLLM_URL]]

Needs a running server and the extra 'trainer'. MODEL is one whose chat template TRL knows to call
tools, such as Qwen/Qwen3-0.6B, or a folder. With VLLM_URL, TRL's asynchronous trainer plays: it
needs aiohttp, a GPU, and vLLM that serves MODEL. `python -m trainer train` is faster.
"""

import sys
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoTokenizer
from trl import GRPOConfig, GRPOTrainer
from trl.chat_template_utils import add_response_schema, supports_tool_calling

from sqlenv import SQLEnvToolsFactory, one_line_errors

TASK = "Answer the question about a SQLite database with the tools. Look at tables, query, answer."


def check_tools(model: str) -> None:
    """End the program if TRL can't read tool calls in the chat template of a model."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    known = supports_tool_calling(tokenizer)
    try:
        add_response_schema(tokenizer)
    except ValueError:
        known = getattr(tokenizer, "response_template", None) is not None
    if not known:
        raise SystemExit(
            f"TRL can't read tool calls in the chat template of {model}: take a model of Qwen3, "
            "Qwen2.5, Llama 3 or another whose template it knows (trl.chat_template_utils)"
        )


def train(url: str, model: str, steps: str = "100", vllm_url: str | None = None) -> None:
    check_tools(model)
    rows = [
        {"prompt": [{"role": "user", "content": TASK}], "seed": seed, "split": "train"}
        for seed in range(64)
    ]
    options: dict[str, Any] = {
        "output_dir": "runs/trl-tools",
        "max_steps": int(steps),
        "per_device_train_batch_size": 4,
        "num_generations": 4,
        "max_completion_length": 512,
        "max_tool_calling_iterations": 8,
        "logging_steps": 1,
        "report_to": "none",
        "save_strategy": "no",
        "bf16": torch.cuda.is_available(),
        "chat_template_kwargs": {"enable_thinking": False},
    }
    kind, config = GRPOTrainer, GRPOConfig
    if vllm_url is not None:
        from trl.experimental import async_grpo

        kind, config = async_grpo.AsyncGRPOTrainer, async_grpo.AsyncGRPOConfig
        options["vllm_server_base_url"] = vllm_url
    trainer = kind(
        model=model,
        args=config(**options),
        train_dataset=Dataset.from_list(rows),
        environment_factory=SQLEnvToolsFactory(url),
    )
    trainer.train()
    for row in trainer.state.log_history:
        if "reward" in row:
            print("reward:", row["reward"], "tool calls:", row.get("tools/call_frequency"))


if __name__ == "__main__":
    with one_line_errors():
        train(*sys.argv[1:])
