"""A small byte-level BPE tokenizer with a ChatML template, for the offline base model.

Its pre-tokenizer keeps words with the space before them, single digits, punctuation and `_` alone. A name such as
`unit_price` then splits into the words that a question says, and a number is copied digit by digit.
"""

from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
PIECES = r" ?[A-Za-z]+|\d|_|\n| ?[^\sA-Za-z\d_]|\s"
CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def train_tokenizer(texts: Iterable[str], vocab_size: int, max_length: int) -> PreTrainedTokenizerFast:
    """A tokenizer of at most `vocab_size` ids (256 bytes and 3 special tokens among them) learnt from `texts`.

    `max_length` is the model's window in tokens.
    """
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    bpe.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=[PAD, START, END],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=[START],
        chat_template=CHATML,
        model_max_length=max_length,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )
