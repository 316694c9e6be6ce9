"""Many turns of a conversation as ids: those of the chat template of each family, where it permits.

Each test runs on a tiny tokenizer with the family's rules, and on the real one where it is there.
"""

from collections.abc import Callable

import pytest
from transformers import PreTrainedTokenizerFast

from tests.trainer.conftest import make_tokenizer
from tests.trainer.model_families import (
    FAMILIES,
    real_tokenizer,
    template_of,
    tiny_tokenizer,
    training_template_of,
)
from trainer.errors import PromptError
from trainer.rollout.chat_codec import codec_of
from trainer.rollout.parsing import without_thinking
from trainer.rollout.prompts import FULL_SYSTEM_PROMPT
from trainer.rollout.transcript import Sample, Transcript

SYSTEM = {"role": "system", "content": FULL_SYSTEM_PROMPT}
QUESTION = {"role": "user", "content": "Question: How many?\nTables: orders\nSteps left: 10"}
TURNS = [
    *("DESCRIBE: orders", "QUERY: SELECT COUNT(*)\nFROM orders;", "ANSWER: é 42", "SAMPLE: t1"),
    *("QUERY: SELECT 1", "ANSWER: [1, 2]"),
]
# among them texts that begin or end with white space, which merges with the template's newlines
OBSERVATIONS = [
    "orders: 12 rows\norder_id INTEGER\nSteps left: 9",
    "\nSteps left: 8",
    "\n\n  total | name\nAnn | 1\n\nSteps left: 7\n",
    " x\n",
    "",
    "Error: no such table: t\nSteps left: 4",
]
THINKING = ("smollm2", "qwen2.5", "qwen3", "qwen3 thinking")
Ids = list[int]


@pytest.fixture(params=[tiny_tokenizer, real_tokenizer], ids=["tiny", "real"])
def tokenizer_of(request: pytest.FixtureRequest) -> Callable[[str], PreTrainedTokenizerFast]:
    found: Callable[[str], PreTrainedTokenizerFast] = request.param
    return found


class Chat:
    """A conversation in a family's form, with its context as ids beside the messages."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, form: str) -> None:
        self.family, _, thinks = form.partition(" ")
        self.tokenizer, self.thinking = tokenizer, bool(thinks)
        self.codec = codec_of(tokenizer, self.thinking)
        self.messages = [SYSTEM, QUESTION]
        self.transcript = Transcript(self.codec.prompt(self.messages))

    def turn(self, text: str, observation: str) -> None:
        """Add a sampled turn, after thoughts where the family thinks, and what follows it."""
        if self.thinking:
            text = f"<think>\nI have {len(self.messages)} messages.\n</think>\n\n{text}"
        ids = [*self.tokenizer(text, add_special_tokens=False)["input_ids"], self.codec.turn_end]
        self.transcript.add_sample(Sample(ids, [-0.5] * len(ids)))
        self.transcript.add_environment(self.codec.bridge(observation, ids[-1]))
        self.messages += [
            {"role": "assistant", "content": text},
            {"role": "user", "content": observation},
        ]

    @property
    def ids(self) -> Ids:
        return self.transcript.prompt_ids + self.transcript.completion_ids

    def rendered(self, messages: list[dict[str, str]], template: str = "") -> Ids:
        """Return the template's own ids of messages; `template` replaces the published one."""
        ids: Ids = self.tokenizer.apply_chat_template(
            messages,
            chat_template=template or None,
            add_generation_prompt=True,
            enable_thinking=self.thinking,
            return_dict=False,
        )
        return ids


def played(tokenizer: PreTrainedTokenizerFast, form: str) -> Chat:
    chat = Chat(tokenizer, form)
    for text, observation in zip(TURNS, OBSERVATIONS, strict=True):
        chat.turn(text, observation)
    return chat


@pytest.mark.parametrize("family", FAMILIES)
def test_the_tiny_tokenizers_have_the_published_templates(family):
    """Or later versions, which render a game the same."""
    for form in (form for form in THINKING if form.startswith(family)):
        chat = played(real_tokenizer(family), form)
        assert chat.rendered(chat.messages) == chat.rendered(chat.messages, template_of(family))


@pytest.mark.parametrize("form", THINKING)
def test_many_turns_are_the_templates_ids(tokenizer_of, form):
    """Of templates that rewrite no old turn, after every turn; for Qwen3, whose old turns lose the
    think blocks that the model saw, of TRL's variant that keeps them."""
    family = form.split()[0]
    chat = Chat(tokenizer_of(family), form)
    assert chat.ids == chat.rendered(chat.messages)
    for text, observation in zip(TURNS, OBSERVATIONS, strict=True):
        chat.turn(text, observation)
        assert chat.ids == chat.rendered(chat.messages, training_template_of(family))
        if family != "qwen3":
            assert chat.ids == chat.rendered(chat.messages)


@pytest.mark.parametrize("form", THINKING[2:])
def test_qwen3s_template_takes_only_the_thinking_out_of_old_turns(tokenizer_of, form):
    """What a chat server shows of old turns is the row's text without think blocks."""
    chat = played(tokenizer_of("qwen3"), form)
    turns = chat.tokenizer.decode(chat.ids).split("<|im_start|>assistant\n")
    *old, last = [turns[0], *map(without_thinking, turns[1:-1]), turns[-1]]
    expected = "<|im_start|>assistant\n".join([*old, last])
    assert chat.tokenizer.decode(chat.rendered(chat.messages)) == expected
    shown = [{**one, "content": without_thinking(one["content"])} for one in chat.messages]
    assert chat.rendered(shown) == chat.rendered(chat.messages)


@pytest.mark.parametrize("form", THINKING)
@pytest.mark.parametrize("kept", [1, 3])
def test_a_cut_context_is_the_templates_ids(tokenizer_of, form, kept):
    """Of the question and the last pairs: the messages that a server would be sent."""
    chat = played(tokenizer_of(form.split()[0]), form)
    context = [*chat.transcript.prompt_ids, *chat.transcript.truncate(kept, [])]
    messages = chat.messages[:2] + chat.messages[-2 * kept :]
    assert context == chat.rendered(messages, training_template_of(chat.family))


def test_a_template_that_states_the_date_states_the_same_every_day():
    tokenizer = make_tokenizer(template_of("llama3.2"))
    assert "Today Date: 26 Jul 2024" in tokenizer.decode(codec_of(tokenizer).prompt([QUESTION]))


def test_a_template_that_moves_the_system_message_is_refused():
    """As Mistral's does, into the last message of the user."""
    moving = (
        "{% for m in messages[1:] %}{% if loop.last %}{{ messages[0]['content'] }}{% endif %}"
        "{{ m['content'] }}<|im_end|>{% endfor %}"
    )
    with pytest.raises(PromptError, match="leaves out or moves a message"):
        codec_of(make_tokenizer(moving)).bridge("x", 1)
