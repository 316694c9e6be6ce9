"""Initial weights for a small Qwen3 that can already copy: an induction head in two layers.

From random weights a model of this size spends most of a laptop's budget on learning to copy a name
or an answer that it has seen before. Here the head that does so (Olsson et al., 'In-context
Learning and Induction Heads', 2022) is written into the weights before training; none of them is
frozen.

The residual stream has three sections: the token's content, one constant, and a copy of the
previous token's content.

- Layer 0, half of the heads: attend to the previous position, by rotary phase only, and write its
  content to the third section.
- Layer 1, every head: the query is this token's content, the key each position's previous token, so
  the head finds what followed this token before, and writes that token's content where the tied
  output head reads it.
"""

import math

import torch
from torch import Tensor
from transformers import Qwen3ForCausalLM

EMBEDDING_STD = 0.1
CONSTANT = 0.5
PREVIOUS_PAIRS = 3  # the fastest rotary pairs distinguish the previous position from all others
PREVIOUS_GAIN = 2.5
SLOW_ANGLE = 0.004  # radians per position: slower rotary pairs compare content at any distance
MATCH_GAIN = 2.0
COPY_SCALE = 0.3


@torch.no_grad()
def wire_induction(model: Qwen3ForCausalLM, seed: int = 0) -> None:
    """Write the induction head into `model`'s embedding and first two layers, in place."""
    config = model.config
    heads, head_dim = config.num_attention_heads, config.head_dim
    previous_heads = heads // 2
    share = min(head_dim, (config.hidden_size - 1) // (2 * previous_heads))
    content = share * previous_heads
    constant, copy = content, content + 1
    stream = torch.Generator().manual_seed(seed)

    embedding = model.model.embed_tokens.weight
    embedding.zero_()
    embedding[:, :content] = (
        torch.randn(embedding.shape[0], content, generator=stream) * EMBEDDING_STD
    )
    embedding[:, constant] = CONSTANT

    angles = config.rope_parameters["rope_theta"] ** (
        -torch.arange(head_dim // 2) / (head_dim // 2)
    )
    _wire_previous(model, angles, previous_heads, share, constant, copy)
    _wire_match(model, angles, content, copy, stream)


def _wire_previous(
    model: Qwen3ForCausalLM,
    angles: Tensor,
    previous_heads: int,
    share: int,
    constant: int,
    copy: int,
) -> None:
    """Make `previous_heads` heads of layer 0 each copy `share` dimensions of the previous token.

    `constant` and `copy` are where these sections of the residual stream start.
    """
    attention = model.model.layers[0].self_attn
    head_dim = model.config.head_dim
    half = head_dim // 2
    fast = torch.arange(PREVIOUS_PAIRS)
    for head in range(previous_heads):
        rows = slice(head * head_dim, (head + 1) * head_dim)
        for projection in (attention.q_proj, attention.k_proj, attention.v_proj):
            projection.weight[rows] = 0
        attention.o_proj.weight[:, rows] = 0
        attention.q_proj.weight[rows][fast, constant] = 1
        # a key rotated ahead by one position's angle matches the query one position later
        attention.k_proj.weight[rows][fast, constant] = torch.cos(angles[fast])
        attention.k_proj.weight[rows][half + fast, constant] = torch.sin(angles[fast])
        moved = torch.arange(share)
        attention.v_proj.weight[rows][moved, head * share + moved] = 1
        attention.o_proj.weight[copy + head * share + moved, head * head_dim + moved] = (
            EMBEDDING_STD
        )
    for norm in (attention.q_norm, attention.k_norm):
        norm.weight[fast] = PREVIOUS_GAIN
        norm.weight[half + fast] = PREVIOUS_GAIN


def _wire_match(
    model: Qwen3ForCausalLM, angles: Tensor, content: int, copy: int, stream: torch.Generator
) -> None:
    """Make every head of layer 1 match content with the copy, and write its share of the match."""
    attention = model.model.layers[1].self_attn
    heads, head_dim = model.config.num_attention_heads, model.config.head_dim
    half = head_dim // 2
    slow = torch.nonzero(angles < SLOW_ANGLE).flatten()
    slow = torch.cat([slow, half + slow])
    share = math.ceil(content / heads)
    for projection in (attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj):
        projection.weight.zero_()
    for head in range(heads):
        rows = slice(head * head_dim, (head + 1) * head_dim)
        compare = torch.randn(len(slow), content, generator=stream) / math.sqrt(content)
        attention.q_proj.weight[rows][slow, :content] = compare
        attention.k_proj.weight[rows][slow, copy : copy + content] = compare
        copied = torch.arange(min(share, content - head * share))
        attention.v_proj.weight[rows][copied, head * share + copied] = 1
        attention.o_proj.weight[head * share + copied, head * head_dim + copied] = COPY_SCALE
    for norm in (attention.q_norm, attention.k_norm):
        norm.weight[slow] = MATCH_GAIN
