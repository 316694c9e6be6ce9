"""Sampling from a Hugging Face causal LM, with one KV cache for all turns of a batch.

A call feeds rows the ids appended since their last turn and decodes all rows together, until a
share of their turns have ended. Rows have slots in the cache; those still sampling are moved to the
first slots, so that finished ones cost nothing. What rows read is computed once for all that have
read the same so far, as the attempts at a question have at first.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import numpy as np
import torch

from trainer.errors import ModelLoadError
from trainer.rollout.generators.ragged_cache import Plan, RaggedCache
from trainer.rollout.transcript import Sample
from trainer.runtime.models import context_window

Tensor = torch.Tensor

PASS_TOKENS = 4096  # with their padding, read in one forward pass
TURN_TOKENS = 64  # that the cache has room for when a turn starts; few turns are longer
SHORTEST_SHARED = 128  # tokens that prompts begin with: a pass of its own for fewer saves nothing


@dataclass(slots=True)
class _Row:
    stream: tuple[int, ...]
    context: list[int] = field(default_factory=list)  # ids so far, fed or not
    turn: int = 0
    temperature: float | None = None  # of its turns, if it is another than the generator's
    # the latest turn, whose last id the cache has not seen
    sample: Sample = field(default_factory=lambda: Sample([], []))


class LocalGenerator:
    """A `Generator` over `model`, which must be on its device and in eval mode.

    Token t of turn n of a row is drawn with the t-th uniform of the stream (row's stream, n), by
    inverse CDF, so an episode's samples do not depend on the rest of its batch. `logprobs` are
    log-softmax in float32 of the raw logits divided by `temperature`, as TRL computes them.
    `ends_action` is asked about a turn's ids after each id, and ends the turn. `on_tokens` is that
    of an `EpisodeObserver`, called after each forward pass.
    """

    def __init__(
        self,
        model: Any,
        stop_ids: frozenset[int],
        *,
        max_new_tokens: int,
        max_context_tokens: int,
        temperature: float = 1.0,
        greedy: bool = False,
        ends_action: Callable[[Sequence[int]], bool] | None = None,
        ended_share: float = 1.0,
        on_tokens: Callable[[int, int, int], None] | None = None,
    ) -> None:
        self._model = model
        self._layers, window = _layers(model), context_window(model)
        self._stop_ids = stop_ids
        self._max_new = max_new_tokens
        self.limit = min(max_context_tokens, window)
        self._temperature = temperature
        self._greedy = greedy
        self._ends_action = ends_action
        self._ended_share = ended_share
        self._on_tokens = on_tokens or (lambda read, written, turns: None)
        self._device = model.get_input_embeddings().weight.device
        self._under_way: set[int] = set()  # rows whose turn has not ended
        self._order: list[int]  # slot -> row
        self._lengths: Tensor  # ids in the cache, by slot
        self.start([])

    def start(self, streams: Sequence[tuple[int, ...]]) -> None:
        self._rows = [_Row(tuple(stream)) for stream in streams]
        self._order = list(range(len(streams)))
        self._lengths = torch.zeros(len(streams), dtype=torch.long)
        self._cache = RaggedCache(self._layers, len(streams), 0)
        self._under_way.clear()

    def room(self, row: int) -> int:
        return self.limit - len(self._rows[row].context)

    def restart(self, row: int, kept: int) -> None:
        del self._rows[row].context[kept:]
        self._rows[row].sample = Sample([], [])
        # its other cached ids are overwritten, and not read before that
        self._lengths[self._order.index(row)] = kept

    def heat(self, row: int, temperature: float | None) -> None:
        """Draw the row's next turns at another temperature; None: as usual."""
        self._rows[row].temperature = temperature

    @torch.no_grad()  # under inference_mode, autocast would cast every weight at every token
    def sample(self, appended: Mapping[int, Sequence[int]]) -> dict[int, Sample]:
        if not appended and not self._under_way:
            return {}
        assert all(0 < len(ids) < self.room(index) for index, ids in appended.items())
        assert self._under_way.isdisjoint(appended)
        fed = {**appended, **dict.fromkeys(sorted(self._under_way), ())}
        chunks = {index: [*self._rows[index].sample.ids[-1:], *ids] for index, ids in fed.items()}
        for index, ids in appended.items():
            self._rows[index].context += ids
        logits = self._extend(chunks)
        for index in appended:
            self._rows[index].sample = Sample([], [])
        self._under_way.update(appended)
        ended = sorted(self._decode(logits))
        self._under_way.difference_update(ended)
        for index in ended:
            self._rows[index].turn += 1
        return {index: self._rows[index].sample for index in ended}

    def _extend(self, chunks: dict[int, list[int]]) -> Tensor:
        """Feed a turn, longest chunk first; drop finished rows. Return logits, [rows, V]. Rows of
        one context are fed once: the first of them computes it, and the others copy it. So do all
        rows with what their prompts begin with."""
        slots: dict[tuple[int, ...], list[int]] = {}  # by context
        for slot, row in enumerate(self._order):
            if row in chunks:
                slots.setdefault(tuple(self._rows[row].context), []).append(slot)
        order = self._order
        assert sum(map(len, slots.values())) == len(chunks), "a row that was dropped came back"
        # of one context, the row of which most is cached has the shortest chunk
        alike = [sorted(one, key=lambda slot: len(chunks[order[slot]])) for one in slots.values()]
        alike.sort(key=lambda one: len(chunks[order[one[0]]]), reverse=True)
        first = torch.tensor([one[0] for one in alike])
        fed = [chunks[order[one[0]]] for one in alike]
        if shared := 0 if self._lengths.any() else _shared_prefix(fed):
            self._take(first[:1], room=shared)
            self._feed([fed[0][:shared]])
            first, fed = torch.zeros_like(first), [ids[shared:] for ids in fed]
        copied = len(chunks) - len(alike)
        ends = self._lengths[first] + torch.tensor(list(map(len, fed)))
        room = int(ends.max() - self._lengths[first].max())
        self._take(first, room=room + (0 if copied else TURN_TOKENS))
        logits = self._feed(fed)
        self._order = [order[slot] for one in alike for slot in one]
        if not copied:
            return logits
        places = torch.arange(len(alike)).repeat_interleave(torch.tensor(list(map(len, alike))))
        self._take(places, room=TURN_TOKENS)
        return logits[places.to(self._device)]

    def _take(self, slots: Tensor, room: int) -> None:
        self._lengths = self._lengths[slots]
        used = int(self._lengths.max())
        self._cache.take(slots.to(self._device), used, used + room)

    def _feed(self, chunks: list[list[int]]) -> Tensor:
        """Feed slot i the ids `chunks[i]`, longest first. Return logits after each last id, [slots,
        V]. A pass takes neighbours with chunks at least half as long as its longest, which keeps
        padding below half, and at most `PASS_TOKENS`, which bounds its memory and its time."""
        logits, first = [], 0
        while first < len(chunks):
            width, last = len(chunks[first]), first + 1
            most = min(len(chunks), first + max(1, PASS_TOKENS // width))
            while last < most and 2 * len(chunks[last]) >= width:
                last += 1
            logits.append(self._feed_together(chunks[first:last], first))
            first = last
        return torch.cat(logits)

    def _feed_together(self, chunks: list[list[int]], first: int) -> Tensor:
        """Run one forward pass over left-padded chunks, so that every row's last id is in the last
        column. Return logits, [rows, V]."""
        last, width = first + len(chunks), len(chunks[0])
        counts = torch.tensor([len(ids) for ids in chunks])
        pads = width - counts
        ids = torch.tensor([[0] * (width - len(chunk)) + chunk for chunk in chunks])
        start = self._lengths[first:last]
        columns = torch.arange(width)
        positions = (start - pads)[:, None] + columns  # [rows, width]
        real = columns >= pads[:, None]
        # a padding query attends to position 0 only, so its softmax is finite
        positions = positions.where(real, 0)
        rows, fed = real.nonzero(as_tuple=True)
        self._lengths[first:last] += counts
        length = int(self._lengths[first:last].max())
        device = self._device
        self._cache.plan = Plan(
            first,
            last,
            length,
            slots=(rows + first).to(device),
            positions=positions[rows, fed].to(device),
            rows=rows.to(device),
            columns=fed.to(device),
        )
        logits = self._forward(ids.to(device), positions.to(device), length)
        self._on_tokens(int(counts.sum()), 0, 0)
        return logits

    def _decode(self, logits: Tensor) -> list[int]:
        """Sample every slot's turn from the logits after its last fed id, [slots, V], until enough
        have ended. Return the rows of these."""
        heated = any(self._rows[row].temperature is not None for row in self._order)
        uniforms = None if self._greedy and not heated else self._uniforms()
        live, ended = len(self._order), list[int]()
        enough = max(1, math.ceil(self._ended_share * live))
        while True:
            taken = [len(self._rows[row].sample.ids) for row in self._order[:live]]
            drawn = None if uniforms is None else uniforms[torch.arange(live), torch.tensor(taken)]
            ids, logprobs = self._draw(logits, drawn, self._order[:live])
            finished = self._record(ids.tolist(), logprobs.tolist())
            self._on_tokens(0, live, len(finished))
            ended += [self._order[slot] for slot in finished]
            if len(ended) >= enough:
                return ended
            if finished:
                live, keep = self._retire(finished, live, uniforms)
                ids = ids[keep]
            logits = self._advance(ids, live)

    def _record(self, ids: list[int], logprobs: list[float]) -> list[int]:
        finished = []
        for slot, (token, logprob) in enumerate(zip(ids, logprobs, strict=True)):
            row = self._rows[self._order[slot]]
            sample = row.sample
            sample.ids.append(token)
            sample.logprobs.append(logprob)
            row.context.append(token)
            if (
                token in self._stop_ids
                or (self._ends_action is not None and self._ends_action(sample.ids))
                or len(row.context) >= self.limit
                or len(sample.ids) >= self._max_new
            ):
                finished.append(slot)
        return finished

    def _retire(
        self, finished: list[int], live: int, uniforms: Tensor | None
    ) -> tuple[int, Tensor]:
        """Move the finished slots behind the others. Return the live slots' number and former
        places."""
        done = set(finished)
        remaining = live - len(done)
        holes = [slot for slot in finished if slot < remaining]
        movers = [slot for slot in range(remaining, live) if slot not in done]
        order = list(range(live))
        for hole, mover in zip(holes, movers, strict=True):
            order[hole], order[mover] = mover, hole
        if holes:
            into, source = torch.tensor([*holes, *movers]), torch.tensor([*movers, *holes])
            self._cache.swap(
                torch.tensor(holes, device=self._device),
                torch.tensor(movers, device=self._device),
                int(self._lengths[source].max()),
            )
            self._lengths[into] = self._lengths[source]
            if uniforms is not None:
                uniforms[into.to(self._device)] = uniforms[source.to(self._device)]
            self._order[:live] = [self._order[slot] for slot in order]
        return remaining, torch.tensor(order[:remaining], device=self._device)

    def _advance(self, ids: Tensor, live: int) -> Tensor:
        """Feed one id to each of the first `live` slots. Return logits, [live, V]."""
        if int(self._lengths[:live].max()) >= self._cache.capacity:
            self._take(torch.arange(self._cache.slots), room=TURN_TOKENS)
        positions = self._lengths[:live].to(self._device, copy=True)
        self._lengths[:live] += 1
        length = int(self._lengths[:live].max())
        slots = torch.arange(live, device=self._device)
        self._cache.plan = Plan(0, live, length, slots, positions, rows=slots, columns=None)
        return self._forward(ids[:, None], positions[:, None], length)

    def _forward(self, ids: Tensor, positions: Tensor, length: int) -> Tensor:
        """Return logits after the last column, [rows, V]; ids and positions: [rows, columns]."""
        dtype = self._model.dtype
        hidden = torch.arange(length, device=self._device) > positions[..., None]
        mask = torch.zeros(hidden.shape, dtype=dtype, device=self._device)
        mask.masked_fill_(hidden, torch.finfo(dtype).min)
        output = self._model(
            input_ids=ids,
            attention_mask=mask[:, None],
            position_ids=positions,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        logits: Tensor = output.logits[:, -1]
        return logits

    def _uniforms(self) -> Tensor:
        """Draw this turn's uniforms in [0, 1), [slots, max_new]."""
        rows = [self._rows[index] for index in self._order]
        streams = (np.random.default_rng((*row.stream, row.turn)) for row in rows)
        drawn = np.stack([stream.random(self._max_new) for stream in streams])
        return torch.from_numpy(drawn).to(self._device)

    def _draw(
        self, logits: Tensor, uniforms: Tensor | None, order: Sequence[int]
    ) -> tuple[Tensor, Tensor]:
        """Return ids and their log-probabilities, [rows]. logits: [rows, V]; uniforms: [rows]."""
        own = [self._rows[row].temperature for row in order]
        temperatures = [self._temperature if one is None else one for one in own]
        logprobs = (logits.float() / self._column(temperatures)).log_softmax(-1)
        ids = logits.argmax(-1)
        if uniforms is not None:
            cdf = logprobs.exp().cumsum(-1, dtype=torch.float64)
            # the first id whose cumulative mass exceeds the target, never one of probability 0
            target = uniforms[:, None] * cdf[:, -1:]
            drawn = torch.searchsorted(cdf, target, right=True)[:, 0].clamp_(max=cdf.shape[-1] - 1)
            greedy = self._column([self._greedy and one is None for one in own])
            ids = torch.where(greedy[:, 0], ids, drawn)
        return ids, logprobs.gather(-1, ids[:, None])[:, 0]

    def _column(self, values: Sequence[float]) -> Tensor:
        return torch.tensor(values, device=self._device)[:, None]


def _shared_prefix(prompts: Sequence[list[int]]) -> int:
    """Return how many ids all prompts begin with, at most all but the last of the shortest; 0 if
    computing them apart does not pay."""
    if len(prompts) < 2:
        return 0
    pairs = zip(min(prompts), max(prompts), strict=False)
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    shared = min(same, len(min(prompts, key=len)) - 1)
    return shared if shared >= SHORTEST_SHARED else 0


def _layers(model: Any) -> int:
    """Return the number of layers; `ModelLoadError` unless attention takes a mask."""
    config = model.config.get_text_config()
    implementation = config._attn_implementation
    if implementation not in ("sdpa", "eager"):
        raise ModelLoadError(
            f"attention {implementation!r} accepts no custom mask: load the model with "
            "attn_implementation='sdpa'"
        )
    layers: int = config.num_hidden_layers
    return layers
