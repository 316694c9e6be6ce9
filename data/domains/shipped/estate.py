"""A real estate office: agents, owners, properties, buyers, viewings and offers."""

import random

from data.domains import values as v
from data.domains.shipped.parts import (
    Sheet,
    Shipped,
    after,
    between,
    category,
    date,
    integer,
    key,
    mailbox,
    name,
    number,
    real,
    ref,
    text,
    whole,
)
from data.domains.spec import Domain, HardQuestion, Table, Value

HARD = (
    HardQuestion(
        "Which agent has sold for the highest total, counting accepted offers on the agent's properties?",
        """
        SELECT a.agent_name
        FROM agents AS a JOIN properties AS p ON p.agent_id = a.agent_id JOIN offers AS o ON o.property_id =
          p.property_id
        WHERE o.status = 'accepted'
        GROUP BY a.agent_id
        ORDER BY SUM(o.amount) DESC LIMIT 1
        """,
    ),
    HardQuestion(
        "How many properties were sold above their asking price?",
        """
        SELECT COUNT(*)
        FROM properties AS p JOIN offers AS o ON o.property_id = p.property_id
        WHERE o.status = 'accepted' AND o.amount > p.asking_price
        """,
    ),
    HardQuestion(
        "For each property type, what is the average asking price per square meter of floor area? Give type "
        "and price, rounded to 2 decimals, the highest price first.",
        """
        SELECT property_type, ROUND(AVG(asking_price / floor_area), 2) AS price
        FROM properties
        WHERE floor_area IS NOT NULL
        GROUP BY property_type
        ORDER BY price DESC
        """,
    ),
    HardQuestion(
        "Which neighborhood has the most properties that nobody has viewed?",
        """
        SELECT neighborhood
        FROM properties
        WHERE property_id NOT IN (SELECT property_id FROM viewings)
        GROUP BY neighborhood
        ORDER BY COUNT(*) DESC LIMIT 1
        """,
    ),
    HardQuestion(
        "On average, how many days lie between the listing of a property and its accepted offer? Round to 1 decimal.",
        """
        SELECT ROUND(AVG(julianday(o.offer_date) - julianday(p.listing_date)), 1)
        FROM offers AS o JOIN properties AS p ON p.property_id = o.property_id
        WHERE o.status = 'accepted'
        """,
    ),
    HardQuestion(
        "How many buyers made an offer on a property that they had not viewed before?",
        """
        SELECT COUNT(DISTINCT o.buyer_id)
        FROM offers AS o
        WHERE NOT EXISTS (SELECT 1 FROM viewings AS v WHERE v.property_id = o.property_id AND v.buyer_id =
          o.buyer_id AND v.viewing_date <= o.offer_date)
        """,
    ),
    HardQuestion(
        "Which owners offer at least 7 properties?",
        """
        SELECT w.owner_name
        FROM owners AS w JOIN properties AS p ON p.owner_id = w.owner_id
        GROUP BY w.owner_id
        HAVING COUNT(*) >= 7
        """,
    ),
    HardQuestion(
        "How many offers are over the buyer's own budget?",
        """
        SELECT COUNT(*)
        FROM offers AS o JOIN buyers AS b ON b.buyer_id = o.buyer_id
        WHERE o.amount > b.budget
        """,
    ),
    HardQuestion(
        "What is the address of the property with the best average rating among those with at least 5 rated viewings?",
        """
        SELECT p.address
        FROM properties AS p JOIN viewings AS v ON v.property_id = p.property_id
        WHERE v.rating IS NOT NULL
        GROUP BY p.property_id
        HAVING COUNT(*) >= 5
        ORDER BY AVG(v.rating) DESC LIMIT 1
        """,
    ),
    HardQuestion(
        "For each office, what commission do its agents earn from accepted offers in total? The commission "
        "rate is a percentage of the amount. Give office and commission, rounded to 2 decimals, the highest "
        "first.",
        """
        SELECT a.office, ROUND(SUM(o.amount * a.commission_rate / 100), 2) AS commission
        FROM agents AS a JOIN properties AS p ON p.agent_id = a.agent_id JOIN offers AS o ON o.property_id =
          p.property_id
        WHERE o.status = 'accepted'
        GROUP BY a.office
        ORDER BY commission DESC
        """,
    ),
    HardQuestion(
        "What is the most expensive property of each type, by asking price? Give type and address, with the "
        "types in alphabetical order.",
        """
        WITH ranked AS (SELECT property_type, address, RANK() OVER (PARTITION BY property_type ORDER BY asking_price
          DESC) AS place FROM properties) SELECT property_type, address
        FROM ranked
        WHERE place = 1
        ORDER BY property_type
        """,
    ),
)

