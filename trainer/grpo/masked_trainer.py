"""`trl.GRPOTrainer` that computes what its loss counts, and nothing else.

That is the policy's own tokens, a quarter of an episode's (`trainer.runtime.masked_logits`). Rows
whose advantage is 0 have no gradient and are left out. A micro-batch is a dictionary of values by
row: `prompt_mask` [B, P], padded on the left, `completion_mask` [B, C], padded on the right,
`advantages` [B] and others.
"""

from types import SimpleNamespace
from typing import Any

import torch
from trl import GRPOTrainer
from trl.trainer.utils import split_tensor_dict

from trainer.runtime.checkpoint import WholeCheckpoints
from trainer.runtime.masked_logits import avoid_uncompiled_kernels, prepare, score_tokens

Tensor = torch.Tensor
Batch = dict[str, Any]


def counted(batch: Batch, *, idle: bool) -> Tensor:
    """Return the mask of the tokens that the loss counts, [B, C]; without `idle`, of rows whose
    advantage is not 0."""
    mask: Tensor = batch["completion_mask"] * batch["tool_mask"]
    return mask if idle else mask * (batch["advantages"] != 0).unsqueeze(1)


def by_length(batch: Batch) -> Batch:
    """Return a batch with its longest rows first, so that a lack of memory shows early, and those
    with advantage 0 last.

    In micro-batches of rows in trl's random order, padding doubles the CPU time of an update.
    """
    lengths = batch["prompt_mask"].sum(1) + batch["completion_mask"].sum(1)
    order = torch.argsort(lengths * (batch["advantages"] != 0), descending=True, stable=True)
    return {name: value[order] if value.ndim else value for name, value in batch.items()}


class MaskedGRPOTrainer(WholeCheckpoints, GRPOTrainer):  # type: ignore[misc]
    """`GRPOTrainer` with the same gradients for less work.

    The logged entropy and clip ratios are means over micro-batches of the mean over each one's
    tokens.
    """

    _buffered_inputs: list[Batch] | None

    def __init__(
        self,
        *arguments: Any,
        sampled_elsewhere: bool,
        skip_one_verdict_groups: bool,
        **options: Any,
    ) -> None:
        """`arguments` and `options` are those of `GRPOTrainer`.

        If the rows were `sampled_elsewhere`, each token's loss has the clipped ratio of its
        probabilities in the model and in the sampler (`logprobs` of the rollout).
        `skip_one_verdict_groups` gives the rows of groups that are all right or all wrong the
        advantage 0.
        """
        self._sampled_elsewhere = sampled_elsewhere
        self._skip_one_verdict = skip_one_verdict_groups
        avoid_uncompiled_kernels()
        super().__init__(*arguments, **options)
        lora = hasattr(self.model, "get_base_model")
        prepare(self.model.get_base_model() if lora else self.model, self.temperature)

    def _generate_and_score_completions(self, inputs: Any) -> Batch:
        rows: Batch = super()._generate_and_score_completions(inputs)
        if self._skip_one_verdict:
            # trl adds the columns of the rollout to its inputs
            taught = torch.tensor([one["both_verdicts"] for one in inputs])
            rows["advantages"] = rows["advantages"].where(taught.to(rows["advantages"].device), 0)
        return rows

    def _prepare_inputs(self, generation_batch: Any) -> Batch:
        chunks = self.args.steps_per_generation
        if self._step % chunks == 0 or self._buffered_inputs is None:
            rows = by_length(self._generate_and_score_completions(generation_batch))
            self._buffered_inputs = split_tensor_dict(rows, chunks)
        micro_batch: Batch = self._buffered_inputs[self._step % chunks]
        return micro_batch

    def compute_loss(self, model: Any, inputs: Batch, *arguments: Any, **options: Any) -> Any:
        """Return trl's loss of the log-probabilities of the tokens that it counts."""
        # the KL term of beta has a gradient of its own
        mask = counted(inputs, idle=bool(self.beta))
        ids, attention, scored = (
            torch.cat(parts, dim=1)
            for parts in (
                (inputs["prompt_ids"], inputs["completion_ids"]),
                (inputs["prompt_mask"], inputs["completion_mask"]),
                (torch.zeros_like(inputs["prompt_mask"]), mask),
            )
        )
        with self.accelerator.autocast():
            found = score_tokens(model, ids, attention, scored)
        # scattered, so that a loss without a single token has a gradient too, of 0
        logps, entropy = (
            one.new_zeros(mask.shape).masked_scatter(mask.bool(), one) for one in found
        )
        if not self.accelerator.reduce(mask.sum()):  # nothing to learn or to report
            return logps.sum()
        inputs = {**inputs, "tool_mask": mask}
        if self._sampled_elsewhere:
            sampled, present = inputs["sampling_per_token_logps"], logps.detach()
            # unknown ones count as the present
            inputs["old_per_token_logps"] = torch.where(sampled.isnan(), present, sampled) * mask
            self._log_difference(present, inputs["old_per_token_logps"], mask)
        output = SimpleNamespace(log_probs=logps, entropy=entropy, aux_loss=None)
        return super().compute_loss(lambda **_: output, inputs, *arguments, **options)

    def _log_difference(self, present: Tensor, sampled: Tensor, mask: Tensor) -> None:
        """Log the mean difference between the log-probabilities of model and sampler, in nats."""
        sums = torch.stack([((present - sampled).abs() * mask).sum(), mask.sum()])
        total, count = self.accelerator.reduce(sums, reduction="sum").tolist()
        self._metrics["train"]["sampling/logp_difference/mean"].append(total / max(count, 1.0))
