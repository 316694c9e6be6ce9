"""A small byte-level BPE tokenizer with a ChatML template, for the offline base model.

A word has the same tokens after a space, after `_` and at the start of a line. So a name such as
`unit_price` has the tokens of the question's 'unit price', and copying needs no dictionary. Every
digit is a token of its own.
"""

from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from trainer.rollout.prompts import STEPS_LEFT

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
# Words that are never copied: their token includes the space before them.
FRAME_WORDS = """
    SELECT FROM WHERE AND OR NOT IN IS NULL LIKE BETWEEN AS ON JOIN LEFT GROUP ORDER BY HAVING LIMIT
    ASC DESC DISTINCT COUNT SUM AVG MIN MAX ROUND INTEGER REAL TEXT DATE primary key rows row
    a above after all among an and any are at before below between by do does each either every for
    from has have how in is it its least less many more most name names no not number of on or out
    over than that the their them there these this to two what where which who whose with without
    average different distinct earliest first highest largest last latest lowest maximum minimum
    recent smallest total belong belongs common decimals rounded
"""
FRAME_PHRASES = (
    rf"\n{STEPS_LEFT}",
    r"\nTables:",
    r"(?:DESCRIBE|SAMPLE|QUERY|ANSWER|Question|Error):",
    r"\(\*\)",
)
PIECES = "|".join(
    (
        *FRAME_PHRASES,
        rf" (?:{'|'.join(FRAME_WORDS.split())})(?![A-Za-z_])",
        # singular and plural share a stem: 'order' + 's', 'box' + 'es', 'cit' + 'y' or 'ies'
        r"ies(?![A-Za-z])",
        r"[A-Za-z]+?(?:ch|sh|ss|x|z)(?=es(?![A-Za-z]))",
        r"[A-Za-z]+?[b-df-hj-np-tv-z](?=(?:y|ies)(?![A-Za-z]))",
        r"[A-Za-z]+?(?=s(?![A-Za-z]))",
        r"[A-Za-z]+",
        r"\d",
        r"_",
        r"\n",
        r" ?[^\sA-Za-z\d_]",
        r"\s",
    )
)
CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def train_tokenizer(
    texts: Iterable[str], vocab_size: int, max_length: int
) -> PreTrainedTokenizerFast:
    """Train a tokenizer of at most `vocab_size` tokens, including 256 bytes and 3 special tokens.

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
