"""Cell makers: deterministic columns, with the requested share of NULLs and uniqueness."""

import datetime as dt
import random
from collections.abc import Callable

import pytest

from data.domains import values
from data.domains.spec import Maker

COUNT = 2000
MAKERS: dict[str, Callable[[], Maker]] = {
    "person_names": values.person_names,
    "company_names": values.company_names,
    "cities": values.cities,
    "few_cities": lambda: values.cities(5),
    "countries": values.countries,
    "choice": lambda: values.choice(["a", "b"], [3, 1]),
    "skewed_choice": lambda: values.skewed_choice(["a", "b", "c"]),
    "integers": lambda: values.integers(3, 9),
    "skewed_integers": lambda: values.integers(0, 90, skew=True),
    "reals": lambda: values.reals(1, 50),
    "even_reals": lambda: values.even_reals(1, 50, 1),
    "prices": lambda: values.prices(2, 60),
    "dates": lambda: values.dates("2020-01-31", dt.date(2024, 2, 29)),
    "emails": values.emails,
    "codes": lambda: values.codes("INV-"),
    "phones": values.phones,
    "streets": values.streets,
    "composed": lambda: values.composed(["{a} of {b}"], a=["House", "Hill"], b=["Ash", "Oak"]),
}


@pytest.mark.parametrize("name", MAKERS)
def test_one_stream_gives_one_column(name: str) -> None:
    first = MAKERS[name]()(random.Random(7), COUNT)
    assert first == MAKERS[name]()(random.Random(7), COUNT)
    assert first != MAKERS[name]()(random.Random(8), COUNT)
    assert len(first) == COUNT
    assert None not in first


@pytest.mark.parametrize(
    "maker",
    [
        values.person_names(unique=True),
        values.company_names(unique=True),
        values.emails(),
        values.codes("A", 4),
    ],
)
def test_unique_columns_hold_no_cell_twice(maker: Maker) -> None:
    cells = maker(random.Random(2), 1500)
    assert len(set(cells)) == 1500


def test_a_unique_column_without_enough_cells_says_so() -> None:
    with pytest.raises(ValueError, match="only 3 different cells of 4"):
        values.column(lambda rng: rng.randint(1, 3), unique=True)(random.Random(1), 4)


def test_bounds_hold_and_skew_prefers_small_values() -> None:
    rng = random.Random(3)
    numbers = [cell for cell in values.reals(10, 110)(rng, COUNT) if isinstance(cell, float)]
    assert all(10 <= cell <= 110 for cell in numbers)
    assert sorted(numbers)[COUNT // 2] < 45
    whole = values.integers(5, 8, skew=True)(rng, COUNT)
    assert set(whole) == {5, 6, 7, 8}
    days = [str(cell) for cell in values.dates("2023-03-01", "2023-03-09")(rng, COUNT)]
    assert (min(days), max(days)) == ("2023-03-01", "2023-03-09")
