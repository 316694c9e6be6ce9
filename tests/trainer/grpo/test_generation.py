"""Training with rollouts of a vLLM server: its weights follow every update. Here a fake serves; a
running vLLM is tested (slow) if VLLM_SERVER=http://host:8000/v1 and VLLM_SERVER_MODEL, the folder
that it serves in float32, name it: docs/gpu.md has its command.
"""

import copy
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.trainer.chat_server import VLLM, refusal, served
from tests.trainer.conftest import FakeClient
from tests.trainer.model_families import tiny_model, tiny_tokenizer
from tests.trainer.small_job import begin, latest, trainer_of
from trainer.config.settings import GRPOConfig
from trainer.errors import ModelServerError
from trainer.grpo.generation import LOAD_ADAPTER, RPC, generation_server
from trainer.run.folder import open_run, read_lines
from trainer.runtime.ranks import Ranks
from trainer.runtime.training import run_training_with_metrics

pytestmark = pytest.mark.usefixtures("blank_charts")

FAMILY = "qwen2.5"
SLOW = pytest.mark.slow
MODES = (pytest.param({}, marks=SLOW), {"lora_rank": 4})
RUNNING = pytest.param("running", marks=SLOW)


@pytest.fixture(params=["fake", RUNNING])
def target(request: pytest.FixtureRequest) -> Iterator[tuple[str, Any, Any]]:
    if request.param == "fake":
        model, tokenizer = tiny_model(FAMILY), tiny_tokenizer(FAMILY)
        with served(VLLM(model, tokenizer)) as fake:
            yield fake.url, model, tokenizer
        return
    if "VLLM_SERVER" not in os.environ:
        pytest.skip("VLLM_SERVER names no running server")
    folder = os.environ["VLLM_SERVER_MODEL"]
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    yield os.environ["VLLM_SERVER"], model, AutoTokenizer.from_pretrained(folder)


@pytest.fixture
def fake() -> Iterator[VLLM]:
    with served(VLLM(tiny_model(FAMILY), tiny_tokenizer(FAMILY))) as found:
        yield found


def settings_of(config: GRPOConfig, url: str, folder: Path, **options: Any) -> GRPOConfig:
    return config.override(
        generation_url=url,
        max_steps=3,
        logging_steps=1,
        learning_rate=1e-2,
        step_budget=3,
        max_new_tokens=8,
        output_dir=folder,
        **options,
    )


@pytest.mark.parametrize("options", MODES, ids=str)
def test_every_step_is_sampled_with_its_weights(target, config, tmp_path, options):
    if options:
        pytest.importorskip("peft")
    url, model, tokenizer = target
    settings = settings_of(config, url, tmp_path, temperature=0.8, **options)
    changes: list[float] = []

    def compare(rows: list[Any], trainer: Any) -> None:
        with torch.no_grad():
            now, former = (
                one(torch.tensor([rows[0].ids])).logits.log_softmax(-1)
                for one in (trainer.model, first)
            )
        changes.append((now - former).abs().mean().item())

    first = copy.deepcopy(model)
    with generation_server(settings, tokenizer, Ranks()) as server:
        server.start(model, tmp_path / "weights")
        trainer = trainer_of(
            model,
            tokenizer,
            settings,
            client=FakeClient(after={"q0": 2}),
            on_rows=compare,
            sampler=server,
        )
        _, rows = run_training_with_metrics(trainer)
        if not options:
            server.start(first, tmp_path / "weights")  # as the test found it
    assert not (tmp_path / "weights").exists()
    assert changes[0] < 1e-6
    assert min(changes[1:]) > 0.05
    for row in rows[:3]:
        assert row["grad_norm"] > 0
        assert row["sampling/logp_difference/mean"] < 1e-4
        assert row["clip_ratio/region_mean"] == 0
        assert ("sampling/load_weights_s" in row) == (row["step"] > 1)


def started(settings: GRPOConfig, model: Any, folder: Path) -> None:
    with generation_server(settings, tiny_tokenizer(FAMILY), Ranks()) as server:
        server.start(model, folder)


def without(endpoint: str) -> Callable[[VLLM], None]:
    return lambda fake: fake.endpoints.remove(endpoint)


def other_model(fake: VLLM) -> None:
    with torch.no_grad():
        for one in fake.model.parameters():
            one.add_(torch.randn_like(one) * 0.1)


