"""The base model before its training: a small byte-level BPE tokenizer with a ChatML template, and
a Qwen3 whose initial weights can already copy.

In the tokenizer a word has the same tokens after a space, after `_` and at the start of a line. So
a name such as `unit_price` has the tokens of the question's 'unit price', and copying needs no
dictionary. Every digit is a token of its own.

From random weights a model of this size spends most of a laptop's budget on learning to copy a name
or an answer that it has seen before. Here the induction head that does so (Olsson et al.,
'In-context Learning and Induction Heads', 2022) is written into two layers before training; none of
its weights is frozen. The residual stream has three sections: the token's content, one constant,
and a copy of the previous token's content.

- Layer 0, half of the heads: attend to the previous position, by rotary phase only, and write its
  content to the third section.
- Layer 1, every head: the query is this token's content, the key each position's previous token, so
  the head finds what followed this token before, and writes that token's content where the tied
  output head reads it.
"""

import math
from collections.abc import Iterable

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from trainer.pretraining.imitation import PretrainConfig
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
EMBEDDING_STD = 0.1
CONSTANT = 0.5
PREVIOUS_PAIRS = 3  # the fastest rotary pairs distinguish the previous position from all others
PREVIOUS_GAIN = 2.5
SLOW_ANGLE = 0.004  # radians per position: slower rotary pairs compare content at any distance
MATCH_GAIN = 2.0
COPY_SCALE = 0.3


def train_tokenizer(
    texts: Iterable[str], vocab_size: int, max_length: int
) -> PreTrainedTokenizerFast:
    """Train a tokenizer of at most `vocab_size` tokens, including 256 bytes and 3 special tokens.
    `max_length` is the model's window in tokens."""
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


def build_model(config: PretrainConfig, tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    torch.manual_seed(config.seed)
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            num_key_value_heads=config.heads,
            head_dim=config.head_dim,
            max_position_embeddings=config.window_tokens,
            tie_word_embeddings=True,
            rope_parameters={"rope_type": "default", "rope_theta": 1_000_000.0},
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )


@torch.no_grad()
def wire_induction(model: Qwen3ForCausalLM, seed: int = 0) -> None:
    config = model.config
    heads, head_dim = config.num_attention_heads, config.head_dim
    previous_heads = heads // 2
    share = min(head_dim, (config.hidden_size - 1) // (2 * previous_heads))
    content = share * previous_heads
    constant, copy = content, content + 1
    stream = torch.Generator().manual_seed(seed)

    embedding = model.model.embed_tokens.weight
    embedding.zero_()
    embedding[:, :content] = (
        torch.randn(embedding.shape[0], content, generator=stream) * EMBEDDING_STD
    )
    embedding[:, constant] = CONSTANT

    angles = config.rope_parameters["rope_theta"] ** (
        -torch.arange(head_dim // 2) / (head_dim // 2)
    )
    _wire_previous(model, angles, previous_heads, share, constant, copy)
    _wire_match(model, angles, content, copy, stream)


def _wire_previous(
    model: Qwen3ForCausalLM,
    angles: Tensor,
    previous_heads: int,
    share: int,
    constant: int,
    copy: int,
) -> None:
    """Make `previous_heads` heads of layer 0 each copy `share` dimensions of the previous token.
    `constant` and `copy` are where these sections of the residual stream start."""
    attention = model.model.layers[0].self_attn
    head_dim = model.config.head_dim
    half = head_dim // 2
    fast = torch.arange(PREVIOUS_PAIRS)
    for head in range(previous_heads):
        rows = slice(head * head_dim, (head + 1) * head_dim)
        for projection in (attention.q_proj, attention.k_proj, attention.v_proj):
            projection.weight[rows] = 0
        attention.o_proj.weight[:, rows] = 0
        attention.q_proj.weight[rows][fast, constant] = 1
        # a key rotated ahead by one position's angle matches the query one position later
        attention.k_proj.weight[rows][fast, constant] = torch.cos(angles[fast])
        attention.k_proj.weight[rows][half + fast, constant] = torch.sin(angles[fast])
        moved = torch.arange(share)
        attention.v_proj.weight[rows][moved, head * share + moved] = 1
        attention.o_proj.weight[copy + head * share + moved, head * head_dim + moved] = (
            EMBEDDING_STD
        )
    for norm in (attention.q_norm, attention.k_norm):
        norm.weight[fast] = PREVIOUS_GAIN
        norm.weight[half + fast] = PREVIOUS_GAIN


def _wire_match(
    model: Qwen3ForCausalLM, angles: Tensor, content: int, copy: int, stream: torch.Generator
) -> None:
    """Make every head of layer 1 match content with the copy, and write its share of the match."""
    attention = model.model.layers[1].self_attn
    heads, head_dim = model.config.num_attention_heads, model.config.head_dim
    half = head_dim // 2
    slow = torch.nonzero(angles < SLOW_ANGLE).flatten()
    slow = torch.cat([slow, half + slow])
    share = math.ceil(content / heads)
    for projection in (attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj):
        projection.weight.zero_()
    for head in range(heads):
        rows = slice(head * head_dim, (head + 1) * head_dim)
        compare = torch.randn(len(slow), content, generator=stream) / math.sqrt(content)
        attention.q_proj.weight[rows][slow, :content] = compare
        attention.k_proj.weight[rows][slow, copy : copy + content] = compare
        copied = torch.arange(min(share, content - head * share))
        attention.v_proj.weight[rows][copied, head * share + copied] = 1
        attention.o_proj.weight[head * share + copied, head * head_dim + copied] = COPY_SCALE
    for norm in (attention.q_norm, attention.k_norm):
        norm.weight[slow] = MATCH_GAIN
