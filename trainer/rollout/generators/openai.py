"""A policy played by chat completions of an OpenAI-compatible server: vLLM, llama.cpp, Ollama or a
hosted API.

Each turn is one chat completion of the conversation so far, in the messages that a local model
reads. The server renders them with its own chat template and returns text, so these episodes have
no ids to train on. A conversation longer than the server's context window is cut to the question
and its last turns.
"""

from typing import Any

from shared.errors import SQLEnvError
from trainer.errors import ModelServerError
from trainer.rollout.generators.base import EpisodeView
from trainer.rollout.generators.model_server import ContextOverflow, ModelServer
from trainer.rollout.parsing import first_turn, without_half_pairs, without_thinking
from trainer.rollout.tokens import KEPT_PAIRS

Messages = list[dict[str, Any]]


def cut_down(messages: Messages) -> list[Messages]:
    """Return shorter forms of a conversation: the system prompt, the question, and the last
    `KEPT_PAIRS` pairs of a text and its observation, then fewer, down to 1."""
    pairs = len(messages) // 2 - 1
    most = min(KEPT_PAIRS, pairs - 1)
    return [messages[:2] + messages[-2 * kept :] for kept in range(most, 0, -1)]


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
        one_action_per_turn: bool = True,
        thinking: bool = False,
        **connection: Any,
    ) -> None:
        super().__init__(model, base_url, **connection)
        self._thinking = thinking
        self._one_action_per_turn = one_action_per_turn
        self._options["chat_template_kwargs"] = {"enable_thinking": thinking}

    async def act_one(self, view: EpisodeView) -> str | SQLEnvError | None:
        """Return the next text of an episode; None if not even the last turn fits the model's
        context window. `ModelServerError` is returned if all attempts at this request failed, and
        raised for what every request would meet."""
        seed = {"seed": int(view.rng.integers(2**31))} if self._seeded else {}
        # old turns without their thinking: templates that know thinking drop it too
        whole: Messages = [
            {**one, "content": without_thinking(one["content"])}
            if one["role"] == "assistant"
            else one
            for one in view.messages
        ]
        for messages in (whole, *cut_down(whole)):
            try:
                reply = await self._ask({"messages": messages}, seed)
            except ContextOverflow:
                continue
            if isinstance(reply, ModelServerError):
                return reply
            self.usage.truncations += messages is not whole
            if usage := reply.usage:
                view.prompt_tokens += usage.prompt_tokens or 0
                view.sampled_tokens += usage.completion_tokens or 0
            return without_half_pairs(self._text(reply.choices[0]))
        self.usage.overflows += 1
        return None

    def _text(self, choice: Any) -> str:
        """Return what the model wrote; its thinking is at the start, within <think> tags."""
        message = choice.message
        text: str = message.content or ""
        thought = getattr(message, "reasoning_content", None) or getattr(message, "reasoning", None)
        mistaken = thought and not (text or self._thinking)
        if mistaken and choice.finish_reason != "length":
            return str(thought)  # vLLM's parsers may take a text without thinking for thinking
        if thought:
            text = f"<think>\n{thought}\n</think>\n\n{text}"
        # the server goes on to the model's own end of the turn
        turn = first_turn(text) if self._one_action_per_turn else None
        # with its newline, which a turn of sampled ids keeps too
        return text if turn is None else turn + "\n"
