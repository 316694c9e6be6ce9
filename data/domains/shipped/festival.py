"""A film festival: directors, films, cinemas, screenings, reviews and awards. Tables are in the
singular."""

import random

from data.domains import values as v
from data.domains.lexicon import listed
from data.domains.shipped.parts import (
    Sheet,
    Shipped,
    between,
    category,
    date,
    integer,
    key,
    name,
    real,
    ref,
    whole,
)
from data.domains.spec import Domain, HardQuestion, Table, Value

HARD = (
    HardQuestion(
        "Which film earned the most at the box office, as tickets sold times ticket price?",
        """
        SELECT f.title
        FROM film AS f JOIN screening AS s ON s.film_id = f.film_id
        GROUP BY f.film_id
        ORDER BY SUM(s.tickets_sold * s.ticket_price) DESC LIMIT 1
        """,
    ),
    HardQuestion(
        "Which directors have won awards in at least three different years?",
        """
        SELECT d.name
        FROM director AS d JOIN film AS f ON f.director_id = d.director_id JOIN award AS a ON a.film_id = f.film_id
        GROUP BY d.director_id
        HAVING COUNT(DISTINCT a.award_year) >= 3
        """,
    ),
    HardQuestion(
        "Among the films with at least 6 scores, which has the highest average score?",
        """
        SELECT f.title
        FROM film AS f JOIN review AS r ON r.film_id = f.film_id
        WHERE r.score IS NOT NULL
        GROUP BY f.film_id
        HAVING COUNT(*) >= 6
        ORDER BY AVG(r.score) DESC LIMIT 1
        """,
    ),
    HardQuestion(
        "For each district, what percentage of the seats on offer was sold, over all its screenings? Give "
        "district and percentage, rounded to 1 decimal, the highest first.",
        """
        SELECT c.district, ROUND(100.0 * SUM(s.tickets_sold) / SUM(c.seats), 1) AS share
        FROM cinema AS c JOIN screening AS s ON s.cinema_id = c.cinema_id
        GROUP BY c.district
        ORDER BY share DESC
        """,
    ),
    HardQuestion(
        "How many films have won an award but were never screened at this festival?",
        """
        SELECT COUNT(*)
        FROM (SELECT film_id FROM award EXCEPT SELECT film_id FROM screening)
        """,
    ),
    HardQuestion(
        "Which critic is the harshest, that is, gives the lowest average score?",
        """
        SELECT critic
        FROM review
        GROUP BY critic
        ORDER BY AVG(score) ASC LIMIT 1
        """,
    ),
    HardQuestion(
        "How many films were reviewed before their first screening?",
        """
        SELECT COUNT(*)
        FROM film AS f
        WHERE (SELECT MIN(r.review_date) FROM review AS r WHERE r.film_id = f.film_id) < (SELECT
          MIN(s.screening_date) FROM screening AS s WHERE s.film_id = f.film_id)
        """,
    ),
    HardQuestion(
        "On which day of the festival were the most tickets sold? Answer as YYYY-MM-DD.",
        """
        SELECT screening_date
        FROM screening
        GROUP BY screening_date
        ORDER BY SUM(tickets_sold) DESC LIMIT 1
        """,
    ),
    HardQuestion(
        "Which film of each genre had the largest budget? Give genre and title, with the genres in alphabetical order.",
        """
        WITH ranked AS (SELECT genre, title, RANK() OVER (PARTITION BY genre ORDER BY budget DESC) AS place FROM
          film WHERE budget IS NOT NULL) SELECT genre, title
        FROM ranked
        WHERE place = 1
        ORDER BY genre
        """,
    ),
    HardQuestion(
        "Which directors with at least 4 films have never won an award?",
        """
        SELECT d.name
        FROM director AS d JOIN film AS f ON f.director_id = d.director_id
        WHERE d.director_id NOT IN (SELECT g.director_id FROM film AS g JOIN award AS a ON a.film_id = g.film_id)
        GROUP BY d.director_id
        HAVING COUNT(*) >= 4
        """,
    ),
    HardQuestion(
        "How much prize money have documentaries won in total?",
        """
        SELECT SUM(a.prize_money)
        FROM award AS a JOIN film AS f ON f.film_id = a.film_id
        WHERE f.genre = 'documentary'
        """,
    ),
)

