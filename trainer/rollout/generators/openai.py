"""A policy played by a model behind an OpenAI-compatible server: vLLM, llama.cpp, Ollama or a
hosted API.

Each turn is one chat completion of the conversation so far, in the messages that a local model
reads. A conversation longer than the model's context window is cut to the question and its last
turns. The server returns text, so these episodes have no ids to train on. Requests are sent by the
`openai` library: `pip install 'sqlenv[api]'`.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import Any, Self, TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

from shared.errors import SQLEnvError
from trainer.config import PromptKind
from trainer.errors import ConfigError, ModelServerError
from trainer.rollout.generators.base import EpisodeView
from trainer.rollout.prompts import format_observation, get_system_prompt
from trainer.rollout.tokens import KEPT_PAIRS

try:
    import openai
except ModuleNotFoundError as missing:  # only this module needs it
    raise ConfigError(
        "an OpenAI-compatible server needs the openai library: pip install 'sqlenv[api]'"
    ) from missing

T = TypeVar("T")
Messages = list[dict[str, str]]
log = logging.getLogger(__name__)

API_KEY_VARIABLE = "OPENAI_API_KEY"
NO_KEY = "none"  # sent without a key: local servers ignore it
MAX_ATTEMPTS = 6  # with pauses of about 16 s in total, or what a Retry-After asks for
TIMEOUT_S = 120.0
CONNECT_TIMEOUT_S = 10.0
CONCURRENCY = 32
OPTIONAL = ("seed", "max_tokens")  # parameters that may be left out or renamed if refused
LISTED_MODELS = 8  # in an error


@dataclass(slots=True)
class Usage:
    """Counts over a policy's life. Tokens are those that the server reports, 0 if it does not."""

    requests: int = 0  # answered with a completion
    retries: int = 0
    failed: int = 0  # given up after all attempts: the episode is lost
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cut: int = 0  # texts that ended at max_tokens
    truncations: int = 0  # texts that answer a conversation cut to fit the context window
    overflows: int = 0  # conversations that did not fit even so: the episode ends

    def as_dict(self) -> dict[str, int]:
        return asdict(self)


def messages_of(view: EpisodeView, system_prompt: PromptKind = "full") -> Messages:
    """Return the conversation of one episode, with the messages that a local model reads: the
    system prompt, then every observation and the text that answered it."""
    messages = [{"role": "system", "content": get_system_prompt(system_prompt)}]
    for observation, text in zip_longest(view.observations, view.actions):
        messages.append({"role": "user", "content": format_observation(observation)})
        if text is not None:
            messages.append({"role": "assistant", "content": text})
    return messages


def cut_down(messages: Messages) -> Iterator[Messages]:
    """Yield shorter forms of a conversation: system prompt, question, and the last `KEPT_PAIRS`
    pairs of a text and its observation, then fewer, down to 1."""
    pairs = (len(messages) - 2) // 2
    for kept in range(min(KEPT_PAIRS, pairs - 1), 0, -1):
        yield messages[:2] + messages[-2 * kept :]


