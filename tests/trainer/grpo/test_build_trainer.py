"""trl's trainer over our rollouts, with a fake server, and its settings."""

import math
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.conftest import FakeClient, InterruptedClient, prompts, short_training
from tests.trainer.small_job import trainer_of
from trainer.config.presets import PRESETS
from trainer.config.settings import ConfigError, GRPOConfig
from trainer.errors import TrainingDiverged
from trainer.grpo.build_trainer import build_trainer, trl_config
from trainer.runtime.checkpoint import Guard
from trainer.runtime.interrupt import Interrupted, Interrupts
from trainer.runtime.ranks import Ranks
from trainer.runtime.training import finished, run_training_with_metrics


@pytest.fixture
def settings(config: GRPOConfig, tmp_path: Path) -> GRPOConfig:
    return short_training(
        config, tmp_path, max_steps=2, step_budget=2, max_new_tokens=4, learning_rate=1e-3
    )


def test_training_changes_the_weights_and_logs_every_step(settings, model, tokenizer):
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    seen: list[int] = []
    trainer = trainer_of(
        model, tokenizer, settings, on_rows=lambda rows, trainer: seen.append(len(rows))
    )
    output, rows = run_training_with_metrics(trainer)
    assert output.global_step == 2
    assert seen == [8, 8]  # one generation batch per step
    assert any(not torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    steps = [row for row in rows if "reward" in row]
    assert [row["step"] for row in steps] == [1, 2]
    assert all(math.isfinite(row["loss"]) and row["entropy"] > 0 for row in steps)
    assert (Path(settings.output_dir) / "checkpoint-2" / "trainer_state.json").is_file()


def test_too_few_questions_for_a_step_are_refused(settings, model, tokenizer):
    with pytest.raises(ConfigError, match=r"a step takes 2 questions.*only 1"):
        build_trainer(model, tokenizer, settings, prompts(settings, 1), client=FakeClient())


@pytest.mark.parametrize("updates", [1, 2])
def test_a_gradient_that_is_no_number_stops_before_the_update(settings, model, tokenizer, updates):
    settings = settings.override(updates_per_batch=updates)
    trainer = trainer_of(model, tokenizer, settings)
    compute, calls = trainer._compute_loss, []

    def poisoned(*arguments: Any) -> torch.Tensor:
        calls.append(1)
        loss: torch.Tensor = compute(*arguments)
        # two micro-batches per step: the second of the second step
        return loss * math.nan if len(calls) == 4 else loss

    trainer._compute_loss = poisoned
    with pytest.raises(
        TrainingDiverged, match=r"step 2 is not a number.*--set learning_rate=0\.0003"
    ):
        run_training_with_metrics(trainer)
    assert all(torch.isfinite(tensor).all() for tensor in model.state_dict().values())
    # weights of a part of a step are never saved
    saved = (Path(settings.output_dir) / "checkpoint-1" / "trainer_state.json").is_file()
    assert saved == (updates == 1)


def test_a_signal_in_a_rollout_ends_it_at_once_with_a_checkpoint(settings, model, tokenizer):
    with Interrupts() as interrupts:
        trainer = trainer_of(
            model,
            tokenizer,
            settings,
            client=InterruptedClient(2, lambda: os.kill(os.getpid(), signal.SIGINT)),
            ranks=Ranks(interrupts),
        )
        with pytest.raises(Interrupted):
            run_training_with_metrics(trainer)
    assert trainer.state.global_step == 1
    assert (Path(settings.output_dir) / "checkpoint-1" / "trainer_state.json").is_file()


def test_a_signal_in_an_update_waits_for_the_steps_end(settings, model, tokenizer):
    with Interrupts() as interrupts:
        trainer = trainer_of(model, tokenizer, settings, ranks=Ranks(interrupts))
        compute = trainer._compute_loss

        def interrupted(*arguments: Any) -> Any:
            if not interrupts.requested:
                os.kill(os.getpid(), signal.SIGINT)
            return compute(*arguments)

        trainer._compute_loss = interrupted
        with pytest.raises(Interrupted):
            run_training_with_metrics(trainer)
    assert trainer.state.global_step == 1
    checkpoint = Path(settings.output_dir) / "checkpoint-1"
    assert (checkpoint / "trainer_state.json").is_file()
    assert not finished(checkpoint, 2)
    assert finished(checkpoint, 1)
    assert not finished(checkpoint, -1)  # two steps were planned


def test_the_checkpoint_of_a_gpu_with_float16_resumes_without_it(settings, model, tokenizer):
    """A T4 scales its loss, and stores the scale; a newer GPU trains in bfloat16."""
    whole = settings.override(max_steps=1, save_steps=1)
    begun = trainer_of(model, tokenizer, whole)
    run_training_with_metrics(begun)
    checkpoint = Path(settings.output_dir) / "checkpoint-1"
    torch.save({"scale": 65536.0}, checkpoint / "scaler.pt")
    resumed = trainer_of(model, tokenizer, settings)
    run_training_with_metrics(resumed, resume_from=checkpoint)
    assert resumed.state.global_step == 2


def test_the_second_signal_does_not_wait():
    with Interrupts() as interrupts, interrupts.deferred():
        os.kill(os.getpid(), signal.SIGTERM)
        assert interrupts.requested
        with pytest.raises(Interrupted) as stop:
            os.kill(os.getpid(), signal.SIGINT)
        assert not stop.value.clean
        with pytest.raises(Interrupted), interrupts.interruptible():
            pytest.fail("a part that may be broken off does not begin")


def test_handlers_are_put_back_and_other_threads_are_left_alone():
    before = signal.getsignal(signal.SIGINT)
    with Interrupts():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before
    errors: list[Exception] = []

    def enter() -> None:
        try:
            with Interrupts():
                pass
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert not errors  # a notebook may train in a thread


@pytest.mark.slow
def test_questions_come_in_the_same_order_after_a_resume(settings, model, tokenizer):
    """With two steps per epoch, a resumed run continues its checkpoint's epoch in its order."""
    config = settings.override(max_steps=5, save_steps=1)

    def asked(resume_from: Path | None = None, steps: int = 5) -> list[tuple[int, str]]:
        seen: list[tuple[int, str]] = []
        trainer = trainer_of(
            model,
            tokenizer,
            config.override(max_steps=steps, output_dir=f"{settings.output_dir}/{steps}"),
            on_rows=lambda rows, trainer: seen.extend(
                (trainer.state.global_step, row.question_id) for row in rows
            ),
        )
        run_training_with_metrics(trainer, resume_from=resume_from)
        return seen

    whole = asked()
    orders = {tuple(name for step, name in whole if step // 2 == epoch) for epoch in (0, 1)}
    assert len(orders) == 2  # reshuffled
    for stop in (1, 2):  # within an epoch, and at its end
        asked(steps=stop)
        checkpoint = Path(settings.output_dir) / str(stop) / f"checkpoint-{stop}"
        assert asked(checkpoint) == [one for one in whole if one[0] >= stop]


def test_fp16_overflows_are_left_to_its_loss_scaling():
    parameter = torch.nn.Parameter(torch.zeros(2))
    parameter.grad = torch.full((2,), math.inf)
    module = torch.nn.Module()
    module.register_parameter("weight", parameter)

    class State:
        global_step = 3

    class Settings:
        fp16, learning_rate = True, 1e-3

    guard = Guard(Ranks(), GRPOConfig())
    guard.on_pre_optimizer_step(Settings(), State(), None, model=module)
    Settings.fp16 = False
    with pytest.raises(TrainingDiverged, match="step 4"):
        guard.on_pre_optimizer_step(Settings(), State(), None, model=module)


@pytest.mark.parametrize(("warmup", "told"), [(1, False), (2, True)])
def test_a_long_warm_up_is_told(config, model, tokenizer, tmp_path, warmup, told, caplog):
    config = short_training(config, tmp_path, max_steps=6, warmup_steps=warmup)
    trainer_of(model, tokenizer, config)
    assert ("the learning rate rises during 2 of 6 steps" in caplog.text) == told


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_valid_and_convert(name):
    config = GRPOConfig.preset(name)
    converted = trl_config(config, output_dir="elsewhere")
    # one generation batch is one optimizer step, so every checkpoint ends a generation window
    assert converted.generation_batch_size == config.rollouts_per_step
    assert converted.steps_per_generation == converted.gradient_accumulation_steps
    # trl sums the rewards to the server's ledger
    assert converted.reward_weights == [1.0, 0.15, 1.0]
    weighted = trl_config(config.override(reward_weights="1,0,0.5"), output_dir="elsewhere")
    assert weighted.reward_weights == [1.0, 0.0, 0.5]
    assert (converted.epsilon, converted.epsilon_high) == (0.2, 0.28)
    assert (converted.loss_type, converted.max_grad_norm) == ("grpo", 1.0)
    assert converted.max_completion_length == config.max_context_tokens
    assert converted.report_to == []
    assert converted.output_dir == "elsewhere"
