"""The loss, the order of rows and the checkpoints of supervised fine-tuning."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.model_families import tiny_model
from trainer.config.settings import GRPOConfig
from trainer.runtime.interrupt import Interrupted
from trainer.runtime.ranks import Ranks
from trainer.runtime.training import save_trained, train_from
from trainer.sft.demonstrate import Demonstration
from trainer.sft.training import LengthBuckets, build_trainer

VOCABULARY = 400


def tiny() -> Any:
    return tiny_model("qwen2.5")


def demonstrations(count: int = 6) -> list[Demonstration]:
    torch.manual_seed(1)
    rows = []
    for index in range(count):
        length = 12 + 5 * index
        ids = [3, 4, 5, *torch.randint(3, VOCABULARY, (length - 3,)).tolist()]
        learn = [int(place % 11 >= 8 and place > 4) for place in range(length)]
        learn[-1] = 1
        rows.append(Demonstration("oracle", str(index), "shop", [], ids, learn))
    return rows


def full_loss(model: Any, rows: list[Demonstration]) -> torch.Tensor:
    """Return the loss summed over what is learnt, from all logits, one row at a time."""
    total = torch.zeros(())
    for row in rows:
        ids = torch.tensor([row.ids])
        logits = model(input_ids=ids).logits[0, :-1]
        each = torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="none")
        total = total + (each * torch.tensor(row.learn[1:])).sum()
    return total


def test_batches_hold_rows_of_similar_length_in_an_order_of_each_epoch():
    lengths = [(37 * index) % 101 for index in range(67)]
    updates = [0]
    order = LengthBuckets(lengths, batch=4, seed=0, updates_done=lambda: updates[0])
    epochs = []
    for updates[0] in (0, 17):  # an epoch has 17
        epochs.append(list(order))
        assert sorted(epochs[-1]) == list(range(67))
        batches = [epochs[-1][first : first + 4] for first in range(0, 64, 4)]
        spreads = [max(rows) - min(rows) for rows in ([lengths[i] for i in b] for b in batches)]
        assert sum(spreads) / len(spreads) < 15  # a random batch's is about 60
    assert epochs[0] != epochs[1]
    updates[0] = 16  # resumed before the first epoch's last
    assert list(order) == epochs[0]


def settings(tmp_path: Path, **options: Any) -> GRPOConfig:
    values = {
        "device": "cpu",
        "dtype": "float32",
        "output_dir": tmp_path,
        "learning_rate": 5e-3,
        "num_train_epochs": 2,
        "lr_scheduler": "linear",
        "warmup_steps": 1,
        "logging_steps": 1,
        "per_device_train_batch_size": 2,
        "save_steps": 2,
    }
    return GRPOConfig(**{**values, **options})


@pytest.mark.parametrize("lora_rank", [pytest.param(0, marks=pytest.mark.slow), 4])
def test_an_interrupted_training_ends_with_the_weights_of_an_uninterrupted_one(
    tokenizer, tmp_path, lora_rank
):
    rows = demonstrations(10)

    def trainer(folder: Path, ranks: Ranks | None = None) -> Any:
        config = settings(folder, lora_rank=lora_rank)
        return build_trainer(tiny(), tokenizer, config, rows, batch=4, ranks=ranks)

    whole = trainer(tmp_path / "whole")
    assert train_from(whole, None, -1) == 6
    losses = [row["loss"] for row in whole.state.log_history if "loss" in row]
    assert losses[-1] < losses[0]

    ranks = Ranks()
    stopped = trainer(tmp_path / "stopped", ranks)

    from transformers import TrainerCallback

    class StopAfterStep4(TrainerCallback):  # type: ignore[misc]  # in the second epoch
        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            ranks.interrupts.requested = state.global_step == 3

    stopped.add_callback(StopAfterStep4())
    with pytest.raises(Interrupted):
        train_from(stopped, None, -1)
    checkpoint = tmp_path / "stopped" / "checkpoint-4"
    assert checkpoint.is_dir()
    resumed = trainer(tmp_path / "stopped")
    assert train_from(resumed, checkpoint, -1) == 6

    first = save_trained(whole, tmp_path / "model").state_dict()
    second = save_trained(resumed, tmp_path / "other").state_dict()
    assert first.keys() == second.keys() == tiny().state_dict().keys()  # adapters are merged in
    for name, weight in first.items():
        assert torch.equal(weight, second[name]), name


def test_an_update_takes_the_mean_over_all_tokens_of_its_rows(tokenizer, tmp_path):
    """A short row's tokens weigh as much as a long one's, however the rows are split."""
    rows = demonstrations(4)

    def trained(micro: int) -> Any:
        config = settings(
            tmp_path, per_device_train_batch_size=micro, max_steps=1, num_generations=2,
            gradient_accumulation_steps=4, save_steps=0, warmup_steps=0,
        )  # fmt: skip
        trainer = build_trainer(tiny(), tokenizer, config, rows, batch=4)
        train_from(trainer, None, 1)
        return trainer

    whole, split = trained(4), trained(1)
    assert trained(3).args.per_device_train_batch_size == 2  # three rows would make updates of six
    loss = full_loss(tiny(), rows).item() / sum(sum(row.learn[1:]) for row in rows)
    for trainer in (whole, split):
        assert trainer.state.log_history[0]["loss"] == pytest.approx(loss, rel=1e-4)
    found = zip(whole.model.parameters(), split.model.parameters(), strict=True)
    assert all(torch.allclose(one, other, atol=2e-4) for one, other in found)
