"""A connection to an OpenAI-compatible model server: requests, retries, counts and errors."""

import asyncio
import logging
import operator
import os
import re
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import httpx
from anyio.from_thread import start_blocking_portal

from shared.client.proxies import is_this_machine, proxy_of, through_proxy
from trainer.config.settings import ConfigError
from trainer.errors import ModelServerError

try:
    import openai
except ModuleNotFoundError as missing:  # only model servers need it
    raise ConfigError(
        "an OpenAI-compatible server needs the openai library: pip install 'sqlenv[api]'"
    ) from missing

T = TypeVar("T")
log = logging.getLogger(__name__)

API_KEY_VARIABLE = "OPENAI_API_KEY"
MAX_ATTEMPTS = 6  # with pauses of about 16 s in total, or what a Retry-After asks for
TIMEOUT_S = 300.0  # of a request, with its wait in the server's queue
CONNECT_TIMEOUT_S = 10.0
CALL_TIMEOUT_S = 1800.0  # of `ModelServer.call`: large weights on a slow disk
CONCURRENCY = 32
LISTED_MODELS = 8  # in an error
MAX_ERROR_CHARS = 400  # of a server's own words
# statuses after which another request may succeed, which the library retries
TRANSIENT = {408, 409, 429, *range(500, 600)} - {501}
# the model's own distribution, as a local model is sampled; servers have other defaults
NEUTRAL = {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
# of a request that was too long, in the words of OpenAI, vLLM, llama.cpp, SGLang
OVERFLOW = re.compile(r"context[_ ](length|size|window)", re.IGNORECASE)
# parameters that may be left out, or renamed, if a server refuses them
OPTIONAL = {"seed", "max_tokens", "chat_template_kwargs", *NEUTRAL}


class ContextOverflow(Exception):
    """A request is longer than the server's context window. The text is the server's."""


@dataclass(slots=True)
class Usage:
    """Counts over the life of a connection. Tokens are the server's count, 0 if it has none."""

    requests: int = 0  # answered
    retries: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cut: int = 0  # texts that ended at max_tokens
    truncations: int = 0  # texts that answer a conversation cut to fit the context window
    overflows: int = 0  # conversations that did not fit even so: the episode ends


class ModelServer:
    """Connection to `model` at `base_url` (ending in /v1), with `concurrency` requests at a time. A
    request is tried `max_attempts` times, with growing pauses, if the connection breaks or the
    server replies 408, 409, 429 or 5xx."""

    endpoint: ClassVar[str]  # of the openai library's client
    alternative: ClassVar[str]  # what to use if a server lacks the endpoint

    def __init__(
        self,
        model: str,
        base_url: str,
        *,
        temperature: float = 1.0,
        max_tokens: int = 256,
        max_attempts: int = MAX_ATTEMPTS,
        concurrency: int = CONCURRENCY,
    ) -> None:
        if not base_url.startswith(("http://", "https://")):
            raise ConfigError(
                f"the model server's address is {base_url!r}: use a whole URL, http://host:8000/v1"
            )
        self.model, self.base_url, self.usage = model, base_url.rstrip("/"), Usage()
        self._seeded, self._max_tokens = temperature > 0, max_tokens
        self._max_attempts, self._concurrency = max_attempts, concurrency
        self._options: dict[str, Any] = {
            "temperature": temperature,
            "max_tokens": max_tokens,
            **NEUTRAL,
        }
        self._refused: set[str] = set()  # of OPTIONAL
        # local servers ignore the key, but the library needs one
        self._api_key = os.environ.get(API_KEY_VARIABLE) or "none"

    def check(self, *, any_name: bool = False) -> None:
        """Raise `ModelServerError` if the server can't be reached or lists other models. With
        `any_name`, a server's only model is used whatever its name, adapters aside."""

        async def listed() -> list[Any]:
            # few retries: some servers without a list reply with 500
            client = self._client.with_options(max_retries=min(1, self._max_attempts - 1))
            return [model async for model in client.models.list()]

        try:
            [models] = self.run_all([listed])
        except (openai.AuthenticationError, openai.APIConnectionError) as error:
            raise self._fatal(error) from error
        except openai.APIError:
            return
        names = [model.id for model in models]
        own = [model.id for model in models if not getattr(model, "parent", None)]  # no adapter
        if any_name and len(own) == 1:
            self.model = own[0]
        if names and self.model not in names:
            shown = ", ".join(names[:LISTED_MODELS]) + ", ..." * (len(names) > LISTED_MODELS)
            raise ModelServerError(
                f"the server at {self.base_url} has no model {self.model!r}; it has {shown}: "
                "name one of these with --model, or serve yours"
            )
        self._listed(next((model for model in models if model.id == self.model), None))

    def _listed(self, model: Any) -> None:
        """Use what the server's list says of the model, None if it has no list."""

    def call(self, path: str, body: dict[str, Any] | None = None) -> tuple[int, str]:
        url, method = self.base_url.removesuffix("/v1") + path, "GET" if body is None else "POST"
        try:
            with httpx.Client(
                transport=httpx.HTTPTransport(proxy=proxy_of(url)),
                headers={"Authorization": f"Bearer {self._api_key}"},
                timeout=httpx.Timeout(CALL_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            ) as http:
                reply = http.request(method, url, json=body)
        except httpx.HTTPError as error:
            raise ModelServerError(
                f"no answer from the model server at {url}{through_proxy(url)}: {error!r}; start "
                "it, or correct the address"
            ) from error
        return reply.status_code, reply.text

    def run_all(self, calls: Sequence[Callable[[], Coroutine[Any, Any, T]]]) -> list[T]:

        async def run() -> list[T]:
            self._limit = asyncio.Semaphore(self._concurrency)
            elsewhere = not is_this_machine(httpx.URL(self.base_url).host)
            async with openai.AsyncOpenAI(
                api_key=self._api_key,
                base_url=self.base_url,
                timeout=openai.Timeout(TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
                max_retries=self._max_attempts - 1,
                http_client=openai.DefaultAsyncHttpxClient(trust_env=elsewhere),
            ) as self._client:
                tasks = [asyncio.create_task(call()) for call in calls]
                try:
                    return await asyncio.gather(*tasks)
                finally:
                    for task in tasks:
                        task.cancel()
                    await asyncio.gather(*tasks, return_exceptions=True)

        with start_blocking_portal() as portal:
            return portal.call(run)

    async def _ask(self, given: dict[str, Any], options: dict[str, Any]) -> Any:
        """Return the server's reply to one request, or the error of one that always failed. Raises
        `ContextOverflow`, and `ModelServerError` for what every request would meet: no connection,
        a refused key, a model that the server lacks."""
        while True:
            sent = {**self._options, **options}
            for name in self._refused & sent.keys():
                value = sent.pop(name)
                if name == "max_tokens":
                    sent["max_completion_tokens"] = value
            create = operator.attrgetter(self.endpoint)(self._client).with_raw_response.create
            try:
                async with self._limit:
                    raw = await create(model=self.model, **given, extra_body=sent)
                reply = raw.parse()
                if not getattr(reply, "choices", None):
                    raise ModelServerError(
                        f"{self.base_url} replied with no completion: {str(reply)[:200]!r}; is it "
                        "the address that ends in /v1?"
                    )
                self.usage.requests += 1
                self.usage.retries += raw.retries_taken
                if reply.usage:
                    self.usage.prompt_tokens += reply.usage.prompt_tokens or 0
                    self.usage.completion_tokens += reply.usage.completion_tokens or 0
                self.usage.cut += reply.choices[0].finish_reason == "length"
                return reply
            except (openai.BadRequestError, openai.UnprocessableEntityError) as error:
                if OVERFLOW.search(f"{error.code} {_server_message(error)}"):
                    raise ContextOverflow(_server_message(error)) from error
                words = re.findall(r"\w+", f"{error.param} {_server_message(error)}")
                refused = OPTIONAL.intersection(words, sent)
                if not refused:
                    raise self._fatal(error) from error
                if new := ", ".join(sorted(refused - self._refused)):
                    log.warning("%s accepts no %s: %s", self.base_url, new, _server_message(error))
                self._refused |= refused
            except openai.APIError as error:
                late = isinstance(error, openai.APITimeoutError)
                if not late and getattr(error, "status_code", None) not in TRANSIENT:
                    raise self._fatal(error) from error
                self.usage.retries += self._max_attempts - 1
                reason = f"no answer in {TIMEOUT_S:g} s" if late else _server_message(error)
                tries = f"failed {self._max_attempts} times for {self.model!r}"
                return ModelServerError(f"{self.base_url} {tries}: {reason}")

    def _fatal(self, error: openai.APIError) -> ModelServerError:
        url, reason = self.base_url, _server_message(error)
        status = getattr(error, "status_code", None)
        if isinstance(error, openai.APIConnectionError):
            return ModelServerError(
                f"no connection to the model server at {url}{through_proxy(url)}, tried "
                f"{self._max_attempts} times: {error.__cause__ or reason}; start it, or correct "
                "the address"
            )
        if status is None:
            return ModelServerError(
                f"can't read the reply of {url}: {reason}; is it the address that ends in /v1?"
            )
        remedy = ""
        if status == 401:
            remedy = f": set {API_KEY_VARIABLE}"
        elif status == 404 and self.model in reason:
            remedy = f": name a model that {url}/models lists"
        elif status in (404, 405, 501):
            path = "/" + self.endpoint.replace(".", "/")
            remedy = (
                f": use {self.alternative} if it has no {path}, or correct the address, which ends "
                "in /v1 on most servers"
            )
        return ModelServerError(
            f"{url} refuses the request for {self.model!r} ({status} {reason}){remedy}"
        )


def _server_message(error: openai.APIError) -> str:
    text = error.message
    if error.body and re.fullmatch(r"Error code: \d+", text):
        text += f" - {error.body}"
    return " ".join(text.split())[:MAX_ERROR_CHARS]
