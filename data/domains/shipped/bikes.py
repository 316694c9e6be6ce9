"""A city bike rental: stations, bikes, riders, rentals and repairs."""

import random

from data.domains import values as v
from data.domains.lexicon import STREET_HEADS
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
    text,
    whole,
)
from data.domains.spec import Domain, HardQuestion, Table, Value

HARD = (
    HardQuestion(
        "Which rider has covered the longest distance in total?",
        """
        SELECT r.name
        FROM riders AS r JOIN rentals AS t ON t.rider_id = r.rider_id
        GROUP BY r.rider_id
        ORDER BY SUM(t.distance_km) DESC LIMIT 1
        """,
    ),
    HardQuestion(
        "The bikes of which district's stations have earned the most in rentals?",
        """
        SELECT s.district
        FROM stations AS s JOIN bikes AS b ON b.station_id = s.station_id JOIN rentals AS t ON t.bike_id = b.bike_id
        GROUP BY s.district
        ORDER BY SUM(t.cost) DESC LIMIT 1
        """,
    ),
    HardQuestion(
        "For each model, what do the repairs of a bike cost on average, over all bikes of the model, also "
        "those never repaired? Give model and cost, rounded to 2 decimals, the highest cost first.",
        """
        SELECT b.model, ROUND(SUM(COALESCE(p.cost, 0)) / COUNT(DISTINCT b.bike_id), 2) AS cost
        FROM bikes AS b LEFT JOIN repairs AS p ON p.bike_id = b.bike_id
        GROUP BY b.model
        ORDER BY cost DESC
        """,
    ),
    HardQuestion(
        "Which stations have no bike assigned to them?",
        """
        SELECT station_name
        FROM stations AS s
        WHERE NOT EXISTS (SELECT 1 FROM bikes AS b WHERE b.station_id = s.station_id)
        """,
    ),
    HardQuestion(
        "How many bikes have been rented more than 15 times and never been repaired?",
        """
        SELECT COUNT(*)
        FROM bikes AS b
        WHERE (SELECT COUNT(*) FROM rentals AS t WHERE t.bike_id = b.bike_id) > 15 AND b.bike_id NOT IN (SELECT
          bike_id FROM repairs)
        """,
    ),
    HardQuestion(
        "In which month of 2023 did rentals earn the most? Answer as YYYY-MM.",
        """
        SELECT strftime('%Y-%m', rental_date) AS month
        FROM rentals
        WHERE rental_date BETWEEN '2023-01-01' AND '2023-12-31'
        GROUP BY month
        ORDER BY SUM(cost) DESC LIMIT 1
        """,
    ),
    HardQuestion(
        "How many riders have rented a bike of every model?",
        """
        SELECT COUNT(*)
        FROM (SELECT t.rider_id FROM rentals AS t JOIN bikes AS b ON b.bike_id = t.bike_id GROUP BY t.rider_id
          HAVING COUNT(DISTINCT b.model) = (SELECT COUNT(DISTINCT model) FROM bikes))
        """,
    ),
    HardQuestion(
        "What is the average speed, in km per hour, of each plan's riders, taken as total distance over total "
        "time of the rentals with a known distance? Give plan and speed, rounded to 2 decimals, with the "
        "plans in alphabetical order.",
        """
        SELECT r.plan, ROUND(SUM(t.distance_km) * 60.0 / SUM(t.duration_minutes), 2)
        FROM riders AS r JOIN rentals AS t ON t.rider_id = r.rider_id
        WHERE t.distance_km IS NOT NULL
        GROUP BY r.plan
        ORDER BY r.plan
        """,
    ),
    HardQuestion(
        "Which mechanic has repaired the most different bikes?",
        """
        SELECT mechanic
        FROM repairs
        GROUP BY mechanic
        ORDER BY COUNT(DISTINCT bike_id) DESC LIMIT 1
        """,
    ),
    HardQuestion(
        "Which bikes have cost more in repairs than half of their purchase price? Give their serial numbers.",
        """
        SELECT b.serial_number
        FROM bikes AS b JOIN repairs AS p ON p.bike_id = b.bike_id
        GROUP BY b.bike_id
        HAVING SUM(p.cost) > b.purchase_price / 2
        """,
    ),
    HardQuestion(
        "How many rentals started within 7 days after a repair of the same bike?",
        """
        SELECT COUNT(*)
        FROM rentals AS t
        WHERE EXISTS (SELECT 1 FROM repairs AS p WHERE p.bike_id = t.bike_id AND julianday(t.rental_date) -
          julianday(p.repair_date) BETWEEN 0 AND 7)
        """,
    ),
)