FESTIVAL = Domain(
    db_id="film_festival",
    title="A film festival",
    tables=(
        Table(
            "director",
            "director",
            "directors",
            (
                key("director_id"),
                name("name", v.person_names(unique=True)),
                category("country", v.countries(15)),
                integer(
                    "birth_year", v.integers(1938, 1996, null=0.06), "birth year", "year of birth"
                ),
            ),
            84,
        ),
        Table(
            "film",
            "film",
            "films",
            (
                key("film_id"),
                name(
                    "title",
                    v.composed(
                        (
                            "The {mood} {role}",
                            "{role}s of {place}",
                            "{time} in {place}",
                            "{mood} {time}",
                            "The {role}",
                            "One {role} in {place}",
                            "{mood} Hearts",
                            "{place}, {year}",
                        ),
                        unique=True,
                        mood=listed(
                            "Lonely Blind Crooked Electric Fallen Gentle Invisible Restless Sleepless Stolen Wild"
                        ),
                        role=listed(
                            "Swimmer Tailor Gardener Stranger Boxer Pianist Smuggler Astronaut Beekeeper Nun Juggler"
                        ),
                        place=listed(
                            "Trieste Odessa Dakar Macau Łódź Valparaíso Tangier Bruges Manaus Nagoya Cork Tbilisi"
                        ),
                        time=listed("Midnight Winter Sunday Dawn August Twilight Harvest Autumn"),
                        year=listed("1943 1956 1968 1974 1989 1999"),
                    ),
                ),
                ref("director_id", "director", "director"),
                category(
                    "genre",
                    v.skewed_choice(
                        [
                            "drama",
                            "comedy",
                            "documentary",
                            "thriller",
                            "animation",
                            "horror",
                            "romance",
                        ]
                    ),
                ),
                integer("runtime_minutes", v.integers(62, 214), "runtime", "runtime in minutes"),
                integer("release_year", v.integers(2016, 2024), "release year"),
                real("budget", v.reals(90000, 32000000, 0, null=0.12)),
            ),
            176,
        ),
        Table(
            "cinema",
            "cinema",
            "cinemas",
            (
                key("cinema_id"),
                name(
                    "name",
                    v.composed(
                        ("{head} Cinema", "Cinema {head}", "The {head}"),
                        unique=True,
                        head=listed(
                            "Rialto Odeon Apollo Lumière Capitol Astor Rex Metropol Bijou Eden Ritz Savoy Pathé "
                            "Kinema Aurora Scala Vista Majestic Orpheum"
                        ),
                    ),
                ),
                category(
                    "district",
                    v.choice(
                        ["Old Town", "Riverside", "Harbor", "University", "Northgate"],
                        [30, 24, 18, 16, 12],
                    ),
                ),
                integer("seats", v.integers(48, 620), "seats"),
            ),
            31,
        ),
        Table(
            "screening",
            "screening",
            "screenings",
            (
                key("screening_id"),
                ref("film_id", "film", "film"),
                ref("cinema_id", "cinema", "cinema"),
                date("screening_date", v.dates("2024-05-10", "2024-05-26"), "screening date"),
                real(
                    "ticket_price",
                    v.choice([7.5, 9.0, 10.0, 12.5, 15.0, 20.0], [18, 28, 22, 16, 10, 6]),
                    "ticket price",
                    "price",
                ),
                integer("tickets_sold", v.integers(0, 620), "sold tickets"),
            ),
            520,
        ),
        Table(
            "review",
            "review",
            "reviews",
            (
                key("review_id"),
                ref("film_id", "film", "film"),
                category(
                    "critic",
                    v.skewed_choice(
                        [
                            "Ana Pereira",
                            "Bjørn Dahl",
                            "Clara Weiss",
                            "Dev Mehta",
                            "Elif Şahin",
                            "Felix Grant",
                            "Greta Holm",
                            "Hugo Marsh",
                            "Ivo Novak",
                            "June Park",
                        ]
                    ),
                ),
                real("score", v.even_reals(2.0, 10.0, 1, null=0.04)),
                date("review_date", v.dates("2024-05-10", "2024-06-15"), "review date"),
            ),
            940,
        ),
        Table(
            "award",
            "award",
            "awards",
            (
                key("award_id"),
                ref("film_id", "film", "film"),
                category(
                    "prize",
                    v.choice(
                        [
                            "Best Film",
                            "Best Director",
                            "Best Actor",
                            "Best Actress",
                            "Best Screenplay",
                            "Audience Prize",
                            "Jury Prize",
                        ]
                    ),
                ),
                integer("award_year", v.integers(2016, 2024), "award year", "year"),
                real(
                    "prize_money",
                    v.choice([2500.0, 5000.0, 7500.0, 10000.0, 15000.0, 25000.0], null=0.22),
                    "prize money",
                ),
            ),
            64,
        ),
    ),
    hard=HARD,
)


def finish(sheet: Sheet, rng: random.Random) -> None:
    """No screening sells more tickets than there are seats; awards follow the release."""
    films, cinemas = sheet.records("film"), sheet.records("cinema")

    def screening(row: dict[str, Value]) -> dict[str, Value]:
        seats = whole(cinemas[whole(row["cinema_id"])]["seats"])
        return {"tickets_sold": min(seats, int(seats * 1.08 * (0.2 + 0.8 * rng.random())))}

    def award(row: dict[str, Value]) -> dict[str, Value]:
        return {
            "award_year": rng.randint(whole(films[whole(row["film_id"])]["release_year"]), 2024)
        }

    def review(row: dict[str, Value]) -> dict[str, Value]:
        return {"review_date": between(rng, "2024-05-10", row["review_date"])}

    sheet.edit("screening", screening)
    sheet.edit("award", award)
    sheet.edit("review", review)


SHIPPED = Shipped(FESTIVAL, finish, unseen=True)
