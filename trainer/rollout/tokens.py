"""Token-exact transcripts: the ids that a model read and sampled, never tokenized again.

A row is `prompt_ids + completion_ids`. The completion is the sampled turns joined by bridges: what
the chat template puts between an assistant's text and the next generation prompt, with the
observation in it. Bridges are found by rendering sentinels, so any chat template works, also one
that rewrites old turns (Qwen3 drops their thinking).

A context that would outgrow the window is cut to the prompt, which holds the question, and its last
pairs of a turn and the observation that followed, by their own ids. The row ends there: ids sampled
after a cut depend on another context than the row's.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from tokenizers import Tokenizer

from trainer.errors import PromptError
from trainer.rollout.generators.base import Sample

Message = Mapping[str, Any]  # role, content
_SENTINEL = "SQLENVx{}x"
KEPT_PAIRS = 3  # of a turn and its observation, in a context that was cut


def pairs_kept(prompt: int, pairs: Sequence[int], window: int, turn: int) -> int:
    """Return how many of the newest pairs the next turn's context keeps.

    All arguments are lengths in tokens; `pairs` is oldest first. All pairs are kept if `turn`
    tokens fit behind them, else as many of the last `KEPT_PAIRS` as leave room for `turn` tokens.
    If none does, the newest pair is kept if a single token fits behind it, else 0.
    """
    kept: int
    for kept in (len(pairs), *range(min(KEPT_PAIRS, len(pairs) - 1), 0, -1)):
        if prompt + sum(pairs[-kept:]) + turn <= window:
            return kept
    return 1 if prompt + pairs[-1] < window else 0


@dataclass(slots=True)
class Transcript:
    """One episode as ids. `completion_ids`, `env_mask` and `logprobs` have one length, C.

    env_mask is 1 for ids that the policy sampled and 0 for the environment's; logprobs are 0.0
    there. These lists stop growing when the context is first cut. The context is `prompt_ids` and
    all of `pairs`.
    """

    prompt_ids: list[int]
    completion_ids: list[int] = field(default_factory=list)
    env_mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    # each turn's ids in the context, with the ids that followed it
    pairs: list[list[int]] = field(default_factory=list)
    truncations: int = 0  # times that the context was cut

    def add_sample(self, sample: Sample) -> None:
        """Add a turn of the policy."""
        assert len(sample.ids) == len(sample.logprobs)
        self.pairs.append(list(sample.ids))
        if not self.truncations:
            self.completion_ids += sample.ids
            self.env_mask += [1] * len(sample.ids)
            self.logprobs += sample.logprobs

    def add_environment(self, ids: Sequence[int]) -> None:
        """Add ids that the environment wrote, including those of the template."""
        self.pairs[-1] += ids
        if not self.truncations:
            self._mask(ids)

    def truncate(self, kept: int, ids: Sequence[int]) -> list[int]:
        """Add the environment's `ids`, cut the context to the prompt and its `kept` newest pairs,
        and return the whole context."""
        self.truncations += 1
        self.pairs[-1] += ids
        self.pairs = self.pairs[-kept:]
        return [*self.prompt_ids, *(token for pair in self.pairs for token in pair)]

    def kept_with(self, ids: Sequence[int], window: int, turn: int) -> int:
        """Return `pairs_kept` of the context with `ids` behind it."""
        lengths = [len(pair) for pair in self.pairs]
        lengths[-1] += len(ids)
        return pairs_kept(len(self.prompt_ids), lengths, window, turn)

    def _mask(self, ids: Sequence[int]) -> None:
        self.completion_ids += ids
        self.env_mask += [0] * len(ids)
        self.logprobs += [0.0] * len(ids)

    def close(self, eos_id: int, pad_id: int) -> None:
        """End the row with an EOS or a pad, masked: TRL takes any other end for a truncation."""
        if not self.completion_ids or self.completion_ids[-1] not in (eos_id, pad_id):
            self._mask([eos_id])
        assert len(self.completion_ids) == len(self.env_mask) == len(self.logprobs)


class ChatCodec:
    """Converts between messages, action texts and the ids of one tokenizer.

    Control tokens that are spelled in text from outside (questions, table names, cells) are encoded
    as plain text, so a cell that holds `<|im_end|>` can't end a turn.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if not isinstance(backend, Tokenizer):
            name = type(tokenizer).__name__
            raise PromptError(f"{name} is not a fast tokenizer: save it with its tokenizer.json")
        # a copy: other callers change the original's truncation and padding
        self._backend = Tokenizer.from_str(backend.to_str())
        self._backend.no_truncation()
        self._backend.no_padding()
        added = tokenizer.get_added_vocab()
        control = [token for token in added if len(token) > 1]  # one character can't be split
        self._control = re.compile("|".join(map(re.escape, control)) or r"(?!)")
        self.eos_id: int = tokenizer.eos_token_id
        pad_id = tokenizer.pad_token_id
        self.pad_id: int = self.eos_id if pad_id is None else pad_id
        self._layouts: dict[tuple[str, ...], list[list[int]]] = {}
        *_, self._before, self._after = self._layout(("system", "user", "assistant", "user"))
        starts_with_control = bool(self._before) and self._before[0] in frozenset(added.values())
        self.turn_end: int = self._before[0] if starts_with_control else self.eos_id
        self.plain = lru_cache(maxsize=50_000)(self._plain)

    @property
    def stop_ids(self) -> frozenset[int]:
        """Ids that end a sampled turn."""
        return frozenset((self.eos_id, self.turn_end))

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """Return the ids of `apply_chat_template(messages, add_generation_prompt=True,
        enable_thinking=False)`, with control tokens in the messages' texts as plain text."""
        layout = self._layout(tuple(str(message["role"]) for message in messages))
        ids = list(layout[0])
        for message, piece in zip(messages, layout[1:], strict=True):
            ids += self.plain(str(message["content"]))
            ids += piece
        return ids

    def bridge(self, observation: str, last_id: int) -> list[int]:
        """Return what follows a turn that ended with `last_id`: the end of the turn, unless the
        model wrote it, the observation as a user's message, and the next generation prompt."""
        before = self._before[1:] if self._before and last_id == self._before[0] else self._before
        return [*before, *self.plain(observation), *self._after]

    def action(self, text: str) -> list[int]:
        """Return the ids of a demonstrator's turn: `text` and the end of the turn."""
        return [*self.plain(text), self.turn_end]

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of a sampled turn, without control tokens."""
        return self._backend.decode(list(ids), skip_special_tokens=True)

    def _plain(self, text: str) -> tuple[int, ...]:
        """Encode `text`, split inside every control token that it spells."""
        ids, start = list[int](), 0
        while (match := self._control.search(text, start)) is not None:
            end = match.start() + 1
            ids += self._encode(text[start:end])
            start = end
        return (*ids, *self._encode(text[start:]))

    def _encode(self, text: str) -> list[int]:
        return self._backend.encode(text, add_special_tokens=False).ids

    def _layout(self, roles: tuple[str, ...]) -> list[list[int]]:
        """Return the ids around the contents of messages with these roles: one list before each
        content and one at the end."""
        if (known := self._layouts.get(roles)) is not None:
            return known
        contents = [_SENTINEL.format(index) for index in range(len(roles))]
        turns, listed = zip(roles, contents, strict=True), ", ".join(roles)
        messages = [{"role": role, "content": content} for role, content in turns]
        try:
            rendered: str = self._tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True, enable_thinking=False
            )
        except Exception as error:  # templates may raise anything
            raise PromptError(f"the chat template can't render {listed}: {error}") from error
        pieces = []
        for content in contents:
            piece, sentinel, rendered = rendered.partition(content)
            if not sentinel:
                raise PromptError(
                    f"the chat template leaves out a message of {listed}: use another template"
                )
            pieces.append(piece)
        layout = [self._encode(piece) for piece in (*pieces, rendered)]
        self._layouts[roles] = layout
        return layout


@lru_cache(maxsize=8)
def _codec(tokenizer: Any, chat_template: Any) -> ChatCodec:
    return ChatCodec(tokenizer)


def codec_of(tokenizer: Any) -> ChatCodec:
    """Return the codec of a tokenizer and its current chat template, made once."""
    return _codec(tokenizer, str(tokenizer.chat_template))
