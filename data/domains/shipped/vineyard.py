"""A wine region: estates, grapes, wines, tasters, tastings and sales. Columns carry the table's
name."""

import random

from data.domains import values as v
from data.domains.lexicon import LAST_NAMES, STREET_HEADS, listed
from data.domains.shipped.parts import (
    Sheet,
    Shipped,
    between,
    category,
    date,
    integer,
    key,
    name,
    number,
    real,
    ref,
    whole,
)
from data.domains.spec import Domain, HardQuestion, Table, Value

# name, color, country of origin
GRAPES: tuple[tuple[str, str, str], ...] = (
    ("Albariño", "white", "Spain"),
    ("Barbera", "red", "Italy"),
    ("Blaufränkisch", "red", "Austria"),
    ("Cabernet Franc", "red", "France"),
    ("Cabernet Sauvignon", "red", "France"),
    ("Carménère", "red", "France"),
    ("Chardonnay", "white", "France"),
    ("Chenin Blanc", "white", "France"),
    ("Furmint", "white", "Hungary"),
    ("Gamay", "red", "France"),
    ("Garganega", "white", "Italy"),
    ("Gewürztraminer", "white", "Italy"),
    ("Grenache", "red", "Spain"),
    ("Grüner Veltliner", "white", "Austria"),
    ("Malbec", "red", "France"),
    ("Merlot", "red", "France"),
    ("Mourvèdre", "red", "Spain"),
    ("Muscat", "white", "Greece"),
    ("Nebbiolo", "red", "Italy"),
    ("Pinot Blanc", "white", "France"),
    ("Pinot Noir", "red", "France"),
    ("Pinotage", "red", "South Africa"),
    ("Primitivo", "red", "Croatia"),
    ("Riesling", "white", "Germany"),
    ("Sangiovese", "red", "Italy"),
    ("Sauvignon Blanc", "white", "France"),
    ("Sémillon", "white", "France"),
    ("Syrah", "red", "France"),
    ("Tempranillo", "red", "Spain"),
    ("Touriga Nacional", "red", "Portugal"),
    ("Verdejo", "white", "Spain"),
    ("Viognier", "white", "France"),
    ("Zweigelt", "red", "Austria"),
)
STREETS = STREET_HEADS

