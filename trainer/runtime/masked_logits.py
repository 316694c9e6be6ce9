"""Log-probabilities of the tokens that a loss counts, at no cost for the others.

The policy's own tokens are a quarter of an episode's row. Here the LM head gets only the hidden
states that it needs, and ids that all rows begin with, such as the prompt, pass the layers once;
their keys and values are shared. Loss and gradients are the same to rounding.
"""

from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import DynamicCache
from trl.kernels import chunked_logprob
from trl.trainer.utils import add_fused_lm_head

from trainer.runtime.memory import can_compile_kernels

Tensor = torch.Tensor


def prepare(model: Any, temperature: float = 1.0) -> None:
    """Prepare a causal language model for `score_tokens`, before peft or accelerate wraps it.
    `temperature` divides the logits, which are float32 also under autocast."""
    add_fused_lm_head(
        model, temperature=temperature, cast_lm_head_to_fp32=True, outputs=("log_probs", "entropy")
    )
    select_hidden_states(model)


def avoid_uncompiled_kernels() -> None:
    """Let trl's LM head compute with torch alone, in more memory, if Triton's kernels can't be
    compiled: in slim containers, the first update would fail."""
    if not can_compile_kernels():
        chunked_logprob._TRITON_AVAILABLE = False


def select_hidden_states(model: Any) -> None:
    """Let the layers of `model`, which has trl's fused LM head, return only some hidden states:
    with `scored`, of the shape of `input_ids` and False in column 0, those one position before the
    scored ids, [1, N, H], in the order of the rows."""
    layers = model.base_model
    forward = layers.forward

    def selecting(*args: Any, scored: Tensor | None = None, **options: Any) -> Any:
        if scored is None:
            return forward(*args, **options)
        ids = options.pop("input_ids")
        checkpointing = layers.training and layers.gradient_checkpointing  # excludes a cache
        shared = 0 if checkpointing or len(ids) == 1 else shared_prefix(ids, scored)
        if shared:
            cache = DynamicCache(config=model.config)
            forward(input_ids=ids[:1, :shared], past_key_values=cache, use_cache=True)
            cache.batch_repeat_interleave(len(ids))
            options |= {"past_key_values": cache, "use_cache": True}
        output = forward(input_ids=ids[:, shared:-1], **options)
        output.last_hidden_state = output.last_hidden_state[scored[:, shared + 1 :]][None]
        return output

    layers.forward = selecting


def shared_prefix(ids: Tensor, scored: Tensor) -> int:
    """Return how many columns, the same in all rows, precede every hidden state that is needed."""
    same = (ids == ids[:1]).all(0)[:-1] & ~scored.any(0)[1:]
    same[-1:] = False  # equal rows keep a column of their own
    return int(same.cumprod(0).sum())


def score_tokens(
    model: Any, ids: Tensor, attention_mask: Tensor, scored: Tensor
) -> tuple[Tensor, Tensor]:
    """Return log-probabilities and entropies of the `scored` ids, both [N], in the order of rows.
    All arguments are [rows, columns]; padding may be on either side. A row's first id can't be
    scored."""
    real = attention_mask.bool()

    def rows(values: Tensor) -> Tensor:
        """Move the padding to the right, where causal attention needs no mask against it."""
        listed = [row[kept] for row, kept in zip(values, real, strict=True)]
        return pad_sequence(listed, batch_first=True)

    ids, scored = rows(ids), rows(scored.bool())
    needed = scored.any(1)  # rows without a scored id would share no prompt with the others
    if needed.any():
        longest = int(real[needed].sum(1).max())
    else:  # two ids of a row, so that a loss without a token has a gradient, too
        needed[0], longest = True, 2
    ids, scored = ids[needed, :longest], scored[needed, :longest]
    labels = ids[scored][None]
    output = model(input_ids=ids, scored=scored, shift_labels=labels, fused_lm_head=True)
    return output.log_probs[0], output.entropy[0]
