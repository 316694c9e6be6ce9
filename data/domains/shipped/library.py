"""A city library: books, their authors and publishers, members and loans."""

import random

from data.domains import values as v
from data.domains.lexicon import COMPANY_HEADS, LAST_NAMES, RARE_LAST_NAMES, listed
from data.domains.shipped.parts import (
    Sheet,
    Shipped,
    after,
    between,
    category,
    date,
    day,
    integer,
    key,
    mailbox,
    name,
    real,
    ref,
    text,
    whole,
)
from data.domains.spec import Domain, HardQuestion, Table, Value

TODAY = "2024-06-30"
TITLES = v.composed(
    (
        "The {mood} {place}",
        "The {mood} {place}",
        "A {mood} {thing}",
        "{thing} and {other}",
        "The {thing} of {town}",
        "Letters from {town}",
        "{town} at Night",
        "The {person}'s {thing}",
        "The Last {person}",
        "{number} {things}",
    ),
    unique=True,
    mood=listed(
        "Silent Hidden Broken Golden Winter Distant Forgotten Burning Quiet Crooked Salt Paper Hollow Narrow"
    ),
    place=listed(
        "Harbor Garden House Bridge Valley Orchard Station Island Tower River Library Market Forest Shore"
    ),
    thing=listed(
        "Lantern Compass Mirror Letter Shadow Clock Key Map Thread Stone Feather Candle Mask Violin"
    ),
    other=listed("Ash Bone Smoke Rain Iron Honey Dust Silence Thunder Salt Snow Glass"),
    person=listed(
        "Baker Cartographer Widow Sailor Gardener Painter Beekeeper Clockmaker Translator Midwife Pilot"
    ),
    number=listed("Two Three Seven Nine Twelve Forty"),
    things=listed("Winters Doors Letters Rivers Sisters Islands Keys Summers Questions Bells"),
    town=listed(
        "Lisbon Prague Kraków Malmö Havana Cairo Oslo Naples Kyoto Zürich Tallinn Bogotá Riga Fez"
    ),
)

HARD = (
    HardQuestion(
        "Which author has written books in the largest number of different languages?",
        """
        SELECT a.full_name
        FROM authors AS a JOIN books AS b ON b.author_id = a.author_id
        GROUP BY a.author_id
        ORDER BY COUNT(DISTINCT b.language) DESC LIMIT 1
        """,
    ),
    HardQuestion(
        "Which books of more than 500 pages have never been lent?",
        """
        SELECT title
        FROM books
        WHERE pages > 500 AND book_id NOT IN (SELECT book_id FROM loans)
        """,
    ),
    HardQuestion(
        "For each membership, how many days does a member keep a book on average, from loan to return? Give "
        "membership and days, rounded to 1 decimal, with the memberships in alphabetical order.",
        """
        SELECT m.membership, ROUND(AVG(julianday(l.return_date) - julianday(l.loan_date)), 1)
        FROM loans AS l JOIN members AS m ON m.member_id = l.member_id
        WHERE l.return_date IS NOT NULL
        GROUP BY m.membership
        ORDER BY m.membership
        """,
    ),
    HardQuestion(
        "What percentage of the returned loans came back after the due date? Round to 1 decimal.",
        """
        SELECT ROUND(100.0 * SUM(return_date > due_date) / COUNT(*), 1)
        FROM loans
        WHERE return_date IS NOT NULL
        """,
    ),
    HardQuestion(
        "Which publishers have books of at least 8 different genres?",
        """
        SELECT p.name
        FROM publishers AS p JOIN books AS b ON b.publisher_id = p.publisher_id
        GROUP BY p.publisher_id
        HAVING COUNT(DISTINCT b.genre) >= 8
        """,
    ),
    HardQuestion(
        "How many authors with at least 3 books have written all of them in the same language?",
        """
        SELECT COUNT(*)
        FROM (SELECT author_id FROM books GROUP BY author_id HAVING COUNT(*) >= 3 AND COUNT(DISTINCT language) = 1)
        """,
    ),
    HardQuestion(
        "Which genre do student members borrow most?",
        """
        SELECT b.genre
        FROM loans AS l JOIN members AS m ON m.member_id = l.member_id JOIN books AS b ON b.book_id = l.book_id
        WHERE m.membership = 'student'
        GROUP BY b.genre
        ORDER BY COUNT(*) DESC LIMIT 1
        """,
    ),
    HardQuestion(
        "Which member has paid the highest total of fines, and how much?",
        """
        SELECT m.name, SUM(l.fine) AS total
        FROM members AS m JOIN loans AS l ON l.member_id = m.member_id
        GROUP BY m.member_id
        ORDER BY total DESC LIMIT 1
        """,
    ),
    HardQuestion(
        "How many members have borrowed both a mystery and a poetry book?",
        """
        SELECT COUNT(*)
        FROM (SELECT l.member_id FROM loans AS l JOIN books AS b ON b.book_id = l.book_id WHERE b.genre = 'mystery'
          INTERSECT SELECT l.member_id FROM loans AS l JOIN books AS b ON b.book_id = l.book_id WHERE b.genre =
          'poetry')
        """,
    ),
    HardQuestion(
        "In which month of 2023 were the most books lent? Answer as YYYY-MM.",
        """
        SELECT strftime('%Y-%m', loan_date) AS month
        FROM loans
        WHERE loan_date BETWEEN '2023-01-01' AND '2023-12-31'
        GROUP BY month
        ORDER BY COUNT(*) DESC LIMIT 1
        """,
    ),
    HardQuestion(
        "For each language, which book has the most pages? Give language and title, with the languages in "
        "alphabetical order.",
        """
        WITH ranked AS (SELECT language, title, RANK() OVER (PARTITION BY language ORDER BY pages DESC) AS place
          FROM books WHERE pages IS NOT NULL) SELECT language, title
        FROM ranked
        WHERE place = 1
        ORDER BY language
        """,
    ),
    HardQuestion(
        "How many books were more than 40 years old when they were last lent, going by calendar years?",
        """
        SELECT COUNT(*)
        FROM books AS b
        WHERE (SELECT CAST(strftime('%Y', MAX(l.loan_date)) AS INTEGER) FROM loans AS l WHERE l.book_id = b.book_id)
          - b.publication_year > 40
        """,
    ),
)