HARD = (
    HardQuestion(
        "Which estate's wines have the highest average number of points, among the estates with at least 20 "
        "tastings that gave points?",
        """
        SELECT e.estate_name
        FROM estates AS e JOIN wines AS w ON w.estate_id = e.estate_id JOIN tastings AS t ON t.wine_id = w.wine_id
        WHERE t.points IS NOT NULL
        GROUP BY e.estate_id
        HAVING COUNT(*) >= 20
        ORDER BY AVG(t.points) DESC LIMIT 1
        """,
    ),
    HardQuestion(
        "Which grape's wines have sold the most bottles?",
        """
        SELECT g.grape_name
        FROM grapes AS g JOIN wines AS w ON w.grape_id = g.grape_id JOIN sales AS s ON s.wine_id = w.wine_id
        GROUP BY g.grape_id
        ORDER BY SUM(s.bottles) DESC LIMIT 1
        """,
    ),
    HardQuestion(
        "For each region, what were the sales of 2023 worth, as bottles times bottle price less the discount "
        "percentage? Give region and value, rounded to 2 decimals, the highest value first.",
        """
        SELECT e.region, ROUND(SUM(s.bottles * w.bottle_price * (1 - COALESCE(s.discount, 0) / 100)), 2) AS value
        FROM estates AS e JOIN wines AS w ON w.estate_id = e.estate_id JOIN sales AS s ON s.wine_id = w.wine_id
        WHERE s.sale_date BETWEEN '2023-01-01' AND '2023-12-31'
        GROUP BY e.region
        ORDER BY value DESC
        """,
    ),
    HardQuestion(
        "How many wines have been tasted but never sold?",
        """
        SELECT COUNT(*)
        FROM (SELECT wine_id FROM tastings EXCEPT SELECT wine_id FROM sales)
        """,
    ),
    HardQuestion(
        "Which taster gives the most generous points, that is, the highest average over at least 15 tastings "
        "with points?",
        """
        SELECT r.taster_name
        FROM tasters AS r JOIN tastings AS t ON t.taster_id = r.taster_id
        WHERE t.points IS NOT NULL
        GROUP BY r.taster_id
        HAVING COUNT(*) >= 15
        ORDER BY AVG(t.points) DESC LIMIT 1
        """,
    ),
    HardQuestion(
        "Which estates made wine of both red and white grapes in each of at least two vintage years?",
        """
        SELECT e.estate_name
        FROM estates AS e
        WHERE (SELECT COUNT(DISTINCT w.vintage_year) FROM wines AS w JOIN grapes AS g ON g.grape_id = w.grape_id
          WHERE w.estate_id = e.estate_id AND g.color = 'red' AND w.vintage_year IN (SELECT x.vintage_year FROM
          wines AS x JOIN grapes AS h ON h.grape_id = x.grape_id WHERE x.estate_id = e.estate_id AND h.color =
          'white')) >= 2
        """,
    ),
    HardQuestion(
        "How many wines cost more than twice the average bottle price of their own grape?",
        """
        SELECT COUNT(*)
        FROM wines AS w
        WHERE w.bottle_price > 2 * (SELECT AVG(x.bottle_price) FROM wines AS x WHERE x.grape_id = w.grape_id)
        """,
    ),
    HardQuestion(
        "What is the average age of a wine, in calendar years from vintage to tasting, over all tastings? "
        "Round to 2 decimals.",
        """
        SELECT ROUND(AVG(CAST(strftime('%Y', t.tasting_date) AS INTEGER) - w.vintage_year), 2)
        FROM tastings AS t JOIN wines AS w ON w.wine_id = t.wine_id
        """,
    ),
    HardQuestion(
        "Which grapes are not used by any wine?",
        """
        SELECT grape_name
        FROM grapes
        WHERE grape_id NOT IN (SELECT grape_id FROM wines WHERE grape_id IS NOT NULL)
        """,
    ),
    HardQuestion(
        "In each channel, which wine has sold the most bottles? Give channel and wine, with the channels in "
        "alphabetical order.",
        """
        WITH sold AS (SELECT s.channel AS channel, w.wine_name AS wine, SUM(s.bottles) AS bottles FROM sales AS s
          JOIN wines AS w ON w.wine_id = s.wine_id GROUP BY s.channel, w.wine_id), ranked AS (SELECT channel, wine,
          RANK() OVER (PARTITION BY channel ORDER BY bottles DESC) AS place FROM sold) SELECT channel, wine
        FROM ranked
        WHERE place = 1
        ORDER BY channel
        """,
    ),
    HardQuestion(
        "What is the name of the most expensive wine that never scored below 85 points and has at least 3 scores?",
        """
        SELECT w.wine_name
        FROM wines AS w JOIN tastings AS t ON t.wine_id = w.wine_id
        WHERE w.bottle_price IS NOT NULL
        GROUP BY w.wine_id
        HAVING COUNT(t.points) >= 3 AND MIN(t.points) >= 85
        ORDER BY w.bottle_price DESC LIMIT 1
        """,
    ),
)

