"""Renaming of symbols: each schema word and value of a demonstration is replaced by random tokens.

A model that has seen a few hundred words learns to use these words, and fails on a database with
others. Where names differ from row to row, the model learns instead to find the same tokens in the
question, the tables and the rows, and to copy them, which also works for unseen words. It trains
every token's embedding as well.

The commonest parts of real names (`s`, `st`, `con`) are never renamed, so a name of one token is
never one of these. With `any_letters`, longer names have them, and accents.
"""

import itertools
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from transformers import PreTrainedTokenizerFast

from trainer.pretraining.imitation import PretrainConfig, Row

# Letters that are not ASCII, as in `Dvořák`; the tokenizer has two tokens for each.
ACCENTED = "àáâãäåæçèéêëìíîïñòóôõöøùúûüýþßāăąćčďđēęěğīıłńňőřśşšţťūůűźżž"
# A token in the observations of more episodes is a common column word (name, id, date) and is kept.
COMMON_SHARE = 0.1
# A symbol appears in the observations for at least this share of its questions, unlike English.
SHOWN_SHARE = 0.3
# At most this share of a symbol's uses in actions come before it was seen; SQL keywords exceed it.
NOVEL_SHARE = 0.1
# Tries to find a name that no other symbol of the row has; the last one is taken.
DRAWS = 20

Part = tuple[int, ...]  # of a name: one token, or the two of an accented letter


@dataclass(frozen=True)
class Renamer:
    symbols: frozenset[int]
    lower: tuple[Part, ...]  # what new names are made of
    capital: tuple[Part, ...]  # what the new name of a capitalized symbol begins with
    prefix_length: int  # tokens that all rows start with, which are kept
    twins: frozenset[tuple[int, int]]  # one word in both cases, the smaller id first
    any_lower: tuple[Part, ...]  # in place of `lower`, for longer names with `any_letters`
    any_capital: tuple[Part, ...]  # in place of `capital`, likewise

    def rename_some(self, config: PretrainConfig, row: Row, stream: random.Random) -> Row:
        return self.rename(row, config, stream) if stream.random() < config.renamed_share else row

    def rename(self, row: Row, config: PretrainConfig, stream: random.Random) -> Row:
        """Return `row` with each symbol replaced by one or more random tokens of the same case.
        Unchanged are rows with a word in both cases, whose two names would no longer match, and
        rows that would no longer fit the window."""
        start = self.prefix_length
        symbols = sorted(self.symbols.intersection(row.ids[start:]))
        if not self.twins.isdisjoint(itertools.combinations(symbols, 2)):
            return row
        chosen = self._names(symbols, config, stream)
        ids, learn = row.ids[:start], row.learn[:start]
        for token, marked in zip(row.ids[start:], row.learn[start:], strict=True):
            new = chosen.get(token) or [token]
            ids.extend(new)
            learn.extend([marked] * len(new))
        return replace(row, ids=ids, learn=learn) if len(ids) <= config.window_tokens else row

    def _names(
        self, symbols: Sequence[int], config: PretrainConfig, stream: random.Random
    ) -> dict[int, list[int]]:
        chosen: dict[int, list[Part]] = {}
        weights = config.name_lengths
        lengths = stream.choices(range(1, len(weights) + 1), weights, k=len(symbols))
        capital = {token for (token,) in self.capital}
        for token, length in zip(symbols, lengths, strict=True):
            lower, first = self.lower, self.capital
            if length > 1 and config.any_letters:
                lower, first = self.any_lower, self.any_capital
            alike = [
                other
                for symbol, other in chosen.items()
                if len(other) > 1 and (symbol in capital) == (token in capital)
            ]
            for _ in range(DRAWS):
                name = [stream.choice(first if token in capital else lower)]
                name += stream.choices(lower, k=length - 1)
                if length > 1 and alike and stream.random() < config.alike_share:
                    other = stream.choice(alike)
                    shared = stream.randint(1, min(len(other), length) - 1)
                    name[:shared] = other[:shared]
                if name not in chosen.values():
                    break
            chosen[token] = name
        return {token: list(itertools.chain(*name)) for token, name in chosen.items()}


def find_symbols(rows: Sequence[Row], tokenizer: PreTrainedTokenizerFast) -> Renamer:
    """Find the tokens that can be renamed in `rows` without changing the questions: letters that
    questions and observations share and that actions copy."""
    texts = {token: tokenizer.decode([token]) for token in range(len(tokenizer))}
    pattern = re.compile(r"[A-Za-z]|[A-Za-z]?[a-z]+")
    letters = {token for token, text in texts.items() if pattern.fullmatch(text)}
    prefix_length = _common_prefix(rows)
    # token -> episodes with the token in: the question; an observation; both; an action
    asked, observed, shown, used = Counter[int](), Counter[int](), Counter[int](), Counter[int]()
    novel = Counter[int]()  # token -> episodes in which an action has it before anything else
    for row in rows:
        start = row.learn.index(1)
        question = letters.intersection(row.ids[prefix_length:start])
        in_observations, in_actions = set[int](), set[int]()
        for token, marked in zip(row.ids[start:], row.learn[start:], strict=True):
            if token not in letters:
                continue
            if not marked:
                in_observations.add(token)
                continue
            if token not in in_actions | in_observations | question:
                novel[token] += 1
            in_actions.add(token)
        asked.update(question)
        observed.update(in_observations)
        shown.update(question & in_observations)
        used.update(in_actions)
    kept = {
        token
        for token in letters
        if observed[token] > COMMON_SHARE * len(rows)
        or shown[token] < SHOWN_SHARE * asked[token]
        or novel[token] > NOVEL_SHARE * used[token]
    }
    free = letters - kept - set(rows[0].ids[:prefix_length])
    symbols = frozenset(token for token in free if observed[token] or asked[token])
    small = [(token,) for token in sorted(letters) if texts[token][0].islower()]
    large = [(token,) for token in sorted(letters) if texts[token][0].isupper()]
    accented = [tuple(tokenizer.encode(one, add_special_tokens=False)) for one in ACCENTED]
    by_text = {texts[token]: token for token in symbols}
    both = {(token, by_text.get(text.capitalize(), token)) for text, token in by_text.items()}
    twins = frozenset((min(pair), max(pair)) for pair in both if pair[0] != pair[1])
    return Renamer(
        symbols,
        lower=tuple(part for part in small if part[0] in free),
        capital=tuple(part for part in large if part[0] in free),
        any_lower=(*small, *accented),
        any_capital=tuple(large),
        prefix_length=prefix_length,
        twins=twins,
    )


def _common_prefix(rows: Sequence[Row]) -> int:
    columns = zip(*(row.ids for row in rows), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda column: len(set(column)) == 1, columns))
