"""A KV cache whose rows have different lengths.

Every row's keys and values are at its positions 0 .. length-1, without gaps: chunks of unequal
length are written without their padding. Attention reads the longest live row's length, not the sum
of every turn's longest chunk. Buffers have spare room, so a token costs one small write, not a copy
of the cache.
"""

from dataclasses import dataclass

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

Tensor = torch.Tensor
_ROUND = 64  # capacity is a multiple of this number of tokens


@dataclass(slots=True)
class Plan:
    """Where the next forward pass reads and writes. N is the number of ids fed, without padding."""

    first: int  # the pass covers slots first .. last-1
    last: int
    length: int  # positions that attention reads
    slots: Tensor  # [N] where each fed id goes
    positions: Tensor  # [N]
    rows: Tensor  # [N] where it comes from: row of the pass
    columns: Tensor | None  # [N] column of the pass; None if the pass feeds one id per row


class _RaggedLayer(CacheLayerMixin):  # type: ignore[misc]
    """One layer's keys and values, [slots, heads, capacity, head_dim]."""

    is_sliding = False

    def __init__(self, owner: "RaggedCache") -> None:
        super().__init__()
        self.owner = owner

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        shape = (self.owner.slots, key_states.shape[1], self.owner.capacity)
        place = key_states.device
        # attention computes in autocast's dtype, so store no wider one
        lower = torch.is_autocast_enabled(place.type)
        autocast = torch.get_autocast_dtype(place.type) if lower else None
        # zeros: the softmax multiplies masked positions by 0, and 0 x NaN is NaN
        self.keys = key_states.new_zeros((*shape, key_states.shape[3]), dtype=autocast)
        self.values = value_states.new_zeros((*shape, value_states.shape[3]), dtype=autocast)
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: object, **__: object
    ) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        plan = self.owner.plan
        assert plan is not None
        for buffer, fed in ((self.keys, key_states), (self.values, value_states)):
            source = fed[:, :, 0] if plan.columns is None else fed[plan.rows, :, plan.columns]
            buffer[plan.slots, :, plan.positions] = source.to(buffer.dtype)
        window = slice(plan.first, plan.last), slice(None), slice(plan.length)
        return self.keys[window], self.values[window]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.get_seq_length(), 0

    def get_seq_length(self) -> int:
        return 0 if self.owner.plan is None else self.owner.plan.length

    def get_max_length(self) -> int:
        return -1


class RaggedCache(Cache):  # type: ignore[misc]
    def __init__(self, layers: int, slots: int, capacity: int) -> None:
        self.slots, self.capacity = slots, _rounded(capacity)
        self.plan: Plan | None = None
        super().__init__(layers=[_RaggedLayer(self) for _ in range(layers)])

    def take(self, slots: Tensor, used: int, capacity: int) -> None:
        """Keep the first `used` positions of the rows `slots`, [M], in that order, with room for
        `capacity` tokens per row. A slot may be taken more than once."""
        self.slots, self.capacity = len(slots), _rounded(capacity)
        for layer in self.layers:
            if layer.is_initialized:
                for name in ("keys", "values"):
                    old = getattr(layer, name)
                    kept = old.new_zeros((self.slots, old.shape[1], self.capacity, old.shape[3]))
                    kept[:, :, :used] = old[slots, :, :used]
                    setattr(layer, name, kept)

    def swap(self, left: Tensor, right: Tensor, length: int) -> None:
        into, source = torch.cat([left, right]), torch.cat([right, left])
        for layer in self.layers:
            for buffer in (layer.keys, layer.values):
                buffer[into, :, :length] = buffer[source, :, :length]


def _rounded(tokens: int) -> int:
    return -(-tokens // _ROUND) * _ROUND