class OpenAIPolicy:
    """Plays by chat completions of `model` at `base_url` (ending in /v1), `concurrency` at a time.

    `api_key` defaults to OPENAI_API_KEY. A request may take `timeout_s` and is tried `max_attempts`
    times, with growing pauses, if the connection breaks or the server replies 408, 409, 429 or 5xx.
    If `temperature` is above 0, each request has a seed from its episode's own stream, so a server
    that honours it repeats its texts. Requests run on an event loop in a thread: close the policy,
    or use it as a context manager.
    """

    def __init__(
        self,
        model: str,
        base_url: str,
        *,
        api_key: str | None = None,
        system_prompt: PromptKind = "full",
        temperature: float = 1.0,
        max_tokens: int = 256,
        timeout_s: float = TIMEOUT_S,
        max_attempts: int = MAX_ATTEMPTS,
        concurrency: int = CONCURRENCY,
    ) -> None:
        if not base_url.startswith(("http://", "https://")):
            raise ConfigError(
                f"the model server's address is {base_url!r}: use a whole URL, http://host:8000/v1"
            )
        if not model:
            raise ConfigError("name the model that the server serves, as its /models lists it")
        if temperature < 0 or min(max_tokens, max_attempts, concurrency) < 1 or timeout_s <= 0:
            raise ConfigError(
                "temperature must be 0 or more, timeout_s above 0, and max_tokens, max_attempts "
                "and concurrency 1 or more"
            )
        self.model, self.base_url = model, base_url.rstrip("/")
        self.usage = Usage()
        self._system_prompt, self._seeded = system_prompt, temperature > 0
        self._max_attempts, self._timeout_s = max_attempts, timeout_s
        self._options: dict[str, Any] = {"temperature": temperature, "max_tokens": max_tokens}
        self._refused: set[str] = set()  # of OPTIONAL
        self._api_key = api_key or os.environ.get(API_KEY_VARIABLE) or NO_KEY
        self._concurrency = concurrency
        self._stack = ExitStack()
        self._portal: BlockingPortal | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections and end the thread. The next call opens them again."""
        self._portal = None
        self._stack.close()

    async def _open(self) -> openai.AsyncOpenAI:
        """Return the library's client, made on the loop that uses it."""
        self._limit = asyncio.Semaphore(self._concurrency)
        return openai.AsyncOpenAI(
            api_key=self._api_key,
            base_url=self.base_url,
            timeout=openai.Timeout(
                self._timeout_s, connect=min(self._timeout_s, CONNECT_TIMEOUT_S)
            ),
            max_retries=self._max_attempts - 1,
        )

    def _run(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run `call` on the loop; an interruption of this thread cancels it."""
        if self._portal is None:
            with ExitStack() as stack:
                portal = stack.enter_context(start_blocking_portal("asyncio"))
                self._client = portal.call(self._open)
                stack.callback(portal.call, self._client.close)
                self._stack = stack.pop_all()
            self._portal = portal
        future = self._portal.start_task_soon(call)
        try:
            result: T = future.result()
            return result
        finally:
            future.cancel()

    def act(self, views: Sequence[EpisodeView]) -> list[str | SQLEnvError | None]:
        """Return the next text of each episode, in order.

        None means that not even the last turn fits the model's context window; an error in place of
        a text, that all attempts at this request failed, so the episode is lost. Raises
        `ModelServerError` for what every request would meet: no connection, a refused key, a model
        that the server lacks.
        """
        seeds = [int(view.rng.integers(2**31)) if self._seeded else None for view in views]
        return self._run(lambda: self._complete_all(list(zip(views, seeds, strict=True))))

    def check(self) -> None:
        """Raise `ModelServerError` if the server can't be reached or lists other models.

        A server without such a list passes: its first completion will fail instead.
        """
        try:
            models = self._run(self._models)
        except (openai.AuthenticationError, openai.APIConnectionError) as error:
            raise self._fatal(error) from error
        except openai.APIStatusError:
            return
        if models and self.model not in models:
            listed = ", ".join(models[:LISTED_MODELS])
            more = ", ..." if len(models) > LISTED_MODELS else ""
            raise ModelServerError(
                f"the server at {self.base_url} has no model {self.model!r}; it has {listed}{more}"
            )

    async def _models(self) -> list[str]:
        # few retries: some servers without a list reply with 500
        client = self._client.with_options(max_retries=min(1, self._max_attempts - 1))
        return [model.id async for model in client.models.list()]

    async def _complete_all(
        self, turns: Sequence[tuple[EpisodeView, int | None]]
    ) -> list[str | SQLEnvError | None]:
        """Return a text of each; the first that raises cancels the others."""
        tasks = [asyncio.create_task(self._complete(view, seed)) for view, seed in turns]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _complete(self, view: EpisodeView, seed: int | None) -> str | SQLEnvError | None:
        """Return the text of one turn, and count it."""
        messages, truncated = messages_of(view, self._system_prompt), False
        shorter = cut_down(messages)
        while True:
            options = dict(self._options) if seed is None else {**self._options, "seed": seed}
            for name in self._refused & options.keys():
                value = options.pop(name)
                if name == "max_tokens":
                    options["max_completion_tokens"] = value
            try:
                async with self._limit:
                    reply = await self._client.chat.completions.with_raw_response.create(
                        model=self.model,
                        messages=messages,  # type: ignore[arg-type]
                        **options,
                    )
                text = self._read(reply.parse(), view)
                self.usage.requests += 1
                self.usage.retries += reply.retries_taken
                self.usage.truncations += truncated
                return text
            except openai.BadRequestError as error:
                if _overflows(error):
                    fewer = next(shorter, None)
                    if fewer is None:
                        self.usage.overflows += 1
                        return None
                    messages, truncated = fewer, True
                    continue
                name = str(error.param)
                if name not in options or name not in OPTIONAL:
                    raise self._fatal(error) from error
                log.warning("%s accepts no %s: %s", self.base_url, name, error.message)
                self._refused.add(name)
            except openai.APIError as error:
                if not _may_pass(error):
                    raise self._fatal(error) from error
                self.usage.failed += 1
                self.usage.retries += self._max_attempts - 1
                return self._given_up(error)

    def _read(self, completion: Any, view: EpisodeView) -> str:
        """Return the text of a completion's first choice, and count its tokens."""
        choices = getattr(completion, "choices", None)
        if not choices or choices[0].message is None:
            raise ModelServerError(
                f"{self.base_url} replied with no chat completion: {str(completion)[:200]!r}; is "
                "it the address that ends in /v1?"
            )
        if usage := completion.usage:
            read, written = usage.prompt_tokens or 0, usage.completion_tokens or 0
            self.usage.prompt_tokens += read
            self.usage.completion_tokens += written
            view.prompt_tokens += read
            view.sampled_tokens += written
        self.usage.cut += choices[0].finish_reason == "length"
        return choices[0].message.content or ""

    def _given_up(self, error: openai.APIError) -> ModelServerError:
        late = isinstance(error, openai.APITimeoutError)
        reason = f"no answer in {self._timeout_s:g} s" if late else error.message
        return ModelServerError(
            f"{self.base_url} failed {self._max_attempts} times for {self.model!r}: {reason}"
        )

    def _fatal(self, error: openai.APIError) -> ModelServerError:
        """Return the error, with its remedy, of what every other request would meet too."""
        url, model, reason = self.base_url, repr(self.model), error.message
        if isinstance(error, openai.AuthenticationError):
            text = f"{url} refuses the API key ({reason}): set {API_KEY_VARIABLE}"
        elif isinstance(error, openai.PermissionDeniedError):
            text = f"{url} does not let this API key use {model}: {reason}"
        elif isinstance(error, openai.NotFoundError):
            text = (
                f"{url} has no model {model}, or no chat completions ({reason}): name a model that "
                f"{url}/models lists; the address of most servers ends in /v1"
            )
        elif isinstance(error, openai.APIStatusError):
            text = f"{url} refuses the request for {model}, {error.status_code}: {reason}"
        elif isinstance(error, openai.APIConnectionError):
            text = (
                f"no connection to the model server at {url}, tried {self._max_attempts} times: "
                f"{error.__cause__ or reason}; start it, or correct the address"
            )
        else:
            text = f"can't read the reply of {url}: {reason}; is it the address that ends in /v1?"
        return ModelServerError(text)


def _may_pass(error: openai.APIError) -> bool:
    """Return whether another request may succeed: the library's retries, except no connection."""
    if isinstance(error, openai.APIStatusError):
        return error.status_code in (408, 409, 429) or error.status_code >= 500
    return isinstance(error, openai.APITimeoutError)


def _overflows(error: openai.BadRequestError) -> bool:
    """Return whether the conversation was too long: OpenAI's code, or the words of vLLM, llama.cpp
    and SGLang."""
    words = (
        "maximum context length",
        "exceeds the available context size",
        "longer than the model's context length",
    )
    message = error.message.lower()
    return error.code == "context_length_exceeded" or any(word in message for word in words)
