"""Renaming of symbols: in a demonstration, schema words and values become other tokens, the same
ones everywhere.

A model that has read a few hundred words learns what these words do, and fails on a database with
others. Where names mean nothing from one row to the next, what is left to learn is to find in the
question, the tables and the rows what is the same, and to copy it: what works on words never seen.
Every token's embedding is trained on the way.
"""

import itertools
import random
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from transformers import PreTrainedTokenizerFast

from trainer.pretraining.imitation import Row

# tokens that stand for one: unknown words fall into more pieces
LENGTHS, LENGTH_WEIGHTS = (1, 2, 3), (75, 20, 5)
# of episodes: a token that more of them show says what a thing is (name, id, date): it stays
COMMON_SHARE = 0.1
# of a symbol's questions, at least, whose observations show it; words of the language are below
SHOWN_SHARE = 0.3
# of a symbol's uses in actions, at most, that nothing before showed; keywords are above
NOVEL_SHARE = 0.1


@dataclass(frozen=True)
class Renamer:
    """`symbols` may be renamed; `lower` and `capital` are the tokens to rename to. `frame` tokens
    open every row."""

    symbols: frozenset[int]
    lower: tuple[int, ...]
    capital: tuple[int, ...]
    frame: int
    twins: frozenset[tuple[int, int]]  # the tokens of one word in both cases, the smaller id first

    def rename(self, row: Row, stream: random.Random) -> Row:
        """`row` with each of its symbols replaced by one to three random tokens of the same case.

        A row that has a word in both cases stays as it is: renamed, the two would no longer be the
        same word.
        """
        found = sorted(self.symbols.intersection(row.ids[self.frame :]))
        if not self.twins.isdisjoint(itertools.combinations(found, 2)):
            return row
        names: dict[int, list[int]] = {}
        lengths = stream.choices(LENGTHS, LENGTH_WEIGHTS, k=len(found))
        capital = set(self.capital)
        for token, length in zip(found, lengths, strict=True):
            first = stream.choice(self.capital if token in capital else self.lower)
            names[token] = [first, *stream.choices(self.lower, k=length - 1)]
        ids, learn = row.ids[: self.frame], row.learn[: self.frame]
        for token, learnt in zip(row.ids[self.frame :], row.learn[self.frame :], strict=True):
            new = names.get(token) or [token]
            ids.extend(new)
            learn.extend([learnt] * len(new))
        return replace(row, ids=ids, learn=learn)


def find_symbols(rows: Sequence[Row], tokenizer: PreTrainedTokenizerFast) -> Renamer:
    """What can be renamed in `rows` without changing what is asked, as their own statistics tell.

    A symbol is a token of letters that questions and observations share and that actions copy. The
    language's words, SQL's and the frame's are no symbols, and no symbol is renamed to them.
    """
    texts = {token: tokenizer.decode([token]) for token in range(len(tokenizer))}
    letters = {
        token for token, text in texts.items() if re.fullmatch(r"[A-Za-z]|[A-Za-z]?[a-z]+", text)
    }
    frame = _common_prefix(rows)
    asked: Counter[int] = Counter()  # episodes whose question has the token
    shown: Counter[int] = Counter()  # of these, episodes whose observations have it too
    seen: Counter[int] = Counter()  # episodes whose observations have it
    used: Counter[int] = Counter()  # episodes whose actions have it
    novel: Counter[int] = Counter()  # of these, episodes in which an action has it first
    for row in rows:
        start = row.learn.index(1)
        question = letters.intersection(row.ids[frame:start])
        before, observed, acted = set(question), set(), set()
        for token, learnt in zip(row.ids[start:], row.learn[start:], strict=True):
            if token not in letters:
                continue
            if learnt:
                if token not in acted and token not in before:
                    novel[token] += 1
                acted.add(token)
            else:
                observed.add(token)
                before.add(token)
        asked.update(question)
        seen.update(observed)
        shown.update(question & observed)
        used.update(acted)

    def language(token: int) -> bool:
        return (
            seen[token] > COMMON_SHARE * len(rows)
            or shown[token] < SHOWN_SHARE * asked[token]
            or novel[token] > NOVEL_SHARE * used[token]
            or token in rows[0].ids[:frame]
        )

    free = {token for token in letters if not language(token)}
    symbols = frozenset(token for token in free if seen[token] or asked[token])
    lower = tuple(sorted(token for token in free if texts[token][0].islower()))
    capital = tuple(sorted(token for token in free if texts[token][0].isupper()))
    by_text = {texts[token]: token for token in symbols}
    twins = {
        (token, by_text[text.capitalize()])
        for text, token in by_text.items()
        if text.capitalize() in by_text
    }
    pairs = frozenset((min(pair), max(pair)) for pair in twins if pair[0] != pair[1])
    return Renamer(symbols, lower, capital, frame, pairs)


def _common_prefix(rows: Iterable[Row]) -> int:
    """How many tokens all rows begin with: the system prompt and the question's label."""
    rows = iter(rows)
    prefix = next(rows).ids
    for row in rows:
        length = min(len(prefix), len(row.ids))
        prefix = next(
            (prefix[:at] for at in range(length) if prefix[at] != row.ids[at]), prefix[:length]
        )
    return len(prefix)
