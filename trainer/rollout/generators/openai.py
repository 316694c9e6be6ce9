"""A policy played by a model behind an OpenAI-compatible server: vLLM, llama.cpp, Ollama or a
hosted API.

Each turn is one chat completion of the whole conversation so far, in the messages that a local
model reads. One that is longer than the model's context window is cut down to the question and its
last turns. What comes back is text, so these episodes hold no ids to train on. The `openai` library
sends the requests: `pip install 'sqlenv[api]'`.
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
from trainer.rollout.generators.base import View
from trainer.rollout.prompts import format_observation, get_system_prompt
from trainer.rollout.tokens import KEPT_PAIRS

try:
    import openai
except ModuleNotFoundError as missing:  # an extra: nothing else needs it
    raise ConfigError(
        "an OpenAI-compatible server needs the openai library: pip install 'sqlenv[api]'"
    ) from missing

T = TypeVar("T")
log = logging.getLogger(__name__)

API_KEY_VARIABLE = "OPENAI_API_KEY"
NO_KEY = "none"  # what is sent where there is no key: servers on one's own machine don't look at it
MAX_ATTEMPTS = 6  # about 16 s of waiting between them, or what a Retry-After asks for
TIMEOUT_S = 120.0
CONNECT_TIMEOUT_S = 10.0
CONCURRENCY = 32
# parameters that some servers refuse, and that can be left out or renamed
OPTIONAL = ("seed", "max_tokens")
LISTED = 8  # models that an error names


@dataclass(slots=True)
class Usage:
    """Counts over a policy's life. Tokens are what the server says that it read and wrote; 0 where
    it says nothing."""

    requests: int = 0  # answered with a completion
    retries: int = 0
    failed: int = 0  # given up after all attempts: the episode is lost
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cut: int = 0  # texts that ended at max_tokens
    # texts that answered a conversation that was cut down to fit the model's context window
    truncations: int = 0
    overflows: int = 0  # conversations that did not fit even so: the episode ends there

    def as_dict(self) -> dict[str, int]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Reply:
    """What one request came to: the text, None where the conversation overflowed, or why it was
    given up."""

    text: str | SQLEnvError | None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cut: bool = False
    truncated: bool = False
    retries: int = 0


def messages_of(view: View, system_prompt: PromptKind = "full") -> list[dict[str, str]]:
    """The conversation of one episode so far: the system prompt, then every observation and the
    text that answered it.

    The same messages that a local model's ids are rendered from.
    """

    def turns() -> Iterator[dict[str, str]]:
        for observation, text in zip_longest(view.observations, view.actions):
            yield {"role": "user", "content": format_observation(observation)}
            if text is not None:
                yield {"role": "assistant", "content": text}

    return [{"role": "system", "content": get_system_prompt(system_prompt)}, *turns()]


def cut_down(messages: list[dict[str, str]]) -> Iterator[list[dict[str, str]]]:
    """Shorter forms of a conversation: system prompt, question, and its last `KEPT_PAIRS` pairs of
    a text and what it brought, then fewer, down to 1."""
    pairs = (len(messages) - 2) // 2
    for kept in range(min(KEPT_PAIRS, pairs - 1), 0, -1):
        yield messages[:2] + messages[-2 * kept :]


class OpenAIPolicy:
    """Plays by chat completions of `model` at `base_url` (the address that ends in /v1),
    `concurrency` at a time.

    `api_key` None reads OPENAI_API_KEY. A request may take `timeout_s` and is tried `max_attempts`
    times, with growing pauses, where the connection breaks or the server says 408, 409, 429 or 5xx.
    Where `temperature` is above 0 and `seeded`, each request has a seed out of its episode's own
    stream, so a server that honours it repeats its texts. The requests run on an event loop in a
    thread of its own: close the policy, or use it as a context manager.
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
        seeded: bool = True,
    ) -> None:
        if not base_url.startswith(("http://", "https://")):
            raise ConfigError(
                f"the model server's address is {base_url!r}: write a whole URL, http://host:8000/v1"
            )
        if not model:
            raise ConfigError("name the model that the server serves, as its /models lists it")
        if (
            temperature < 0
            or max_tokens < 1
            or max_attempts < 1
            or concurrency < 1
            or timeout_s <= 0
        ):
            raise ConfigError(
                "use temperature 0 or more, timeout_s above 0; max_tokens, max_attempts, concurrency 1 up"
            )
        self.model, self.base_url = model, base_url.rstrip("/")
        self.usage = Usage()
        self._system_prompt = system_prompt
        self._max_attempts, self._timeout_s, self._seeded = (
            max_attempts,
            timeout_s,
            seeded and temperature > 0,
        )
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
        """The library's client. Made on the loop that uses it."""
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
        """The result of `call`, which an interruption of this thread cancels."""
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

    def act(self, views: Sequence[View]) -> list[str | SQLEnvError | None]:
        """The next text of each episode, in order.

        None: not even the last turn fits the model's context window. An error in place of a text:
        all attempts at this one failed, which says nothing of the model, so the episode is lost.
        `ModelServerError` is raised for what every request would meet: no connection, a key that is
        refused, a model that the server doesn't have.
        """
        seeds = [int(view.rng.integers(2**31)) if self._seeded else None for view in views]
        conversations = [messages_of(view, self._system_prompt) for view in views]
        replies = self._run(lambda: self._complete_all(conversations, seeds))
        for view, reply in zip(views, replies, strict=True):
            self._count(view, reply)
        return [reply.text for reply in replies]

    def check(self) -> None:
        """Ask the server for its models. `ModelServerError` where it can't be reached, or names
        others than `model`.

        A server without such a list passes: its first completion will tell.
        """
        try:
            known = self._run(self._models)
        except openai.AuthenticationError as error:
            raise self._fatal(error) from error
        except openai.APIStatusError:
            return
        except openai.APIConnectionError as error:
            raise self._fatal(error) from error
        if known and self.model not in known:
            shown = ", ".join(known[:LISTED]) + (", ..." if len(known) > LISTED else "")
            raise ModelServerError(
                f"the server at {self.base_url} has no model {self.model!r}; it has {shown}"
            )

    async def _models(self) -> list[str]:
        # some servers' list is a 500
        asked = self._client.with_options(max_retries=min(1, self._max_attempts - 1))
        return [one.id async for one in asked.models.list()]

    async def _complete_all(
        self, conversations: Sequence[list[dict[str, str]]], seeds: Sequence[int | None]
    ) -> list[Reply]:
        """A turn of each. The first that raises cancels the others."""

        async def one(messages: list[dict[str, str]], seed: int | None) -> Reply:
            async with self._limit:
                return await self._complete(messages, seed)

        tasks = [asyncio.create_task(one(*pair)) for pair in zip(conversations, seeds, strict=True)]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _complete(self, messages: list[dict[str, str]], seed: int | None) -> Reply:
        """One turn."""
        shorter, truncated = cut_down(messages), False
        while True:
            options = dict(self._options) if seed is None else {**self._options, "seed": seed}
            for name in self._refused & options.keys():
                value = options.pop(name)
                if name == "max_tokens":
                    options["max_completion_tokens"] = value
            try:
                raw = await self._client.chat.completions.with_raw_response.create(
                    model=self.model,
                    messages=messages,  # type: ignore[arg-type]
                    **options,
                )
                return self._read(raw.parse(), raw.retries_taken, truncated)
            except openai.BadRequestError as error:
                if _overflows(error):
                    fewer = next(shorter, None)
                    if fewer is None:
                        return Reply(None)
                    messages, truncated = fewer, True
                    continue
                name = str(error.param)
                if name not in options or name not in OPTIONAL:
                    raise self._fatal(error) from error
                log.warning("%s takes no %s: %s", self.base_url, name, error.message)
                self._refused.add(name)
            except openai.APIError as error:
                if _passes(error):
                    return Reply(self._given_up(error), retries=self._max_attempts - 1)
                raise self._fatal(error) from error

    def _read(self, completion: Any, retries: int, truncated: bool) -> Reply:
        """The first choice of a completion. What is no completion is `ModelServerError`."""
        choices = getattr(completion, "choices", None)
        if not choices or choices[0].message is None:
            raise ModelServerError(
                f"what {self.base_url} answered is no chat completion: {str(completion)[:200]!r}; is it the address "
                "that ends in /v1?"
            )
        usage, choice = completion.usage, choices[0]
        return Reply(
            choice.message.content or "",
            prompt_tokens=(usage.prompt_tokens or 0) if usage else 0,
            completion_tokens=(usage.completion_tokens or 0) if usage else 0,
            cut=choice.finish_reason == "length",
            truncated=truncated,
            retries=retries,
        )

    def _count(self, view: View, reply: Reply) -> None:
        total = self.usage
        total.retries += reply.retries
        if isinstance(reply.text, SQLEnvError):
            total.failed += 1
        elif reply.text is None:
            total.overflows += 1
        else:
            total.requests += 1
        total.prompt_tokens += reply.prompt_tokens
        total.completion_tokens += reply.completion_tokens
        total.cut += reply.cut
        total.truncations += reply.truncated
        view.prompt_tokens += reply.prompt_tokens
        view.sampled_tokens += reply.completion_tokens

    def _given_up(self, error: openai.APIError) -> ModelServerError:
        said = (
            f"no answer in {self._timeout_s:g} s"
            if isinstance(error, openai.APITimeoutError)
            else error.message
        )
        return ModelServerError(
            f"{self.base_url} failed {self._max_attempts} times for {self.model!r}: {said}"
        )

    def _fatal(self, error: openai.APIError) -> ModelServerError:
        """What to say and do where every other request would fail too."""
        where, said = self.base_url, error.message
        if isinstance(error, openai.AuthenticationError):
            return ModelServerError(f"{where} refuses the API key ({said}): set {API_KEY_VARIABLE}")
        if isinstance(error, openai.PermissionDeniedError):
            return ModelServerError(f"{where} doesn't let this API key use {self.model!r}: {said}")
        if isinstance(error, openai.NotFoundError):
            return ModelServerError(
                f"{where} has no model {self.model!r}, or no chat completions ({said}): name one that {where}/models "
                "lists; the address ends in /v1 for most servers"
            )
        if isinstance(error, openai.APIStatusError):
            return ModelServerError(
                f"{where} refuses the request for {self.model!r}, {error.status_code}: {said}"
            )
        if isinstance(error, openai.APIConnectionError):
            reason = error.__cause__ or said
            return ModelServerError(
                f"no connection to the model server at {where}, tried {self._max_attempts} times: {reason}; start it, "
                "or correct the address"
            )
        return ModelServerError(
            f"{where} answered what can't be read: {said}; is it the address that ends in /v1?"
        )


def _passes(error: openai.APIError) -> bool:
    """Whether another request may be answered: of what the library tries again, all but a
    connection that isn't had."""
    if isinstance(error, openai.APIStatusError):
        return error.status_code in (408, 409, 429) or error.status_code >= 500
    return isinstance(error, openai.APITimeoutError)


def _overflows(error: openai.BadRequestError) -> bool:
    """Whether the conversation was too long: OpenAI's code, or the words of vLLM, llama.cpp and
    SGLang."""
    said = error.message.lower()
    return (
        error.code == "context_length_exceeded"
        or "maximum context length" in said
        or "exceeds the available context size" in said
        or "longer than the model's context length" in said
    )
