"""`trl.GRPOTrainer` with several updates per generation batch, each with less work.

Several updates: each takes a part of the rows, and together they count as one step. The weights of
the later ones are not those that sampled the rows, so the ratio to the sampled probabilities is
clipped. Less work: see `trainer.grpo.batches`, `trainer.runtime.masked_logits`, docs/own-model.md.

Rows that another sampler drew are corrected by truncated importance ratios, which trl has for its
own vLLM integration only, for one more forward pass. With several updates the clipped ratio takes
their place.
"""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import torch
from trl import GRPOTrainer
from trl.trainer.utils import RepeatSampler, split_tensor_dict

from trainer.grpo.batches import both_verdicts, counted, split_updates, trim, without_idle_rows
from trainer.grpo.checkpoint import WholeCheckpoints
from trainer.runtime.masked_logits import avoid_uncompiled_kernels, prepare, score_tokens
from trainer.runtime.ranks import average_gradients

Tensor = torch.Tensor
log = logging.getLogger(__name__)


class EpochSampler(RepeatSampler):  # type: ignore[misc]
    """trl's sampler, with an order that depends on the epoch alone.

    trl's own starts with the first epoch's order again when training resumes in a later epoch.
    `steps_done` returns the training steps so far; each takes a chunk of the questions.
    """

    steps_done: Callable[[], int]

    def __iter__(self) -> Iterator[int]:
        self.generator.manual_seed(self.seed)
        for _ in range(self.steps_done() // (self.num_samples // self.batch_size)):
            torch.randperm(self.num_samples, generator=self.generator)
        yield from super().__iter__()


class LengthSortedGRPOTrainer(WholeCheckpoints, GRPOTrainer):  # type: ignore[misc]
    """`GRPOTrainer` that forms its micro-batches by length. The sum of their gradients is the same.

    The logged entropy and clip ratios are means over micro-batches of the mean over each one's
    tokens, so tokens of short rows weigh more.
    """

    _buffered_inputs: Any
    _scored: Tensor | None = None  # ids whose log-probabilities the present loss needs, [B, P + C]
    _warned = False
    _both_verdicts: Tensor  # of the present generation batch of all processes, [B]
    _loss_inputs: Any = None  # of the present loss

    def __init__(
        self,
        *arguments: Any,
        updates: int,
        importance_cap: float,
        skip_one_verdict_groups: bool,
        **options: Any,
    ) -> None:
        """`arguments` and `options` are those of `GRPOTrainer`.

        `updates` is the number of optimizer steps per generation batch. With an `importance_cap`
        above 0, each token's loss is multiplied by the ratio of its probabilities in the model and
        in the sampler (`logprobs` of the rollout), at most the cap. `skip_one_verdict_groups` gives
        the rows of groups that are all right or all wrong the advantage 0.
        """
        self._updates = updates
        self._importance_cap, self._skip_one_verdict = importance_cap, skip_one_verdict_groups
        avoid_uncompiled_kernels()
        super().__init__(*arguments, **options)
        lora = hasattr(self.model, "get_base_model")
        prepare(self.model.get_base_model() if lora else self.model, self.temperature)

    def _calculate_rewards(self, *arguments: Any) -> Tensor:
        rewards: Tensor = super()._calculate_rewards(*arguments)
        correct = rewards[:, 0]
        self._both_verdicts = both_verdicts(correct, self.num_generations)
        one_verdict = 1 - float(self._both_verdicts.float().mean())
        self._metrics["train"]["one_verdict_groups"].append(one_verdict)
        nothing = self._skip_one_verdict and not self.beta and not (correct == 1).any()
        if nothing and not self._warned and self.accelerator.is_main_process:
            self._warned = True
            log.warning(
                "step %d teaches nothing, because none of its episodes is right and groups with "
                "one verdict are skipped. If that goes on, warm-start the model with 'python -m "
                "trainer sft', or set skip_one_verdict_groups=false to learn from progress",
                self.state.global_step + 1,
            )
        return rewards

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        rows: dict[str, Any] = super()._generate_and_score_completions(inputs)
        # by trl's formula 0 or 1 with scale_rewards=batch; one_verdict_groups is logged instead
        self._metrics["train"].pop("frac_reward_zero_std", None)
        if self._skip_one_verdict:
            advantages = rows["advantages"]
            first = self.accelerator.process_index * len(advantages)
            taught = self._both_verdicts[first : first + len(advantages)]
            rows["advantages"] = advantages.where(taught, 0)
        return rows

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        chunks = self.args.gradient_accumulation_steps
        if self._step % chunks == 0 or self._buffered_inputs is None:
            rows = self._generate_and_score_completions(generation_batch)
            if not self.beta:  # the KL term has a gradient of its own
                rows = without_idle_rows(rows)
            self._buffered_inputs = [
                trim(one)
                for part in split_updates(rows, self._updates)
                for one in split_tensor_dict(part, chunks // self._updates)
            ]
        return self._buffered_inputs[self._step % chunks]

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        inputs = self._loss_inputs = dict(inputs)
        metrics, tokens = self._metrics["train"], counted(inputs)
        logged = {name: list(values) for name, values in metrics.items()}
        if self.beta:  # 0 where nothing is scored, as in what it is compared with
            inputs["ref_per_token_logps"] = inputs["ref_per_token_logps"] * tokens
        unscored = torch.zeros_like(inputs["prompt_mask"])
        self._scored = torch.cat([unscored, tokens], dim=1).bool()
        try:
            # trl divides by the micro-batches of the whole generation batch
            loss = super()._compute_loss(model, inputs) * self._updates
            if not self.accelerator.reduce(tokens.sum()):  # nothing to report
                metrics.clear()
                metrics.update(logged)
            return loss
        finally:
            self._scored = self._loss_inputs = None

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: Tensor, attention_mask: Tensor, kept: int, **options: Any
    ) -> Any:
        if self._scored is None:  # of the reference model
            return super()._get_per_token_logps_and_entropies(
                model, input_ids, attention_mask, kept, **options
            )
        with self.accelerator.autocast():
            values = score_tokens(model, input_ids, attention_mask, self._scored)
        scored = self._scored[:, -kept:]
        # scattered, so that a loss without a single token has a gradient too, of 0
        logps, entropies = (
            one.new_zeros(scored.shape).masked_scatter(scored, one) for one in values
        )
        inputs, present = self._loss_inputs, logps.detach()
        if self._importance_cap:
            ratios = self._truncated_ratios(inputs, present)
        if self._updates > 1:  # trl clips the ratio to these; unknown ones count as the present
            sampled = inputs["sampling_per_token_logps"]
            inputs["old_per_token_logps"] = torch.where(sampled.isnan(), present, sampled) * scored
        elif self._importance_cap:  # before trl reads them
            inputs["advantages"] = inputs["advantages"].unsqueeze(1) * ratios
        return logps, entropies, None

    def _truncated_ratios(self, inputs: dict[str, Any], logps: Tensor) -> Tensor:
        """Return the truncated importance ratio of every token, [B, C], and log their means.

        `logps` [B, C] are of the present weights.
        """
        tokens = counted(inputs).bool()
        # no log-probability from the sampler: no correction
        difference = (logps - inputs["sampling_per_token_logps"]).nan_to_num().where(tokens, 0)
        ratio = difference.exp()
        truncated: Tensor = ratio.clamp(max=self._importance_cap)
        values = {
            "sampling/importance_ratio/mean": truncated,
            "sampling/importance_ratio/truncated": (ratio > self._importance_cap).float(),
            "sampling/logp_difference/mean": difference.abs(),
        }
        sums = torch.stack([value[tokens].sum() for value in values.values()])
        totals = self.accelerator.reduce(torch.cat([sums, tokens.sum()[None]]), reduction="sum")
        *found, count = totals.tolist()
        for name, value in zip(values, found, strict=True):
            self._metrics["train"][name].append(value / max(count, 1.0))
        return truncated

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        loss: Tensor = super().training_step(model, inputs, num_items_in_batch)
        whole = self.args.gradient_accumulation_steps
        done = self._step % whole
        if done and done % (whole // self._updates) == 0:
            self._update_weights(model)
        return loss / self._updates

    def _update_weights(self, model: Any) -> None:
        """Take an optimizer step within a generation batch; transformers takes the last one."""
        state, processes = self.accelerator.gradient_state, self.accelerator.num_processes
        state._set_sync_gradients(True)  # else accelerate ignores the step
        # transformers lets DDP average those of the last one only
        if processes > 1:
            average_gradients(model, processes)
        self._clip_grad_norm(model)
        self.callback_handler.on_pre_optimizer_step(self.args, self.state, self.control)
        self.optimizer.step()
        model.zero_grad()
        state._set_sync_gradients(False)

    def _get_train_sampler(self, dataset: Any = None) -> Any:
        sampler = super()._get_train_sampler(dataset)
        sampler.__class__ = EpochSampler
        sampler.steps_done = lambda: self.state.global_step
        return sampler
