"""A start for a small Qwen3 that can already copy: its first two layers are wired as an induction
head.

From random weights a model of this size spends most of a laptop's budget on discovering how to copy
a name or an answer that it has seen before. Here the head that does it (Olsson et al., 'In-context
Learning and Induction Heads', 2022) is written into the weights, and training starts from there;
nothing of it is frozen.

The residual stream is divided: token content, one constant, and a copy of the previous token's
content.

- Layer 0, half of the heads: attend to the previous position, by rotary phase alone, and write its content aside.
- Layer 1, every head: the query is this token's content, the key the previous token's content at each position, so that
  it finds what followed this token before; it writes that token's content where the tied output head reads it.
"""

import math

import torch
from torch import Tensor
from transformers import Qwen3ForCausalLM

EMBEDDING_STD = 0.1
CONSTANT = 0.5
PREVIOUS_PAIRS = 3  # the fastest rotary pairs tell the previous position from all others
PREVIOUS_GAIN = 2.5
# radians a position: rotary pairs slower than this compare content at any distance
SLOW_ANGLE = 0.004
MATCH_GAIN = 2.0
COPY_SCALE = 0.3


@torch.no_grad()
def wire_induction(model: Qwen3ForCausalLM, seed: int = 0) -> None:
    """Write the induction head into `model`'s embedding and first two layers, in place. Other
    weights stay as drawn."""
    config = model.config
    heads, head_dim = config.num_attention_heads, config.head_dim
    previous_heads = heads // 2
    share = min(head_dim, (config.hidden_size - 1) // (2 * previous_heads))
    content = share * previous_heads
    constant, aside = content, content + 1
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
    _wire_previous(model, angles, previous_heads, share, constant, aside)
    _wire_match(model, angles, content, aside, stream)


def _wire_previous(
    model: Qwen3ForCausalLM,
    angles: Tensor,
    previous_heads: int,
    share: int,
    constant: int,
    aside: int,
) -> None:
    """Layer 0: `previous_heads` heads, each moving `share` dimensions of the previous token's
    content to `aside`."""
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
        # a key turned ahead by one position's angle meets its query, unturned, one position later
        attention.k_proj.weight[rows][fast, constant] = torch.cos(angles[fast])
        attention.k_proj.weight[rows][half + fast, constant] = torch.sin(angles[fast])
        moved = torch.arange(share)
        attention.v_proj.weight[rows][moved, head * share + moved] = 1
        attention.o_proj.weight[aside + head * share + moved, head * head_dim + moved] = (
            EMBEDDING_STD
        )
    for norm in (attention.q_norm, attention.k_norm):
        norm.weight[fast] = PREVIOUS_GAIN
        norm.weight[half + fast] = PREVIOUS_GAIN


def _wire_match(
    model: Qwen3ForCausalLM, angles: Tensor, content: int, aside: int, stream: torch.Generator
) -> None:
    """Layer 1: every head matches content with the content set aside, and copies its part of the
    content found."""
    attention = model.model.layers[1].self_attn
    heads, head_dim = model.config.num_attention_heads, model.config.head_dim
    half = head_dim // 2
    slow = torch.nonzero(angles < SLOW_ANGLE).flatten()
    slow = torch.cat([slow, half + slow])
    part = math.ceil(content / heads)
    for projection in (attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj):
        projection.weight.zero_()
    for head in range(heads):
        rows = slice(head * head_dim, (head + 1) * head_dim)
        compare = torch.randn(len(slow), content, generator=stream) / math.sqrt(content)
        attention.q_proj.weight[rows][slow, :content] = compare
        attention.k_proj.weight[rows][slow, aside : aside + content] = compare
        copied = torch.arange(min(part, content - head * part))
        attention.v_proj.weight[rows][copied, head * part + copied] = 1
        attention.o_proj.weight[head * part + copied, head * head_dim + copied] = COPY_SCALE
    for norm in (attention.q_norm, attention.k_norm):
        norm.weight[slow] = MATCH_GAIN
