"""Names of tables and columns are read as English words."""

import pytest

from data.domains.spec import Kind
from data.introspection.names import nouns_of, phrase_of, singular, words_of


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("car_makers", "car makers"),
        ("LName", "last name"),
        ("unit price (EUR)", "unit price eur"),
        ("order_qty", "order quantity"),
        ("Straße", "straße"),
        ("?", "unnamed"),
    ],
)
def test_words(name: str, words: str) -> None:
    assert words_of(name) == words.split()


@pytest.mark.parametrize(
    ("many", "one"),
    [
        ("countries", "country"),
        ("movies", "movie"),
        ("people", "person"),
        ("series", "series"),
        ("status", "status"),
    ],
)
def test_singulars(many: str, one: str) -> None:
    assert singular(many) == one
    assert singular(one) == one


@pytest.mark.parametrize(
    ("words", "nouns"),
    [
        ("countries", ("country", "countries")),
        ("staff", ("staff", "staff")),
        ("types of restaurant", ("type of restaurant", "types of restaurant")),
        ("has pet", ("has-pet record", "has-pet records")),
        ("hiring", ("hiring record", "hiring records")),
        ("客户", ("客户 record", "客户 records")),
    ],
)
def test_nouns_of_tables(words: str, nouns: tuple[str, str]) -> None:
    assert nouns_of(words.split()) == nouns


@pytest.mark.parametrize(
    ("words", "kind", "phrase"),
    [
        ("number products", Kind.INTEGER, "number of products"),
        ("focal length mm", Kind.REAL, "focal length in mm"),
        ("opened on", Kind.DATE, "opened date"),
        ("date of birth", Kind.DATE, "date of birth"),
        ("number component", Kind.INTEGER, "number of components"),
        ("sales million", Kind.REAL, "amount of sales in million"),
        ("x", Kind.REAL, "x"),
        ("年", Kind.INTEGER, "年"),
        # these read badly
        ("directed by", Kind.TEXT, None),
        ("date first rental", Kind.DATE, None),
        ("day or boarding", Kind.CATEGORY, None),
        ("county represented", Kind.CATEGORY, None),
        ("meter 100", Kind.REAL, None),
        ("weeks on top", Kind.INTEGER, None),
        ("damage millions usd", Kind.REAL, None),
    ],
)
def test_phrases_of_columns(words: str, kind: Kind, phrase: str | None) -> None:
    assert phrase_of(words.split(), kind) == phrase
