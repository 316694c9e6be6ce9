"""Rollouts that a vLLM server samples, with the weights of every step.

Before each generation batch the first process writes the weights to a folder that the server sees
too, and asks it to load them. TRL sends them by NCCL instead, which needs vLLM in this process and
a GPU.
"""

import json
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from shared.errors import SQLEnvError
from trainer.config.settings import GRPOConfig
from trainer.errors import ModelServerError
from trainer.rollout.chat_codec import codec_of
from trainer.rollout.generators.base import Generator
from trainer.rollout.loop import sampling
from trainer.rollout.prompts import opening_messages
from trainer.runtime.ranks import Ranks

LOAD_ADAPTER, UNLOAD_ADAPTER = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
RPC, RESET_CACHE = "/collective_rpc", "/reset_prefix_cache"
PROBES = 4  # turns that are compared
# nats: bfloat16's noise is below 0.05, and two models differ by 1 or more
MOST_DIFFERENCE = 0.2


class GenerationServer:
    """The vLLM server at `config.generation_url`. All processes call its methods together."""

    def __init__(self, config: GRPOConfig, tokenizer: Any, ranks: Ranks) -> None:
        from trainer.rollout.served import completions_generator  # needs the openai library

        self.config, self._ranks = config, ranks
        self._codec = codec_of(tokenizer, config.thinking)
        self.generator = completions_generator(
            config,
            config.generation_url,
            self._codec,
            temperature=config.temperature,
            concurrency=config.rollouts_per_step // ranks.count,
        )
        self._url = self.generator.base_url
        self._version = ""
        self._folder: Path | None = None
        self._step: int | None = None  # of the weights that the server has
        self._adapter = ""  # the loaded one's name
        self._compared = False  # whether loaded weights have been compared with the trainer's

    def check(self) -> None:
        """Raise `ModelServerError` if the server can't do what a run asks of it. Loads nothing."""
        self._ranks.together(lambda: self.generator.check(any_name=True))
        self._ranks.first(self._check_endpoints)
        window, limit = self.generator.limit, self.config.max_context_tokens
        if window < limit:
            raise ModelServerError(
                f"{self._url} has a context window of {window} tokens, and this run one of {limit}:"
                f" start it with --max-model-len {limit}, or --set max_context_tokens={window}"
            )

    def _check_endpoints(self) -> None:
        status, text = self.generator.call("/version")
        try:
            self._version = f"vLLM {json.loads(text)['version']}"
        except (ValueError, KeyError, TypeError) as error:
            raise ModelServerError(
                f"{self._url} is no vLLM server (its /version replies {status}), and no other can "
                "load the weights of each step: leave out --generation-url, or start vLLM "
                "(docs/gpu.md)"
            ) from error
        path = LOAD_ADAPTER if self.config.lora_rank else RPC
        if self.generator.call(path)[0] == 404:
            raise ModelServerError(
                f"{self._url} ({self._version}) has no {path}, so it can't load the weights of "
                "each step: start it with the variables and options of docs/gpu.md"
            )

    def start(self, model: Any, folder: Path) -> None:
        self._folder = folder.absolute()
        if self.config.lora_rank:
            self._step = 0  # the server's own weights
            self._ranks.first(lambda: self._compare(model))
        else:
            self._load(model, 0)

    def __call__(self, trainer: Any) -> Generator:
        step, start = trainer.state.global_step, time.perf_counter()
        if self._step != step:
            self._load(trainer.accelerator.unwrap_model(trainer.model_wrapped), step)
            seconds = trainer._metrics["train"]["sampling/load_weights_s"]
            seconds.append(time.perf_counter() - start)
        return self.generator

    def discard(self) -> None:
        if self._ranks.main and self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _load(self, model: Any, step: int) -> None:

        def load() -> str:
            assert self._folder is not None
            self.discard()  # the former weights are loaded
            folder = self._folder / f"step-{step}"
            model.save_pretrained(folder)
            for path in folder.iterdir():
                path.chmod(0o644)  # safetensors lets only the owner read, and servers have others
            if not self.config.lora_rank:
                request = {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}}
                self._post(RPC, request, folder)
                self._post(RESET_CACHE, {}, folder)
                return ""
            # a name that the prefix cache has not seen
            name = f"step-{step}-{secrets.token_hex(4)}"
            self._post(LOAD_ADAPTER, {"lora_name": name, "lora_path": str(folder)}, folder)
            if self._adapter:
                self._post(UNLOAD_ADAPTER, {"lora_name": self._adapter}, folder)
            return name

        self._step = None
        self._adapter = self._ranks.first(load)
        self.generator.model = self._adapter or self.generator.model
        self._step = step
        if not self._compared:
            self._compared = step > 0
            self._ranks.first(lambda: self._compare(model))

    def _post(self, path: str, body: dict[str, Any], folder: Path) -> None:
        status, text = self.generator.call(path, body)
        if status != 200 or '"success":false' in text.replace(" ", ""):
            raise ModelServerError(
                f"{self._url} ({self._version}) did not load the weights in {folder} ({path}: "
                f"{status} {' '.join(text.split())[:400]}). It must see this folder under the same "
                "path (--out), have the model and the LoRA rank of this run, and be vLLM 0.32 or "
                "newer. Restart it, since a failed load leaves it without weights, and resume"
            )

    def _compare(self, model: Any) -> None:
        text = "Question: How many rows does each table have?"
        messages = opening_messages(self.config.system_prompt)
        prompt = self._codec.prompt([*messages, {"role": "user", "content": text}])
        self.generator.start([(probe,) for probe in range(PROBES)])
        differences = list[torch.Tensor]()
        with sampling(model, self.config, "comparing a server with the model"):
            for sample in self.generator.sample(dict.fromkeys(range(PROBES), prompt)).values():
                if isinstance(sample, SQLEnvError):
                    raise sample
                ids = torch.tensor([prompt + sample.ids], device=model.device)
                logits = model(input_ids=ids).logits[0, len(prompt) - 1 : -1].float()
                logps = (logits / self.config.temperature).log_softmax(-1)
                own = logps.gather(-1, ids[0, len(prompt) :, None])[:, 0].cpu()
                differences.append((own - torch.tensor(sample.logprobs)).abs())
        difference = torch.cat(differences).mean().item()
        if difference > MOST_DIFFERENCE:
            raise ModelServerError(
                f"{self._url} ({self._version}) has another model than this run, or did not load "
                f"its weights: log-probabilities of its tokens differ by {difference:.2g} nats "
                f"from those of {self.config.model_name} here; serve that model, with "
                "--logprobs-mode processed_logprobs"
            )


@contextmanager
def generation_server(
    config: GRPOConfig, tokenizer: Any, ranks: Ranks
) -> Iterator[GenerationServer | None]:
    if not config.generation_url:
        yield None
        return
    server = GenerationServer(config, tokenizer, ranks)
    try:
        server.check()
        yield server
    finally:
        server.discard()
