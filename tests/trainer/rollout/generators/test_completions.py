"""Token ids from a server: what is sent, what is made of the reply, and what other servers are
told. `test_contract.py` beside it plays whole episodes."""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.trainer.chat_server import CHAT, ChatServer, Fault, completion, refusal, served
from tests.trainer.model_families import tiny_tokenizer
from trainer.errors import ModelServerError
from trainer.rollout.chat_codec import codec_of
from trainer.rollout.generators.openai_players import CompletionsGenerator
from trainer.rollout.transcript import Sample

CODEC = codec_of(tiny_tokenizer("qwen2.5"))
TOO_LONG = refusal(400, "This model's maximum context length is 16 tokens.")
TURN = [*CODEC.plain("DESCRIBE: orders\nANSWER: 1"), CODEC.turn_end]


class IdsServer(ChatServer):
    """Answers every prompt with `turn`; `choice` overrides fields of the reply's choice."""

    def __init__(self) -> None:
        super().__init__(lambda messages: "")
        self.paths = {"/v1/completions"}
        self.turn: Sequence[int] = TURN
        self.choice: dict[str, Any] = {}

    def complete_ids(self, body: dict[str, Any]) -> Fault:
        ids = list(self.turn)[: body["max_tokens"]]
        choice = {
            "text": CODEC.text(ids),
            "finish_reason": "stop" if len(ids) == len(self.turn) else "length",
            "token_ids": ids,
            "logprobs": {"token_logprobs": [-0.25] * len(ids)},
        }
        return completion({**choice, **self.choice}, len(body["prompt"]), len(ids))


@pytest.fixture
def server() -> Iterator[IdsServer]:
    with served(IdsServer()) as found:
        yield found


def generator_of(server: ChatServer, **options: Any) -> CompletionsGenerator:
    settings = {"max_context_tokens": 200, "max_tokens": 32, "max_attempts": 2}
    return CompletionsGenerator("fake", server.url, CODEC, **{**settings, **options})


def sample_of(server: ChatServer, **options: Any) -> Any:
    generator = generator_of(server, **options)
    generator.start([(1,)])
    return generator.sample({0: [5]})[0]


def test_a_space_that_only_one_side_drops_is_no_other_tokenizer(server):
    """As of Llama 2 and Mistral: decoded alone, a turn loses the space before its first word."""
    server.choice = {"text": " " + CODEC.text(TURN)}
    assert sample_of(server).ids == TURN


def test_ids_are_sent_and_ids_come_back(server):
    generator = generator_of(server, temperature=0.5)
    generator.start([(1, 2), (1, 3)])
    samples = generator.sample({0: [5, 6], 1: [7]})
    assert samples[0] == samples[1] == Sample(TURN, [-0.25] * len(TURN))
    assert generator.room(0) == 200 - 2 - len(TURN)
    generator.sample({0: [8]})
    generator.restart(0, 2)
    generator.sample({0: [9, 9]})
    first, second, third, fourth = server.requests
    assert {tuple(body["prompt"]) for body in (first, second)} == {(5, 6), (7,)}
    assert third["prompt"] == [5, 6, *TURN, 8]
    assert fourth["prompt"] == [5, 6, 9, 9]
    assert len({body["seed"] for body in server.requests}) == 4
    for body in server.requests:
        assert (body["model"], body["temperature"], body["max_tokens"]) == ("fake", 0.5, 32)
        assert body["stop_token_ids"] == sorted(CODEC.stop_ids)
        assert body["return_token_ids"] is True
        # the model's own distribution, whatever the server's defaults
        assert (body["top_p"], body["top_k"], body["min_p"]) == (1, -1, 0)
        assert body["repetition_penalty"] == 1


def test_a_turn_ends_where_a_local_one_would(server):
    newline = len(CODEC.plain("DESCRIBE: orders\n"))
    sample = sample_of(server, ends_action=lambda ids: len(ids) == newline)
    assert sample.ids == TURN[:newline]
    server.turn = [*TURN, *TURN]  # a server that does not stop at the end of a turn
    assert sample_of(server).ids == TURN


def test_the_limits_of_a_turn_and_of_the_context(server):
    generator = generator_of(server, max_tokens=4, max_context_tokens=11)
    generator.start([(1,)])
    samples = [generator.sample({0: ids})[0] for ids in ([5], [5, 5, 5])]
    assert [sample.ids for sample in samples] == [TURN[:4], TURN[:3]]
    assert [body["max_tokens"] for body in server.requests] == [4, 3]
    assert generator.usage.cut == 2


@pytest.mark.parametrize(
    ("listed", "window"),
    [({"max_model_len": 64}, 64), ({"meta": {"n_ctx": 64}}, 64), ({"meta": None}, 200)],
)
def test_the_window_that_the_server_lists_is_kept(server, listed, window):
    server.listed = listed
    generator = generator_of(server)
    generator.check()
    generator.start([(1,)])
    assert generator.room(0) == window


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"choice": {"token_ids": None}}, "--api chat"),
        ({"choice": {"logprobs": None}}, "--api chat"),
        ({"choice": {"text": "Something else"}}, "--tokenizer"),  # another model's ids
        ({"faults": deque([TOO_LONG])}, r"16 tokens.*lower --set max_context_tokens=200"),
        ({"paths": {CHAT}}, "use --api chat"),  # no completions
    ],
)
def test_what_a_server_lacks_is_an_error_that_names_the_option(server, changes, message):
    vars(server).update(changes)
    with pytest.raises(ModelServerError, match=message):
        sample_of(server)
