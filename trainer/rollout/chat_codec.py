"""Between messages and ids: the chat template of a tokenizer, without tokenizing a text twice.

The completion of a row is the sampled turns joined by bridges: what the chat template puts between
an assistant's text and the next generation prompt, with the observation in it. Bridges are found by
rendering sentinels, so any chat template works, also one that rewrites old turns.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import zip_longest
from typing import Any

from tokenizers import Tokenizer

from trainer.errors import PromptError
from trainer.rollout.parsing import begins_action, first_turn

Message = Mapping[str, Any]  # role, content
_SENTINEL = "SQLENVx{}x"
DATE = "26 Jul 2024"  # for templates that take one, so that it is not today's


class ChatCodec:
    """Converts between messages, action texts and the ids of one tokenizer.

    The template's text is tokenized together with the messages, as by a server that renders them.
    Control tokens that are spelled in text from outside (questions, table names, cells) are encoded
    as plain text, so a cell that holds `<|im_end|>` can't end a turn. With `thinking` a template
    that knows thinking lets the model think.
    """

    def __init__(self, tokenizer: Any, thinking: bool = False) -> None:
        self._tokenizer, self._thinking = tokenizer, thinking
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if not isinstance(backend, Tokenizer):
            name = type(tokenizer).__name__
            raise PromptError(f"{name} is not a fast tokenizer: save it with its tokenizer.json")
        if tokenizer.eos_token_id is None:
            raise PromptError("the tokenizer has no end token: set its eos_token")
        # a copy: other callers change the original's truncation and padding
        self._backend = Tokenizer.from_str(backend.to_str())
        self._backend.no_truncation()
        self._backend.no_padding()
        added = tokenizer.get_added_vocab()
        control = [token for token in added if len(token) > 1]  # one character can't be split
        control.sort(key=len, reverse=True)  # as the tokenizer prefers the longest
        self._control = re.compile("|".join(map(re.escape, control)) or r"(?!)")
        self.eos_id: int = tokenizer.eos_token_id
        pad_id = tokenizer.pad_token_id
        self.pad_id: int = self.eos_id if pad_id is None else pad_id
        self._layout = lru_cache(maxsize=None)(self._split_template)
        self._encoded = lru_cache(maxsize=50_000)(self._encode)
        # what follows a turn: its end and the head of an observation, and the next prompt
        self._bridge = self._layout(("system", "user", "assistant", "user"))[-2:]
        first = self._encoded(self._bridge[:1], ())[:1]
        self._ends_turns = bool(first) and first[0] in frozenset(added.values())
        self.turn_end: int = first[0] if self._ends_turns else self.eos_id
        # the open tag of the thinking block, if the prompt ends with it
        self._opened = "<think>" if re.search(r"<think>\s*\Z", self._bridge[-1]) else ""
        ends = lru_cache(maxsize=None)(lambda token: not {"\n", ";"}.isdisjoint(self.text([token])))
        self._may_end_action = ends

    @property
    def stop_ids(self) -> frozenset[int]:
        return frozenset((self.eos_id, self.turn_end))

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """Return the ids of `apply_chat_template(messages, add_generation_prompt=True,
        enable_thinking=thinking)`, with control tokens in the messages' texts as plain text."""
        layout = self._layout(tuple(str(message["role"]) for message in messages))
        return [*self._encoded(layout, tuple(str(message["content"]) for message in messages))]

    def bridge(self, observation: str, last_id: int) -> list[int]:
        """Return what follows a turn that ended with `last_id`: the end of the turn, unless the
        model wrote it, the observation as a user's message, and the next generation prompt."""
        ids = self._encoded(self._bridge, (observation,))
        return [*(ids[1:] if self._ends_turns and last_id == self.turn_end else ids)]

    def plain(self, text: str) -> tuple[int, ...]:
        return self._encoded(("", ""), (text,))

    def action(self, text: str) -> list[int]:
        """Return the ids of a demonstrator's turn: `text` and the end of the turn. A thinking block
        that the prompt opens is closed first, empty."""
        closing = "\n</think>\n\n" if self._opened else ""
        return [*self._encoded((closing, ""), (text,)), self.turn_end]

    def ends_action(self, ids: Sequence[int], most_prose: int = 0) -> bool:
        """Return whether a turn's ids end with its first action (`first_turn`), or are the first
        `most_prose` without one; 0: any number."""
        if len(ids) == most_prose and not begins_action(self.turn(ids)):
            return True
        return self._may_end_action(ids[-1]) and first_turn(self.turn(ids)) is not None

    def turn(self, ids: Sequence[int]) -> str:
        """Return the text of a sampled turn, behind the open tag of a thinking block with which the
        prompt ends, so that a thought that was cut off is not taken for an action."""
        return self._opened + self.text(ids)

    def text(self, ids: Sequence[int]) -> str:
        return self._backend.decode(list(ids), skip_special_tokens=True)

    def _encode(self, template: tuple[str, ...], contents: tuple[str, ...]) -> tuple[int, ...]:
        """Return the ids of the template's pieces with the contents between them, as one text,
        split inside every control token that does not lie in a piece of the template."""
        text, pieces = "", []
        for piece, content in zip_longest(template, contents, fillvalue=""):
            pieces.append((len(text), len(text) + len(piece)))
            text += piece + content
        ids, first, start = list[int](), 0, 0
        while (match := self._control.search(text, start)) is not None:
            if any(begin <= match.start() and match.end() <= end for begin, end in pieces):
                start = match.end()
                continue
            start = match.start() + 1
            ids += self._backend.encode(text[first:start], add_special_tokens=False).ids
            first = start
        return (*ids, *self._backend.encode(text[first:], add_special_tokens=False).ids)

    def _split_template(self, roles: tuple[str, ...]) -> tuple[str, ...]:
        """Return the template's text around the contents of messages with these roles: one piece
        before each content and one at the end."""
        contents = [_SENTINEL.format(index) for index in range(len(roles))]
        turns, listed = zip(roles, contents, strict=True), ", ".join(roles)
        messages = [{"role": role, "content": content} for role, content in turns]
        try:
            rendered: str = self._tokenizer.apply_chat_template(
                messages,
                tokenize=False,
                add_generation_prompt=True,
                enable_thinking=self._thinking,
                date_string=DATE,
            )
        except Exception as error:  # templates may raise anything
            raise PromptError(f"the chat template can't render {listed}: {error}") from error
        pieces = []
        for content in contents:
            piece, sentinel, rendered = rendered.partition(content)
            if not sentinel:
                raise PromptError(
                    f"the chat template leaves out or moves a message of {listed}: use another "
                    "template"
                )
            pieces.append(piece)
        return (*pieces, rendered)


@lru_cache(maxsize=8)
def _codec(tokenizer: Any, chat_template: Any, thinking: bool) -> ChatCodec:
    return ChatCodec(tokenizer, thinking)


def codec_of(tokenizer: Any, thinking: bool = False) -> ChatCodec:
    return _codec(tokenizer, str(tokenizer.chat_template), thinking)
