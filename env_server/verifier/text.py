"""Is a text the gold answer? The strict standard, which is that of training."""

from functools import partial
from itertools import islice

from env_server.verifier.bags import can_pair
from env_server.verifier.cells import Read, same_row, text_key, value_key
from env_server.verifier.gold import Gold
from env_server.verifier.reading import readings


def verify(answer_text: str, gold: Gold) -> bool:
    """Whether any reading of `answer_text` as the gold's type is the gold answer."""
    return any(_same_rows(rows, gold) for rows in readings(answer_text, gold.answer_type))


def _same_rows(rows: list[list[Read]], gold: Gold) -> bool:
    if len(rows) != len(gold.rows) or any(
        len(row) != len(right) for row, right in zip(rows, gold.rows, strict=True)
    ):
        return False
    same = partial(same_row, words=gold.words)
    stretches = iter(rows)
    return all(
        can_pair(list(islice(stretches, block.take)), block.rows, same, text_key, value_key)
        for block in gold.blocks
    )
