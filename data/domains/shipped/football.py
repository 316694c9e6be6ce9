"""A football league: clubs, players, referees, fixtures and injuries. Tables are in the singular,
keys are `id`."""

import random

from data.domains import values as v
from data.domains.lexicon import CITIES, STREET_HEADS, listed
from data.domains.shipped.parts import (
    Sheet,
    Shipped,
    category,
    date,
    integer,
    key,
    name,
    real,
    ref,
    text,
    whole,
)
from data.domains.spec import Domain, HardQuestion, Table, Value

HARD = (
    HardQuestion(
        "Which club won the most home fixtures in 2023?",
        """
        SELECT c.name
        FROM club AS c JOIN fixture AS f ON f.home_club_id = c.id
        WHERE f.match_date LIKE '2023-%' AND f.home_goals > f.away_goals
        GROUP BY c.id
        ORDER BY COUNT(*) DESC LIMIT 1
        """,
    ),
    HardQuestion(
        "With three points for a win and one for a draw, how many points does the most successful club have "
        "from all its home and away fixtures together?",
        """
        WITH results AS (SELECT home_club_id AS club_id, CASE WHEN home_goals > away_goals THEN 3 WHEN home_goals =
          away_goals THEN 1 ELSE 0 END AS points FROM fixture UNION ALL SELECT away_club_id, CASE WHEN away_goals >
          home_goals THEN 3 WHEN home_goals = away_goals THEN 1 ELSE 0 END FROM fixture) SELECT MAX(points)
        FROM (SELECT SUM(points) AS points FROM results GROUP BY club_id)
        """,
    ),
    HardQuestion(
        "How many players of each position have been injured more than once? Give position and number, with "
        "the positions in alphabetical order.",
        """
        SELECT p.position, COUNT(*)
        FROM player AS p
        WHERE (SELECT COUNT(*) FROM injury AS i WHERE i.player_id = p.id) > 1
        GROUP BY p.position
        ORDER BY p.position
        """,
    ),
    HardQuestion(
        "What is the total market value of the players of the club with the largest capacity, rounded to 2 decimals?",
        """
        SELECT ROUND(SUM(market_value), 2)
        FROM player
        WHERE club_id = (SELECT id FROM club ORDER BY capacity DESC LIMIT 1)
        """,
    ),
    HardQuestion(
        "Which referees have never been in charge of a fixture?",
        """
        SELECT name
        FROM referee
        WHERE id NOT IN (SELECT referee_id FROM fixture)
        """,
    ),
    HardQuestion(
        "The players of which club have lost the most days to injuries in total?",
        """
        SELECT c.name
        FROM club AS c JOIN player AS p ON p.club_id = c.id JOIN injury AS i ON i.player_id = p.id
        GROUP BY c.id
        ORDER BY SUM(i.days_out) DESC LIMIT 1
        """,
    ),
    HardQuestion(
        "How many fixtures were played between two clubs that both have a capacity above 40000?",
        """
        SELECT COUNT(*)
        FROM fixture AS f JOIN club AS h ON h.id = f.home_club_id JOIN club AS a ON a.id = f.away_club_id
        WHERE h.capacity > 40000 AND a.capacity > 40000
        """,
    ),
    HardQuestion(
        "Which club fills its stadium best at home, by average attendance as a share of capacity?",
        """
        SELECT c.name
        FROM club AS c JOIN fixture AS f ON f.home_club_id = c.id
        GROUP BY c.id
        ORDER BY AVG(1.0 * f.attendance / c.capacity) DESC LIMIT 1
        """,
    ),
    HardQuestion(
        "Among the nationalities with at least 20 players, which has the highest average market value?",
        """
        SELECT nationality
        FROM player
        GROUP BY nationality
        HAVING COUNT(*) >= 20
        ORDER BY AVG(market_value) DESC LIMIT 1
        """,
    ),
    HardQuestion(
        "Which clubs have no goalkeeper in their squad?",
        """
        SELECT c.name
        FROM club AS c
        WHERE NOT EXISTS (SELECT 1 FROM player AS p WHERE p.club_id = c.id AND p.position = 'goalkeeper')
        """,
    ),
    HardQuestion(
        "What was the largest attendance at a fixture that ended without a goal?",
        """
        SELECT MAX(attendance)
        FROM fixture
        WHERE home_goals = 0 AND away_goals = 0
        """,
    ),
    HardQuestion(
        "Who is the youngest player with a market value above the average of his own position?",
        """
        SELECT p.name
        FROM player AS p
        WHERE p.market_value > (SELECT AVG(q.market_value) FROM player AS q WHERE q.position = p.position)
        ORDER BY p.birth_date DESC LIMIT 1
        """,
    ),
)

