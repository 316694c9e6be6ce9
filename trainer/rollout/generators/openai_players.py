"""What plays on an OpenAI-compatible server: a policy by chat completions, whose episodes have no
ids to train on, and a generator by token ids, which vLLM and llama.cpp exchange."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from shared.errors import SQLEnvError
from trainer.errors import ModelServerError
from trainer.rollout.chat_codec import ChatCodec
from trainer.rollout.episode import Episode
from trainer.rollout.generators.model_server import ContextOverflow, ModelServer
from trainer.rollout.parsing import whole_turn, without_half_pairs, without_thinking
from trainer.rollout.transcript import KEPT_PAIRS, Sample

Messages = list[dict[str, Any]]


def cut_down(messages: Messages) -> list[Messages]:
    """Return shorter forms of a conversation: the system prompt, the question, and the last
    `KEPT_PAIRS` pairs of a text and its observation, then fewer, down to 1."""
    pairs = len(messages) // 2 - 1
    most = min(KEPT_PAIRS, pairs - 1)
    return [messages[:2] + messages[-2 * kept :] for kept in range(most, 0, -1)]


class OpenAIPolicy(ModelServer):
    """Plays by chat completions. If `temperature` is above 0, each request has a seed from its
    episode's own stream. `thinking` is passed to the server's chat template; a turn's thinking is
    in its text, within <think> tags, whether the server separates it or not."""

    endpoint = "chat.completions"
    alternative = "--api completions"

    def __init__(
        self,
        model: str,
        base_url: str,
        *,
        one_action_per_turn: bool = True,
        thinking: bool = False,
        **connection: Any,
    ) -> None:
        super().__init__(model, base_url, **connection)
        self._thinking = thinking
        self._one_action_per_turn = one_action_per_turn
        self._options["chat_template_kwargs"] = {"enable_thinking": thinking}

    async def act_one(
        self, episode: Episode, temperature: float | None = None
    ) -> str | SQLEnvError | None:
        """Return the next text of an episode; None if not even the last turn fits the model's
        context window. `ModelServerError` is returned if all attempts at this request failed, and
        raised for what every request would meet."""
        options: dict[str, Any] = {} if temperature is None else {"temperature": temperature}
        if temperature or self._seeded:
            options["seed"] = int(episode.rng.integers(2**31))
        # old turns without their thinking: templates that know thinking drop it too
        whole: Messages = [
            {**one, "content": without_thinking(one["content"])}
            if one["role"] == "assistant"
            else one
            for one in episode.row.transcript
        ]
        for messages in (whole, *cut_down(whole)):
            try:
                reply = await self._ask({"messages": messages}, options)
            except ContextOverflow:
                continue
            if isinstance(reply, ModelServerError):
                return reply
            self.usage.truncations += messages is not whole
            if usage := reply.usage:
                episode.row.prompt_tokens += usage.prompt_tokens or 0
                episode.row.sampled_tokens += usage.completion_tokens or 0
            return without_half_pairs(self._text(reply.choices[0]))
        self.usage.overflows += 1
        return None

    def _text(self, choice: Any) -> str:
        message = choice.message
        text: str = message.content or ""
        thought = getattr(message, "reasoning_content", None) or getattr(message, "reasoning", None)
        mistaken = thought and not (text or self._thinking)
        if mistaken and choice.finish_reason != "length":
            return str(thought)  # vLLM's parsers may take a text without thinking for thinking
        if thought:
            text = f"<think>\n{thought}\n</think>\n\n{text}"
        # the server goes on to the model's own end of the turn
        turn = whole_turn(text) if self._one_action_per_turn else text
        # with the newline at its end, which a turn of sampled ids keeps too
        return text[: len(turn) + (text[len(turn) :][:1] == "\n")]


@dataclass(slots=True)
class _Row:
    stream: tuple[int, ...]
    context: list[int] = field(default_factory=list)
    turn: int = 0


class CompletionsGenerator(ModelServer):
    """An `AsyncGenerator` over a model server, with the `codec` of the served model's tokenizer.
    Log-probabilities are the server's: vLLM's are those of the temperature-scaled distribution with
    `--logprobs-mode processed_logprobs`, llama.cpp's those of temperature 1."""

    endpoint = "completions"
    alternative = "--api chat"

    def __init__(
        self,
        model: str,
        base_url: str,
        codec: ChatCodec,
        *,
        max_context_tokens: int,
        ends_action: Callable[[Sequence[int]], bool] | None = None,
        **connection: Any,
    ) -> None:
        super().__init__(model, base_url, **connection)
        self.limit = max_context_tokens
        self._codec, self._ends_action = codec, ends_action
        self._same_tokenizer = False  # whether a reply's text has shown it
        # vLLM's name for the ids; llama.cpp has them in the log-probabilities
        self._options |= {"return_token_ids": True, "stop_token_ids": sorted(codec.stop_ids)}
        self._rows: list[_Row] = []

    def _listed(self, model: Any) -> None:
        # vLLM's name for the window, and llama.cpp's for that of one of its slots
        meta = getattr(model, "meta", None) or {}  # None while llama.cpp loads the model
        known = getattr(model, "max_model_len", None) or meta.get("n_ctx")
        self.limit = min(self.limit, known or self.limit)

    def start(self, streams: Sequence[tuple[int, ...]]) -> None:
        self._rows = [_Row(tuple(stream)) for stream in streams]

    def room(self, row: int) -> int:
        return self.limit - len(self._rows[row].context)

    def restart(self, row: int, kept: int) -> None:
        del self._rows[row].context[kept:]

    def sample(self, appended: Mapping[int, Sequence[int]]) -> dict[int, Sample | SQLEnvError]:
        turns = self.run_all([partial(self.sample_one, row, ids) for row, ids in appended.items()])
        return dict(zip(appended, turns, strict=True))

    async def sample_one(self, index: int, appended: Sequence[int]) -> Sample | SQLEnvError:
        row = self._rows[index]
        row.context += appended
        most = min(self._max_tokens, self.limit - len(row.context))
        options: dict[str, Any] = {"max_tokens": most, "logprobs": 1}
        if self._seeded:
            options["seed"] = int(np.random.default_rng((*row.stream, row.turn)).integers(2**31))
        try:
            reply = await self._ask({"prompt": row.context}, options)
        except ContextOverflow as error:
            raise ModelServerError(
                f"{self.base_url} has a smaller context window than this game ({error}): give it a "
                f"larger one, or lower --set max_context_tokens={self.limit}"
            ) from error
        if isinstance(reply, ModelServerError):
            return reply
        sample = self._read(reply.choices[0])
        row.context += sample.ids
        row.turn += 1
        return sample

    def _read(self, choice: Any) -> Sample:
        """Return a reply's ids, cut where a local model's turn would have ended."""
        found = getattr(choice, "logprobs", None)
        listed = getattr(found, "content", None)
        if listed:
            ids = [token["id"] for token in listed]
            logprobs = [token["logprob"] for token in listed]
        else:
            ids = list(getattr(choice, "token_ids", None) or [])
            logprobs = list(getattr(found, "token_logprobs", None) or [])
        if not ids or len(ids) != len(logprobs):
            raise ModelServerError(
                f"{self.base_url} returned no token ids with log-probabilities, which vLLM (0.10.2 "
                "or later) and llama.cpp's server do: use one of these; 'evaluate' and 'play' can "
                "use any server with --api chat"
            )
        self._check_tokenizer(ids, choice.text)
        for end in range(1, len(ids) + 1):
            ended = ids[end - 1] in self._codec.stop_ids
            if ended or (self._ends_action is not None and self._ends_action(ids[:end])):
                return Sample(ids[:end], logprobs[:end])
        return Sample(ids, logprobs)  # ended by the server, or by the limit on tokens

    def _check_tokenizer(self, ids: Sequence[int], text: str) -> None:
        if self._same_tokenizer or not text.strip("\ufffd"):
            return
        own = self._codec.text(ids)
        # some tokenizers drop the space before a text that is decoded alone
        if not own.lstrip().startswith(text.rstrip("\ufffd").lstrip()):
            raise ModelServerError(
                f"{self.base_url} has another tokenizer for {self.model}: its {text[:40]!r} is "
                f"{own[:40]!r} here; name the served model's folder or hub name with --tokenizer"
            )
        self._same_tokenizer = True
