"""The small tokenizer: lossless, and split as copying needs it."""

import pytest

from trainer.pretraining.tokenizer import train_tokenizer

TEXTS = [
    "How many orders have a unit price over 120?",
    "QUERY: SELECT unit_price FROM orders",
    "orders: 120 rows\n",
] * 20


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS, vocab_size=400, max_length=512)


@pytest.mark.parametrize(
    "text", ["unit_price = 12.50", "São Paulo | 東京 | NULL\n", "  two  spaces\t", 'it\'s "quoted"']
)
def test_any_text_comes_back_to_the_byte(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text), skip_special_tokens=True) == text


@pytest.mark.parametrize(
    ("text", "pieces"), [("unit_price", ["unit", "_", "price"]), ("2024", list("2024"))]
)
def test_names_split_into_the_words_that_a_question_says_and_numbers_into_digits(
    tokenizer, text, pieces
):
    assert tokenizer.convert_ids_to_tokens(tokenizer.encode(text)) == pieces


def test_vocabulary_is_bounded_and_its_ends_are_special(tokenizer):
    assert len(tokenizer) <= 400
    assert (tokenizer.eos_token, tokenizer.pad_token) == ("<|im_end|>", "<|endoftext|>")


def test_chat_template_is_chatml(tokenizer):
    messages = [{"role": "user", "content": "hello"}]
    rendered = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert rendered == "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