BIKES = Domain(
    db_id="bike_rental",
    title="A city bike rental",
    tables=(
        Table(
            "stations",
            "station",
            "stations",
            (
                key("station_id"),
                name(
                    "station_name",
                    v.composed(
                        (
                            "{head} Square",
                            "{head} Market",
                            "{head} Bridge",
                            "{head} Park",
                            "{head} Gate",
                        ),
                        unique=True,
                        head=STREET_HEADS,
                    ),
                    "name",
                    "station name",
                ),
                category(
                    "district",
                    v.skewed_choice(
                        ["Center", "Northside", "Eastend", "Harbor", "Westhill", "Campus"]
                    ),
                ),
                integer("docks", v.choice([10, 12, 14, 15, 16, 18, 20, 24, 30, 36]), "docks"),
                date("opening_date", v.dates("2017-04-01", "2023-10-31"), "opening date"),
            ),
            48,
        ),
        Table(
            "bikes",
            "bike",
            "bikes",
            (
                key("bike_id"),
                name("serial_number", v.codes("BK-", 4), "serial number"),
                ref("station_id", "stations", "station", null=0.08),
                category(
                    "model",
                    v.choice(
                        ["City One", "City Two", "Cargo", "Electric Plus", "Tandem"],
                        [38, 26, 10, 21, 5],
                    ),
                ),
                date("purchase_date", v.dates("2017-04-01", "2022-02-15"), "purchase date"),
                real("purchase_price", v.even_reals(320, 2100), "price", "purchase price"),
            ),
            270,
        ),
        Table(
            "riders",
            "rider",
            "riders",
            (
                key("rider_id"),
                name("name", v.person_names()),
                category(
                    "plan", v.choice(["day pass", "monthly", "annual", "student"], [28, 34, 24, 14])
                ),
                category("home_city", v.cities(7, null=0.05), "city", "home city"),
                integer(
                    "birth_year", v.integers(1950, 2007, null=0.07), "birth year", "year of birth"
                ),
                date("signup_date", v.dates("2019-01-05", "2024-03-31"), "signup date"),
                text("phone", v.phones(null=0.1), "phone", "phone number"),
            ),
            440,
        ),
        Table(
            "rentals",
            "rental",
            "rentals",
            (
                key("rental_id"),
                ref("bike_id", "bikes", "bike"),
                ref("rider_id", "riders", "rider"),
                date("rental_date", v.dates("2022-03-01", "2024-05-31"), "rental date"),
                integer(
                    "duration_minutes",
                    v.integers(3, 240, skew=True),
                    "duration",
                    "duration in minutes",
                ),
                real("distance_km", v.reals(0.3, 38, 1, null=0.05), "distance", "distance in km"),
                real("cost", v.reals(0, 20)),
            ),
            3300,
        ),
        Table(
            "repairs",
            "repair",
            "repairs",
            (
                key("repair_id"),
                ref("bike_id", "bikes", "bike"),
                date("repair_date", v.dates("2022-01-10", "2024-05-31"), "repair date"),
                category(
                    "problem",
                    v.skewed_choice(
                        ["flat tire", "brakes", "chain", "gears", "lights", "saddle", "battery"]
                    ),
                ),
                category("mechanic", v.choice(["Marta", "Jonas", "Ingrid", "Søren", "Paco"])),
                real("cost", v.prices(4, 190, null=0.05)),
            ),
            400,
        ),
    ),
    hard=HARD,
)
# euros a minute
RATE = {"City One": 0.07, "City Two": 0.08, "Cargo": 0.15, "Electric Plus": 0.18, "Tandem": 0.12}


def finish(sheet: Sheet, rng: random.Random) -> None:
    """The price of a bike and of a minute follows its model; riders ride after they sign up, at 8
    to 20 km/h."""
    base = {"City One": 390, "City Two": 520, "Cargo": 1450, "Electric Plus": 1750, "Tandem": 980}
    sheet.edit(
        "bikes",
        lambda row: {
            "purchase_price": round(base[str(row["model"])] * (0.9 + 0.25 * rng.random()), 2)
        },
    )
    bikes, riders = sheet.records("bikes"), sheet.records("riders")

    def rental(row: dict[str, Value]) -> dict[str, Value]:
        minutes = whole(row["duration_minutes"])
        distance = (
            None if row["distance_km"] is None else round(minutes / 60 * (8 + 12 * rng.random()), 1)
        )
        joined = max("2022-03-01", str(riders[whole(row["rider_id"])]["signup_date"]))
        cost = round(1.0 + minutes * RATE[str(bikes[whole(row["bike_id"])]["model"])], 2)
        return {
            "distance_km": distance,
            "rental_date": between(rng, joined, "2024-05-31"),
            "cost": cost,
        }

    def repair(row: dict[str, Value]) -> dict[str, Value]:
        electric = bikes[whole(row["bike_id"])]["model"] == "Electric Plus"
        return {} if electric or row["problem"] != "battery" else {"problem": "saddle"}

    sheet.edit("rentals", rental)
    sheet.edit("repairs", repair)


SHIPPED = Shipped(BIKES, finish, unseen=True)