ESTATE = Domain(
    db_id="real_estate",
    title="A real estate office",
    tables=(
        Table(
            "agents",
            "agent",
            "agents",
            (
                key("agent_id"),
                name("agent_name", v.person_names(unique=True), "name", "agent name"),
                category(
                    "office",
                    v.choice(
                        ["Downtown", "Lakeshore", "Airport Road", "Old Mill"], [36, 28, 20, 16]
                    ),
                ),
                date("hire_date", v.dates("2008-01-15", "2023-08-31"), "hire date"),
                real(
                    "commission_rate", v.choice([2.0, 2.25, 2.5, 2.75, 3.0, 3.5]), "commission rate"
                ),
            ),
            38,
        ),
        Table(
            "owners",
            "owner",
            "owners",
            (
                key("owner_id"),
                name("owner_name", v.person_names(), "name", "owner name"),
                text("email", v.emails(null=0.1), "email", "email address"),
                text("phone", v.phones(null=0.06), "phone", "phone number"),
            ),
            200,
        ),
        Table(
            "properties",
            "property",
            "properties",
            (
                key("property_id"),
                name("address", v.streets(unique=True)),
                ref("owner_id", "owners", "owner"),
                ref("agent_id", "agents", "agent", null=0.04),
                category(
                    "neighborhood",
                    v.skewed_choice(
                        [
                            "Riverside",
                            "Old Town",
                            "Hillcrest",
                            "Lakeview",
                            "Maple Park",
                            "Station Quarter",
                            "Zlatá Ulica",
                        ]
                    ),
                ),
                category(
                    "property_type",
                    v.choice(
                        ["apartment", "house", "townhouse", "studio", "loft"], [42, 28, 14, 10, 6]
                    ),
                    "property type",
                    "type",
                ),
                integer("bedrooms", v.integers(0, 6), "bedrooms"),
                real("floor_area", v.even_reals(24, 320, 1, null=0.03), "floor area", "area"),
                real("asking_price", v.reals(80000, 1400000, 0), "asking price", "price"),
                date("listing_date", v.dates("2022-01-10", "2024-04-30"), "listing date"),
            ),
            440,
        ),
        Table(
            "buyers",
            "buyer",
            "buyers",
            (
                key("buyer_id"),
                name("buyer_name", v.person_names(), "name", "buyer name"),
                real("budget", v.even_reals(220000, 1500000, 0, null=0.08)),
                category(
                    "source",
                    v.choice(["website", "referral", "walk-in", "advert"], [44, 28, 16, 12]),
                ),
            ),
            260,
        ),
        Table(
            "viewings",
            "viewing",
            "viewings",
            (
                key("viewing_id"),
                ref("property_id", "properties", "property"),
                ref("buyer_id", "buyers", "buyer"),
                date("viewing_date", v.dates("2022-01-15", "2024-06-15"), "viewing date"),
                integer("rating", v.choice([1, 2, 3, 4, 5], [8, 16, 30, 30, 16], null=0.2)),
            ),
            1450,
        ),
        Table(
            "offers",
            "offer",
            "offers",
            (
                key("offer_id"),
                ref("property_id", "properties", "property"),
                ref("buyer_id", "buyers", "buyer"),
                date("offer_date", v.dates("2022-02-01", "2024-06-25"), "offer date"),
                real("amount", v.reals(80000, 1400000, 0), "amount"),
                category(
                    "status",
                    v.choice(["rejected", "accepted", "withdrawn", "pending"], [46, 24, 18, 12]),
                ),
            ),
            430,
        ),
    ),
    hard=HARD,
)
# euros a square meter
PER_METER = {"apartment": 3900, "house": 3100, "townhouse": 3400, "studio": 4500, "loft": 4800}


def finish(sheet: Sheet, rng: random.Random) -> None:
    """Prices follow type and area; viewings and offers follow the listing, at most one accepted
    offer a property."""

    def building(row: dict[str, Value]) -> dict[str, Value]:
        kind = str(row["property_type"])
        least, most = {
            "studio": (24, 45),
            "apartment": (45, 140),
            "loft": (60, 180),
            "townhouse": (80, 190),
            "house": (95, 320),
        }[kind]
        area = round(rng.uniform(least, most), 1)
        rooms = 0 if kind == "studio" else max(1, min(6, int(area / 34 + rng.random())))
        price = round(area * PER_METER[kind] * (0.75 + 0.6 * rng.random()) / 500) * 500.0
        return {
            "bedrooms": rooms,
            "floor_area": None if row["floor_area"] is None else area,
            "asking_price": price,
        }

    sheet.edit("owners", lambda row: mailbox(rng, row, "owner_name"))
    sheet.edit("properties", building)
    properties = sheet.records("properties")
    sold: set[int] = set()
    viewers: dict[int, list[int]] = {}

    def viewing(row: dict[str, Value]) -> dict[str, Value]:
        viewers.setdefault(whole(row["property_id"]), []).append(whole(row["buyer_id"]))
        listed = properties[whole(row["property_id"])]["listing_date"]
        return {"viewing_date": between(rng, listed, min("2024-06-15", after(listed, 120)))}

    def offer(row: dict[str, Value]) -> dict[str, Value]:
        number_ = whole(row["property_id"])
        listed, seen = properties[number_], viewers.get(number_)
        first = after(listed["listing_date"], 5)
        status = "rejected" if row["status"] == "accepted" and number_ in sold else row["status"]
        if status == "accepted":
            sold.add(number_)
        share = 0.96 + 0.1 * rng.random() if status == "accepted" else 0.8 + 0.2 * rng.random()
        return {
            "buyer_id": rng.choice(seen) if seen and rng.random() < 0.85 else row["buyer_id"],
            "offer_date": between(rng, first, min("2024-06-25", after(first, 150))),
            "amount": round(number(listed["asking_price"]) * share / 500) * 500.0,
            "status": status,
        }

    sheet.edit("viewings", viewing)
    sheet.edit("offers", offer)


SHIPPED = Shipped(ESTATE, finish, unseen=True)