LIBRARY = Domain(
    db_id="library",
    title="A city library",
    tables=(
        Table(
            "publishers",
            "publisher",
            "publishers",
            (
                key("publisher_id"),
                name(
                    "name",
                    v.composed(
                        ("{head} {tail}", "{last} {tail}", "{last} & {other}"),
                        unique=True,
                        head=COMPANY_HEADS,
                        last=LAST_NAMES + RARE_LAST_NAMES,
                        other=LAST_NAMES,
                        tail=listed("Press Books Publishing House Editions Verlag"),
                    ),
                ),
                category("country", v.countries(9)),
                integer("founded_year", v.integers(1890, 2012), "founding year"),
            ),
            32,
        ),
        Table(
            "authors",
            "author",
            "authors",
            (
                key("author_id"),
                name("full_name", v.person_names(unique=True), "name", "full name"),
                category("country", v.countries(16, null=0.05), "country"),
                integer(
                    "birth_year", v.integers(1885, 1992, null=0.08), "birth year", "year of birth"
                ),
            ),
            140,
        ),
        Table(
            "books",
            "book",
            "books",
            (
                key("book_id"),
                name("title", TITLES),
                ref("author_id", "authors", "author"),
                ref("publisher_id", "publishers", "publisher", null=0.04),
                category(
                    "genre",
                    v.skewed_choice(
                        [
                            "fiction",
                            "mystery",
                            "history",
                            "science",
                            "biography",
                            "poetry",
                            "children",
                            "travel",
                            "cooking",
                        ]
                    ),
                ),
                category(
                    "language",
                    v.choice(
                        ["English", "Spanish", "French", "German", "Polish"], [60, 14, 11, 9, 6]
                    ),
                ),
                integer("pages", v.integers(48, 940, null=0.03, skew=True), "pages"),
                integer("publication_year", v.integers(1950, 2018), "publication year"),
                real("replacement_cost", v.prices(6, 60), "replacement cost", "cost"),
            ),
            420,
        ),
        Table(
            "members",
            "member",
            "members",
            (
                key("member_id"),
                name("name", v.person_names()),
                text("email", v.emails(null=0.12), "email", "email address"),
                category("home_city", v.cities(8), "city", "home city"),
                category(
                    "membership",
                    v.choice(["standard", "student", "senior", "family"], [48, 26, 16, 10]),
                ),
                date("join_date", v.dates("2019-01-02", "2024-03-31"), "join date"),
            ),
            260,
        ),
        Table(
            "loans",
            "loan",
            "loans",
            (
                key("loan_id"),
                ref("book_id", "books", "book"),
                ref("member_id", "members", "member"),
                date("loan_date", v.dates("2021-01-04", TODAY), "loan date"),
                date("due_date", v.dates("2021-01-04", TODAY), "due date"),
                date("return_date", v.dates("2021-01-04", TODAY), "return date"),
                real("fine", v.reals(0.25, 12), "fine"),
            ),
            1600,
        ),
    ),
    hard=HARD,
)


def finish(sheet: Sheet, rng: random.Random) -> None:
    """Authors are grown when they publish; loans follow joining; a late return costs 0.25 a day."""
    sheet.edit("members", lambda row: mailbox(rng, row, "name"))
    authors, members = sheet.records("authors"), sheet.records("members")

    def book(row: dict[str, Value]) -> dict[str, Value]:
        born = authors[whole(row["author_id"])]["birth_year"]
        earliest = 1950 if born is None else max(1910, whole(born) + 22)
        return {"publication_year": min(2018, earliest + int(55 * rng.random()))}

    def loan(row: dict[str, Value]) -> dict[str, Value]:
        lent = between(rng, members[whole(row["member_id"])]["join_date"], "2024-06-24")
        due = after(lent, 21)
        back: str | None = after(
            lent, rng.choice((rng.randint(1, 21), rng.randint(5, 23), rng.randint(10, 60)))
        )
        if back is not None and (back > TODAY or rng.random() < 0.02):
            back = None
        late = 0 if back is None else (day(back) - day(due)).days
        return {
            "loan_date": lent,
            "due_date": due,
            "return_date": back,
            "fine": late * 0.25 if late > 0 else None,
        }

    sheet.edit("books", book)
    sheet.edit("loans", loan)


SHIPPED = Shipped(LIBRARY, finish)