VINEYARD = Domain(
    db_id="vineyard",
    title="The wines of a region",
    tables=(
        Table(
            "estates",
            "estate",
            "estates",
            (
                key("estate_id"),
                name(
                    "estate_name",
                    v.composed(
                        (
                            "Château {last}",
                            "Domaine {last}",
                            "{head} Ridge Estate",
                            "{head} Hill Winery",
                            "Casa {last}",
                        ),
                        unique=True,
                        last=LAST_NAMES,
                        head=STREETS,
                    ),
                    "name",
                    "estate name",
                ),
                category(
                    "region",
                    v.choice(
                        ["North Valley", "South Valley", "Lakeside", "High Slopes", "Coast"],
                        [28, 24, 20, 16, 12],
                    ),
                ),
                real("hectares", v.reals(4, 120, 1), "hectares"),
                integer("founded_year", v.integers(1790, 1998, null=0.05), "founding year"),
            ),
            34,
        ),
        Table(
            "grapes",
            "grape",
            "grapes",
            (
                key("grape_id"),
                name("grape_name", v.given([row[0] for row in GRAPES]), "name", "grape name"),
                category("color", v.given([row[1] for row in GRAPES])),
                category(
                    "origin_country",
                    v.given([row[2] for row in GRAPES]),
                    "country of origin",
                    "origin country",
                ),
            ),
            len(GRAPES),
        ),
        Table(
            "wines",
            "wine",
            "wines",
            (
                key("wine_id"),
                name(
                    "wine_name",
                    v.composed(
                        (
                            "{head} {style}",
                            "{mood} {head}",
                            "{mood} {style}",
                            "{head} {mood} {style}",
                        ),
                        unique=True,
                        head=STREETS,
                        style=listed(
                            "Reserve Cuvée Selection Vintage Barrel Harvest Terrace Crianza"
                        ),
                        mood=listed("Black Old Grand Petit Royal Secret Wild Stone Golden First"),
                    ),
                    "name",
                    "wine name",
                ),
                ref("estate_id", "estates", "estate"),
                ref("grape_id", "grapes", "grape", null=0.05),
                integer("vintage_year", v.integers(2005, 2020), "vintage year", "vintage"),
                real(
                    "alcohol", v.even_reals(9.5, 15.5, 1), "alcohol percentage", "alcohol content"
                ),
                real("bottle_price", v.prices(6, 140, null=0.03), "bottle price", "price"),
            ),
            250,
        ),
        Table(
            "tasters",
            "taster",
            "tasters",
            (
                key("taster_id"),
                name("taster_name", v.person_names(unique=True), "name", "taster name"),
                category("country", v.countries(9)),
                integer("experience_years", v.integers(1, 38), "years of experience"),
            ),
            42,
        ),
        Table(
            "tastings",
            "tasting",
            "tastings",
            (
                key("tasting_id"),
                ref("wine_id", "wines", "wine"),
                ref("taster_id", "tasters", "taster"),
                date("tasting_date", v.dates("2021-03-01", "2024-04-30"), "tasting date"),
                integer("points", v.integers(72, 100, null=0.04), "points"),
            ),
            1350,
        ),
        Table(
            "sales",
            "sale",
            "sales",
            (
                key("sale_id"),
                ref("wine_id", "wines", "wine"),
                date("sale_date", v.dates("2022-01-02", "2024-05-31"), "sale date"),
                category(
                    "channel",
                    v.choice(["cellar door", "web", "restaurant", "export"], [34, 28, 24, 14]),
                ),
                integer("bottles", v.integers(1, 120, skew=True), "bottles"),
                real(
                    "discount",
                    v.choice([5.0, 7.5, 10.0, 12.5, 15.0], null=0.68),
                    "discount",
                    "discount percentage",
                ),
            ),
            1250,
        ),
    ),
    hard=HARD,
)


def finish(sheet: Sheet, rng: random.Random) -> None:
    """Dearer and older wines score a little higher; no wine is tasted before the year after its
    vintage."""
    sheet.edit(
        "wines",
        lambda row: (
            {}
            if row["bottle_price"] is None
            else {
                "bottle_price": round(
                    number(row["bottle_price"])
                    + (2022 - whole(row["vintage_year"])) * rng.choice((0, 0.5, 1, 2)),
                    2,
                )
            }
        ),
    )
    wines = sheet.records("wines")

    def tasting(row: dict[str, Value]) -> dict[str, Value]:
        wine = wines[whole(row["wine_id"])]
        points = row["points"]
        if points is not None:
            points = min(
                100,
                70
                + int(number(wine["bottle_price"] or 20) / 8)
                + int(22 * max(rng.random(), rng.random())),
            )
        first = max(str(row["tasting_date"]), f"{whole(wine['vintage_year']) + 1}-03-01")
        return {"points": points, "tasting_date": between(rng, first, "2024-04-30")}

    sheet.edit("tastings", tasting)


SHIPPED = Shipped(VINEYARD, finish, unseen=True)
