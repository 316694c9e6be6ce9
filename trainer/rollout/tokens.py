"""Token-exact transcripts: what the model saw and sampled, as ids, never re-tokenised.

A row is `prompt_ids + completion_ids`. The completion is sampled turns, as they were sampled,
joined by bridges: everything that the chat template puts between an assistant's text and the next
generation prompt, with the observation in it. A bridge is found once, by rendering sentinels, so
any chat template works, and a template that rewrites old turns (Qwen3 drops their thinking) can't
change what is trained.

A context that would outgrow the window is cut down to the prompt, which holds the question, and its
last pairs of an action and the observation that it brought, all by their own ids. The row ends
there: ids that were sampled after a cut follow from another context than the row's.
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
KEPT_PAIRS = 3  # of an action and its observation, in a context that was cut down


def pairs_kept(prompt: int, pairs: Sequence[int], window: int, turn: int) -> int:
    """How many of the newest pairs the next turn's context keeps. All are lengths in tokens;
    `pairs` is oldest first.

    All of them where `turn` tokens fit behind, else the most of the last `KEPT_PAIRS` behind which
    they fit. Where that is none, the newest pair alone if a single token fits behind it, and 0 if
    not even that.
    """
    kept: int
    for kept in (len(pairs), *range(min(KEPT_PAIRS, len(pairs) - 1), 0, -1)):
        if prompt + sum(pairs[-kept:]) + turn <= window:
            return kept
    return 1 if prompt + pairs[-1] < window else 0


@dataclass(slots=True)
class Transcript:
    """One episode as ids. `completion_ids`, `env_mask` and `logprobs` have one length, C.

    env_mask is 1 where the policy sampled the id and 0 where the environment wrote it; logprobs are
    0.0 there. The row stops growing when the context is first cut down. The context is `prompt_ids`
    and all of `pairs`.
    """

    prompt_ids: list[int]
    completion_ids: list[int] = field(default_factory=list)
    env_mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    # in the context: each turn's ids and those of what followed
    pairs: list[list[int]] = field(default_factory=list)
    truncations: int = 0  # times that the context was cut down

    def add_sample(self, sample: Sample) -> None:
        """The policy's turn."""
        assert len(sample.ids) == len(sample.logprobs)
        self.pairs.append(list(sample.ids))
        if self.truncations:
            return
        self.completion_ids += sample.ids
        self.env_mask += [1] * len(sample.ids)
        self.logprobs += sample.logprobs

    def add_environment(self, ids: Sequence[int]) -> None:
        """What the environment wrote, template tokens with it."""
        self.pairs[-1] += ids
        if not self.truncations:
            self._mask(ids)

    def truncate(self, kept: int, ids: Sequence[int]) -> list[int]:
        """Add `ids`, which the environment wrote, and cut the context down to the prompt and its
        `kept` newest pairs. The whole context."""
        self.truncations += 1
        self.pairs[-1] += ids
        self.pairs = self.pairs[-kept:]
        return [*self.prompt_ids, *(one for pair in self.pairs for one in pair)]

    def kept_with(self, ids: Sequence[int], window: int, turn: int) -> int:
        """`pairs_kept` of the context with `ids` behind it."""
        lengths = [len(pair) for pair in self.pairs]
        lengths[-1] += len(ids)
        return pairs_kept(len(self.prompt_ids), lengths, window, turn)

    def _mask(self, ids: Sequence[int]) -> None:
        self.completion_ids += ids
        self.env_mask += [0] * len(ids)
        self.logprobs += [0.0] * len(ids)

    def close(self, eos_id: int, pad_id: int) -> None:
        """End the row on an EOS or a pad, with mask 0: TRL takes any other last id for a
        truncation."""
        if not self.completion_ids or self.completion_ids[-1] not in (eos_id, pad_id):
            self._mask([eos_id])
        assert len(self.completion_ids) == len(self.env_mask) == len(self.logprobs)