def set_to(**values: Any) -> Callable[[VLLM], None]:
    return lambda fake: vars(fake).update(values)


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (without("/version"), {}, r"is no vLLM server.*leave out --generation-url"),
        (without(RPC), {}, r"no /collective_rpc.*docs/gpu\.md"),
        (without(LOAD_ADAPTER), {"lora_rank": 4}, r"no /v1/load_lora_adapter.*docs/gpu\.md"),
        (set_to(models=("a", "b")), {}, r"has no model 'Qwen/Qwen3-1.7B'; it has a, b"),
        (set_to(listed={"max_model_len": 512}), {}, r"512 tokens.*--max-model-len 768"),
        (set_to(key="secret"), {}, r"401.*set OPENAI_API_KEY"),
        (set_to(ids="none"), {}, r"returned no token ids.*0\.10\.2"),
        (other_model, {"lora_rank": 4}, r"has another model than this run"),
        (set_to(unscaled=True), {"temperature": 0.2}, r"--logprobs-mode processed_logprobs"),
        (
            set_to(failure=refusal(500, "reload_weights() got an unexpected argument")),
            {},
            r"vLLM 0\.32\.0\) did not load.*unexpected argument.*see this folder.*Restart it",
        ),
    ],
)
def test_a_server_that_cannot_serve_a_run_is_refused_at_its_start(
    fake, config, tmp_path, change, options, message
):
    settings = settings_of(config, fake.url, tmp_path, **options)
    started(settings, tiny_model(FAMILY), tmp_path / "weights")  # as it is, it can
    change(fake)
    with pytest.raises(ModelServerError, match=message):
        started(settings, tiny_model(FAMILY), tmp_path / "weights")
    assert not (tmp_path / "weights").exists()


def test_weights_that_the_server_did_not_take_are_noticed(fake, config, tmp_path):
    model, tokenizer = tiny_model(FAMILY), tiny_tokenizer(FAMILY)
    settings = settings_of(config, fake.url, tmp_path)
    with generation_server(settings, tokenizer, Ranks()) as server:
        server.start(model, tmp_path / "weights")
        fake.load = lambda path, body: (200, {"results": [None]}, {})  # type: ignore[method-assign]
        trainer = trainer_of(model, tokenizer, settings.override(learning_rate=0.1), sampler=server)
        with pytest.raises(ModelServerError, match="did not load its weights"):
            run_training_with_metrics(trainer)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"lora_rank": 4}], ids=str)
def test_a_failed_load_stops_the_run_and_a_resumed_one_loads_first(
    small, tmp_path, model, tokenizer, options
):
    if options:
        pytest.importorskip("peft")
    with served(VLLM(model, tokenizer)) as first:
        config = small.override(generation_url=first.url, **options)

        class Failing(FakeClient):
            """Lets the server fail in the second step."""

            def reset_many(self, requests: Any) -> Any:
                if "step-1" in "".join(first.loaded):
                    first.failure = refusal(500, "out of memory")
                return super().reset_many(requests)

        with pytest.raises(ModelServerError, match=r"did not load.*out of memory.*resume"):
            run_with(config, tmp_path, Failing())
    run = latest(tmp_path)
    checkpoint = run.last_checkpoint()
    assert checkpoint.name == "checkpoint-2"
    with served(VLLM(model, tokenizer)) as other:
        run_with(config.override(generation_url=other.url), tmp_path, FakeClient(), resume=run)
        loaded = [one.split("-")[1] for one in other.loaded]
        assert loaded == (["2"] if options else ["0", "2"])
    rows = [row for row in read_lines(run.metrics) if "sampling/logp_difference/mean" in row]
    assert [row["step"] for row in rows] == [1, 2, 3]
    for row in rows:
        assert row["sampling/logp_difference/mean"] < 1e-4
    assert not (run.checkpoints / "served_weights").exists()
    assert "served_weights" not in run.checksums.read_text()


def run_with(config: GRPOConfig, tmp_path: Path, client: FakeClient, resume: Any = None) -> None:
    resumed = None if resume is None else open_run(resume.path)
    job = begin(config, tmp_path, client, resume=resumed)
    with generation_server(config, job.inputs.tokenizer, Ranks()) as server:
        job.sampler = server
        job.run()