FOOTBALL = Domain(
    db_id="football_league",
    title="A football league",
    tables=(
        Table(
            "club",
            "club",
            "clubs",
            (
                key("id"),
                name(
                    "name",
                    v.composed(
                        ("{city} {suffix}", "{city} {suffix}", "{prefix} {city}"),
                        unique=True,
                        city=[city for city in CITIES if " " not in city],
                        suffix=listed("United City Rovers Athletic Wanderers Town"),
                        prefix=listed("Real Sporting Dynamo Racing"),
                    ),
                ),
                text(
                    "stadium",
                    v.composed(
                        ("{head} {tail}",),
                        unique=True,
                        head=STREET_HEADS,
                        tail=listed("Park Stadium Arena Road Ground"),
                    ),
                    "stadium",
                ),
                integer("capacity", v.integers(6000, 62000), "capacity"),
                integer("founded_year", v.integers(1878, 1965), "founding year"),
            ),
            30,
        ),
        Table(
            "player",
            "player",
            "players",
            (
                key("id"),
                name("name", v.person_names()),
                ref("club_id", "club", "club", null=0.04),
                category(
                    "position",
                    v.choice(["goalkeeper", "defender", "midfielder", "forward"], [11, 34, 33, 22]),
                ),
                category("nationality", v.countries(22)),
                date(
                    "birth_date", v.dates("1986-01-01", "2006-06-30"), "birth date", "date of birth"
                ),
                integer("caps", v.integers(0, 96, null=0.05, skew=True)),
                real("market_value", v.reals(0.1, 70), "market value", "value"),
            ),
            640,
        ),
        Table(
            "referee",
            "referee",
            "referees",
            (
                key("id"),
                name("name", v.person_names(unique=True)),
                category("country", v.countries(8)),
                integer("experience_years", v.integers(1, 24), "years of experience"),
            ),
            32,
        ),
        Table(
            "fixture",
            "fixture",
            "fixtures",
            (
                key("id"),
                ref("home_club_id", "club", "home club"),
                ref("away_club_id", "club", "away club"),
                ref("referee_id", "referee", "referee"),
                date("match_date", v.dates("2022-08-06", "2024-05-25"), "match date"),
                integer("attendance", v.integers(1500, 62000, null=0.03)),
                integer(
                    "home_goals", v.choice([0, 1, 2, 3, 4, 5], [24, 32, 23, 13, 6, 2]), "home goals"
                ),
                integer(
                    "away_goals", v.choice([0, 1, 2, 3, 4, 5], [33, 33, 19, 10, 4, 1]), "away goals"
                ),
            ),
            560,
        ),
        Table(
            "injury",
            "injury",
            "injuries",
            (
                key("id"),
                ref("player_id", "player", "player"),
                category(
                    "body_part",
                    v.skewed_choice(
                        ["hamstring", "knee", "ankle", "groin", "shoulder", "calf", "foot", "head"]
                    ),
                    "body part",
                ),
                date("injury_date", v.dates("2022-07-01", "2024-05-20"), "injury date"),
                integer("days_out", v.integers(3, 240, null=0.07, skew=True), "lost days"),
            ),
            260,
        ),
    ),
    hard=HARD,
)


def finish(sheet: Sheet, rng: random.Random) -> None:
    """No club plays itself, and no crowd is larger than the stadium."""
    clubs = sheet.records("club")

    def fixture(row: dict[str, Value]) -> dict[str, Value]:
        home, away = whole(row["home_club_id"]), whole(row["away_club_id"])
        if home == away:
            away = away % len(clubs) + 1
        crowd = None
        if row["attendance"] is not None:
            crowd = int(
                whole(clubs[home]["capacity"]) * (0.45 + 0.55 * max(rng.random(), rng.random()))
            )
        return {"away_club_id": away, "attendance": crowd}

    sheet.edit("fixture", fixture)


SHIPPED = Shipped(FOOTBALL, finish)