class ChatCodec:
    """One tokenizer's way between messages, action texts and ids.

    Text from outside (questions, table names, cells) is encoded with control tokens taken apart, so
    that a cell that holds `<|im_end|>` ends nobody's turn.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if not isinstance(backend, Tokenizer):
            raise PromptError(
                f"{type(tokenizer).__name__} is not a fast tokenizer: save it with its tokenizer.json"
            )
        # a copy: the original's truncation and padding are switched by other callers
        self._backend = Tokenizer.from_str(backend.to_str())
        self._backend.no_truncation()
        self._backend.no_padding()
        added = tokenizer.get_added_vocab()
        self._control_ids = frozenset(added.values())
        # no other can be cut
        cut = sorted((token for token in added if len(token) > 1), key=len, reverse=True)
        self._control = re.compile("|".join(map(re.escape, cut)) or r"(?!)")
        self.eos_id: int = tokenizer.eos_token_id
        self.pad_id: int = (
            tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id
        )
        self._layouts: dict[tuple[str, ...], list[list[int]]] = {}
        roles = ("system", "user", "assistant", "user")
        _, _, _, self._before, self._after = self._layout(roles)
        opens_with_control = bool(self._before) and self._before[0] in self._control_ids
        self.turn_end: int = self._before[0] if opens_with_control else self.eos_id
        self.plain = lru_cache(maxsize=50_000)(self._plain)

    @property
    def stop_ids(self) -> frozenset[int]:
        """Ids that end a sampled turn."""
        return frozenset((self.eos_id, self.turn_end))

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """The ids of `apply_chat_template(messages, add_generation_prompt=True,
        enable_thinking=False)`, with control tokens in the messages' own texts taken apart."""
        layout = self._layout(tuple(str(message["role"]) for message in messages))
        ids = list(layout[0])
        for message, piece in zip(messages, layout[1:], strict=True):
            ids += self.plain(str(message["content"]))
            ids += piece
        return ids

    def bridge(self, observation: str, last_id: int) -> list[int]:
        """What follows a turn that ended on `last_id`: the end of the turn, where the model did not
        write it itself, the observation as a user's message, and the next generation prompt."""
        before = self._before[1:] if self._before and last_id == self._before[0] else self._before
        return [*before, *self.plain(observation), *self._after]

    def action(self, text: str) -> list[int]:
        """A demonstrator's turn: `text` and the end of the turn."""
        return [*self.plain(text), self.turn_end]

    def text(self, ids: Sequence[int]) -> str:
        """What a sampled turn says, without control tokens."""
        return self._backend.decode(list(ids), skip_special_tokens=True)

    def _plain(self, text: str) -> tuple[int, ...]:
        ids: list[int] = []
        for piece in self._apart(text):
            ids += self._backend.encode(piece, add_special_tokens=False).ids
        return tuple(ids)

    def _apart(self, text: str) -> list[str]:
        """`text` cut inside every control token that it spells."""
        pieces, start = [], 0
        while (match := self._control.search(text, start)) is not None:
            cut = match.start() + 1
            pieces.append(text[start:cut])
            start = cut
        return [*pieces, text[start:]]

    def _layout(self, roles: tuple[str, ...]) -> list[list[int]]:
        """The ids around the contents of messages with these roles: one list before each content
        and one at the end."""
        if (found := self._layouts.get(roles)) is not None:
            return found
        names = [_SENTINEL.format(i) for i in range(len(roles))]
        messages = [
            {"role": role, "content": name} for role, name in zip(roles, names, strict=True)
        ]
        try:
            rendered: str = self._tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True, enable_thinking=False
            )
        except Exception as error:  # a template raises what it likes
            raise PromptError(
                f"the chat template can't render {', '.join(roles)}: {error}"
            ) from error
        pieces = []
        for name in names:
            piece, found_name, rendered = rendered.partition(name)
            if not found_name:
                raise PromptError(
                    f"the chat template leaves out a message of {', '.join(roles)}: use another template"
                )
            pieces.append(piece)
        layout = [
            self._backend.encode(piece, add_special_tokens=False).ids
            for piece in [*pieces, rendered]
        ]
        self._layouts[roles] = layout
        return layout


@lru_cache(maxsize=8)
def _codec(tokenizer: Any, chat_template: Any) -> ChatCodec:
    return ChatCodec(tokenizer)


def codec_of(tokenizer: Any) -> ChatCodec:
    """The codec of a tokenizer, made once for each chat template that it has had."""
    return _codec(tokenizer, str(tokenizer.chat_template))
