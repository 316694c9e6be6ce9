"""A policy played by chat completions of an OpenAI-compatible server: vLLM, llama.cpp, Ollama or a
hosted API.

Each turn is one chat completion of the conversation so far, in the messages that a local model
reads. The server renders them with its own chat template and returns text, so these episodes have
no ids to train on, and what the template changes in old turns is changed; `completions.py` beside
this file exchanges token ids instead, and `tools.py` plays by tool calls. A conversation longer
than the server's context window is cut to the question and its last turns.
"""

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

from shared.errors import SQLEnvError
from trainer.config import PromptKind
from trainer.errors import ModelServerError
from trainer.rollout.generators.base import EpisodeView
from trainer.rollout.generators.model_server import ContextOverflow, ModelServer, log
from trainer.rollout.parsing import first_turn, without_half_pairs, without_thinking
from trainer.rollout.prompts import format_observation, opening_messages
from trainer.rollout.tokens import KEPT_PAIRS

Messages = list[dict[str, Any]]


def messages_of(view: EpisodeView, kind: PromptKind = "full") -> Messages:
    """Return the conversation of one episode, with the messages that a local model reads: the
    opening, then every observation and the text that answered it.

    Old turns are shown without their thinking: templates that know thinking drop it too.
    """
    messages = opening_messages(kind)
    for observation, text in zip_longest(view.observations, view.actions):
        messages.append({"role": "user", "content": format_observation(observation, kind)})
        if text is not None:
            messages.append({"role": "assistant", "content": without_thinking(text)})
    return messages


def cut_down(messages: Messages, opening: int = 1) -> Iterator[Messages]:
    """Yield shorter forms of a conversation: the `opening` messages, the question, and the last
    `KEPT_PAIRS` pairs of a text and its observation, then fewer, down to 1."""
    pairs = (len(messages) - opening - 1) // 2
    for kept in range(min(KEPT_PAIRS, pairs - 1), 0, -1):
        yield messages[: opening + 1] + messages[-2 * kept :]


class OpenAIPolicy(ModelServer):
    """Plays by chat completions; `connection` is passed to `ModelServer`.

    If `temperature` is above 0, each request has a seed from its episode's own stream, so a server
    that honours it repeats its texts. `thinking` is passed to the server's chat template; a turn's
    thinking is in its text, within <think> tags, whether the server separates it or not.
    """

    endpoint = "chat.completions"
    alternative = "--api completions"

    def __init__(
        self,
        model: str,
        base_url: str,
        *,
        system_prompt: PromptKind = "full",
        one_action_per_turn: bool = True,
        thinking: bool = False,
        **connection: Any,
    ) -> None:
        super().__init__(model, base_url, **connection)
        self._system_prompt, self._thinking = system_prompt, thinking
        self._one_action_per_turn = one_action_per_turn
        self._options["chat_template_kwargs"] = {"enable_thinking": thinking}

    async def act_one(self, view: EpisodeView) -> str | SQLEnvError | None:
        """Return the next text of an episode, and count it.

        None means that not even the last turn fits the model's context window; an error in place of
        a text, that all attempts at this request failed, so the episode is lost. Raises
        `ModelServerError` for what every request would meet.
        """
        seed = {"seed": int(view.rng.integers(2**31))} if self._seeded else {}
        messages, truncated = messages_of(view, self._system_prompt), False
        shorter = cut_down(messages, len(opening_messages(self._system_prompt)))
        while True:
            try:
                reply = await self._ask({"messages": self._shown(messages)}, seed)
            except ContextOverflow:
                fewer = next(shorter, None)
                if fewer is None:
                    self.usage.overflows += 1
                    return None
                messages, truncated = fewer, True
                continue
            if isinstance(reply, ModelServerError):
                return reply
            self.usage.truncations += truncated
            if usage := reply.usage:
                view.prompt_tokens += usage.prompt_tokens or 0
                view.sampled_tokens += usage.completion_tokens or 0
            return without_half_pairs(self._text(reply.choices[0]))

    def _shown(self, messages: Messages) -> Messages:
        """Return a conversation as the server gets it."""
        return messages

    def _text(self, choice: Any) -> str:
        """Return what the model wrote; its thinking is at the start, within <think> tags."""
        message = choice.message
        text: str = message.content or ""
        thought = getattr(message, "reasoning_content", None) or getattr(message, "reasoning", None)
        mistaken = thought and not (text or message.tool_calls or self._thinking)
        if mistaken and choice.finish_reason != "length":
            return str(thought)  # vLLM's parsers may take a text without thinking for thinking
        if thought:
            text = f"<think>\n{thought}\n</think>\n\n{text}"
        if without_thinking(text) != text:
            self.usage.thoughts += 1
            if not self._thinking and self.usage.thoughts == 1:
                log.warning(
                    "%s: %s thinks although thinking is off, so the server ignores "
                    "chat_template_kwargs: turn thinking off there, or play with thinking=true",
                    *(self.base_url, self.model),
                )
        # the server goes on to the model's own end of the turn
        cuts = self._one_action_per_turn and not message.tool_calls
        turn = first_turn(text) if cuts else None
        # with its newline, which a turn of sampled ids keeps too
        return text if turn is None else turn + "\n"
