"""Which answers agree, and which of them wins."""

import pytest

from trainer.rollout.row import RolloutRow
from trainer.rollout.vote import (
    NOTHING,
    Attempt,
    answer_key,
    attempt_of,
    says_nothing,
    vote,
    words_in,
)

COUNTS = "name | count(*)\nAnn | 3\nBo | 1\n(note: no row is left out)"
MEAN = "avg(total)\n2979.4138"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1", "1.0"),
        ("1,234", "1234"),
        ("$5", "5"),
        ("true", "1"),
        ("Ann", " ANN. "),
        ("O’Hara", "o'hara"),
        ("2020-01-31", "2020-01-31T00:00"),
        ("0.1234567891", "0.12345678912"),
        ('["Ann", "Bo"]', "Bo, Ann"),
        ("['Ann', 'Bo']", "Bo\nAnn"),
        ("- Ann\n- Bo", "Ann,Bo"),
        ('\ufeff["Ann\u200b", 4]', "ann\u00a0, ４"),
        ('[["Ann", 3], ["Bo", 1]]', "Bo | 1\nAnn | 3.0"),
        ("| name | n |\n|---|---|\n| Ann | 3 |", '[{"name": "ann", "n": 3}]'),
        ("**Answer: 42**", "42"),
        ("NULL", "[]"),
        ("None", "(no rows)"),
        ('[[null, "NULL"]]', ""),
    ],
)
def test_answers_that_agree(one, other):
    assert answer_key(one) == answer_key(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1", "10"),
        ("12345678901", "12345678902"),
        ("Ann", "Bo"),
        ("Ann", '["Ann", "Ann"]'),
        ('[["Ann", 3]]', '[[3, "Ann"]]'),
        ('[["Ann", 3]]', '[["Ann"], [3]]'),
        ("NULL", "0"),
        ("2979.41", "2979.4138"),
    ],
)
def test_answers_that_differ(one, other):
    assert answer_key(one) != answer_key(other)


@pytest.mark.parametrize(
    ("said", "results", "same"),
    [
        ("2979.41", [MEAN], "2979.4138"),
        ("2,979.4", [COUNTS, MEAN], "2979.4138"),
        ("2978.4", [MEAN], "2978.4"),
        ("Ann, 3", [COUNTS], '[["Ann", 3]]'),
        ('["Ann", 3]', [COUNTS], '[["Ann", 3]]'),
        ("Ann, Bo", [COUNTS], '["Ann", "Bo"]'),
        ("Smith, J", ["name\nSmith, J"], '["Smith, J"]'),
        (COUNTS, [COUNTS], '[["Ann", 3], ["Bo", 1]]'),
        ("Ann | 3\nBo | 1", [COUNTS], '[["Bo", 1], ["Ann", 3]]'),
        ("x", ["x\n(no rows)"], "x"),
    ],
)
def test_an_answer_is_read_by_the_results_that_it_copies(said, results, same):
    assert answer_key(said, results) == answer_key(same)


@pytest.mark.parametrize(
    "text", ["[" * 20_000, "'" * 9_000, "1e999", "|", "a|b\nc", "[[[1]]]", "-"]
)
def test_any_text_is_read(text):
    assert answer_key(text, [COUNTS]) == answer_key(text, [COUNTS])


def attempts(*said: str | None, logprobs: tuple[float, ...] = ()) -> list[Attempt]:
    keys = [None if one is None else answer_key(one) for one in said]
    return [Attempt(*pair) for pair in zip(keys, logprobs or [None] * len(keys), strict=True)]


@pytest.mark.parametrize(
    ("said", "logprobs", "winner", "share"),
    [
        (("3", "3.0", "3"), (), (0, 1, 2), 1.0),
        (("3", "4", "4", "5"), (), (1, 2), 0.5),
        (("3", "4", None, None), (), (0,), 0.25),  # a tie: the first
        (("3", "4", "4", "3"), (-0.5, -0.1, -0.4, -0.5), (1, 2), 0.5),  # a tie: the likelier
        (("NULL", "NULL", "0", "7"), (), (3,), 0.25),
        (("0", "NULL", "0"), (), (0, 2), 2 / 3),
        (("NULL", "[]", None), (), (0, 1), 2 / 3),
    ],
)
def test_who_wins(said, logprobs, winner, share):
    first, *_ = groups = vote(attempts(*said, logprobs=logprobs))
    assert (first.members, first.share) == (winner, share)
    answered = [place for place, one in enumerate(said) if one is not None]
    assert sorted(place for group in groups for place in group.members) == answered


@pytest.mark.parametrize(
    ("named", "winner"),
    [
        (((), (), ()), (0, 1)),
        ((("city",), ("city",), ("city",)), (0, 1)),
        (((), (), ("city",)), (2,)),
        ((("city",), (), ("city", "shop")), (2,)),
        ((("city", "shop"), (), ("city", "shop")), (0, 1)),
        ((("city", "shop"), ("city",), ("city", "shop")), (0, 1)),
    ],
)
def test_a_query_that_names_more_of_the_question_counts_for_more(named, winner):
    first, *_ = vote(
        [Attempt(answer_key(key), None, one) for key, one in zip("334", named, strict=True)]
    )
    assert first.members == winner
    assert first.share == len(winner) / 3


def test_which_words_a_query_names():
    question = "How many template type codes have the Value 'PP' in each of the cities?"
    query = "SELECT count(*) FROM Templates WHERE Template_Type_Code = 'PP' AND city_values > 1"
    assert words_in(query, question) == ("code", "template", "type", "value")
    assert words_in("", question) == words_in(query, "") == ()
    assert words_in(query, "Combien de codes ? 几个") == ("code",)


def test_nobody_wins_without_an_answer():
    assert vote(attempts(None, None)) == vote([]) == []


def test_what_says_nothing():
    assert says_nothing(NOTHING)
    assert says_nothing(answer_key("[[0, null], [0, 0]]"))
    assert not says_nothing(answer_key("[[0, 1]]"))
    assert not says_nothing(answer_key("zero"))


def row_of(*actions: str, seen: tuple[str, ...] = ()) -> RolloutRow:
    texts = [one for pair in zip(actions, seen, strict=False) for one in pair]
    messages = [{"role": "user", "content": "Question: Who?\nTables: t\nSteps left: 9"}]
    messages += [
        {"role": "assistant" if place % 2 == 0 else "user", "content": text}
        for place, text in enumerate([*texts, *actions[len(seen) :]])
    ]
    return RolloutRow("q", actions=list(actions), transcript=messages)


def test_an_episode_is_read_with_what_its_queries_showed():
    shown = f"{COUNTS}\nSteps left: 8\nIf this result answers the question, send it."
    played = row_of("QUERY: SELECT name, count(*)", "ANSWER: Ann, 3", seen=(shown,))
    played.env_mask, played.logprobs, played.sampled_tokens = [1, 0, 1], [-0.5, 0.0, -0.1], 2
    assert attempt_of(played) == Attempt('[["ann", 3]]', pytest.approx(-0.3))
    assert attempt_of(played, "Which names?").named == ("name",)


def test_an_episode_without_an_answer_agrees_with_none():
    assert attempt_of(row_of("QUERY: SELECT 1")).key is None
    assert attempt_of(row_of()).key is None
    lost = row_of("ANSWER: 3")
    lost.lost = "down"
    assert attempt_of(lost) == Attempt(None, None)
