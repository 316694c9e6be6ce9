"""An airline that flies from one home airport: destinations, aircraft, flights, passengers and
tickets."""

import random

from data.domains import values as v
from data.domains.shipped.parts import (
    Sheet,
    Shipped,
    after,
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

# code, city, country, distance from the home airport (Vienna) in km
AIRPORTS: tuple[tuple[str, str, str, int], ...] = (
    ("AMS", "Amsterdam", "Netherlands", 960),
    ("ATH", "Athens", "Greece", 1250),
    ("ARN", "Stockholm", "Sweden", 1265),
    ("BCN", "Barcelona", "Spain", 1365),
    ("BER", "Berlin", "Germany", 540),
    ("BGO", "Bergen", "Norway", 1545),
    ("BRU", "Brussels", "Belgium", 940),
    ("BUD", "Budapest", "Hungary", 220),
    ("CAI", "Cairo", "Egypt", 2385),
    ("CDG", "Paris", "France", 1035),
    ("CMN", "Casablanca", "Morocco", 2480),
    ("CPH", "Copenhagen", "Denmark", 880),
    ("DUB", "Dublin", "Ireland", 1685),
    ("DBV", "Dubrovnik", "Croatia", 630),
    ("EDI", "Edinburgh", "United Kingdom", 1600),
    ("FCO", "Rome", "Italy", 775),
    ("FRA", "Frankfurt", "Germany", 620),
    ("GDN", "Gdańsk", "Poland", 720),
    ("GRU", "São Paulo", "Brazil", 9970),
    ("GVA", "Geneva", "Switzerland", 805),
    ("HAM", "Hamburg", "Germany", 765),
    ("HEL", "Helsinki", "Finland", 1470),
    ("ICN", "Seoul", "South Korea", 8275),
    ("IST", "Istanbul", "Turkey", 1255),
    ("JFK", "New York", "United States", 6810),
    ("JNB", "Johannesburg", "South Africa", 8330),
    ("KEF", "Reykjavík", "Iceland", 2885),
    ("KRK", "Kraków", "Poland", 330),
    ("LHR", "London", "United Kingdom", 1275),
    ("LIS", "Lisbon", "Portugal", 2295),
    ("LYS", "Lyon", "France", 885),
    ("MAD", "Madrid", "Spain", 1810),
    ("MUC", "Munich", "Germany", 355),
    ("MXP", "Milan", "Italy", 635),
    ("NAP", "Naples", "Italy", 840),
    ("NBO", "Nairobi", "Kenya", 5800),
    ("NCE", "Nice", "France", 905),
    ("NRT", "Tokyo", "Japan", 9125),
    ("OPO", "Porto", "Portugal", 2090),
    ("OSL", "Oslo", "Norway", 1355),
    ("OTP", "Bucharest", "Romania", 830),
    ("PMI", "Palma", "Spain", 1310),
    ("PRG", "Prague", "Czechia", 270),
    ("RIX", "Riga", "Latvia", 1105),
    ("SIN", "Singapore", "Singapore", 9680),
    ("SKG", "Thessaloniki", "Greece", 965),
    ("SOF", "Sofia", "Bulgaria", 810),
    ("SPU", "Split", "Croatia", 520),
    ("TLL", "Tallinn", "Estonia", 1385),
    ("TLV", "Tel Aviv", "Israel", 2360),
    ("TUN", "Tunis", "Tunisia", 1340),
    ("VCE", "Venice", "Italy", 435),
    ("VLC", "Valencia", "Spain", 1595),
    ("VNO", "Vilnius", "Lithuania", 955),
    ("WAW", "Warsaw", "Poland", 560),
    ("XRY", "Jerez", "Spain", 2200),
    ("YUL", "Montréal", "Canada", 6450),
    ("ZAG", "Zagreb", "Croatia", 265),
    ("ZRH", "Zürich", "Switzerland", 600),
)
MODELS = {
    "Airbus A320": 180,
    "Airbus A321": 212,
    "Boeing 737": 168,
    "Embraer 195": 120,
    "Dash 8": 76,
    "Boeing 777": 306,
}

HARD = (
    HardQuestion(
        "Flights to which country have brought in the most in fares?",
        """
        SELECT a.country
        FROM airports AS a JOIN flights AS f ON f.airport_id = a.airport_id JOIN tickets AS t ON t.flight_id =
          f.flight_id
        GROUP BY a.country
        ORDER BY SUM(t.fare) DESC LIMIT 1
        """,
    ),
    HardQuestion(
        "Which passenger has flown the most kilometers, counting the distance of each ticket's flight once "
        "and leaving out cancelled flights?",
        """
        SELECT p.full_name
        FROM passengers AS p JOIN tickets AS t ON t.passenger_id = p.passenger_id JOIN flights AS f ON f.flight_id =
          t.flight_id JOIN airports AS a ON a.airport_id = f.airport_id
        WHERE f.status <> 'cancelled'
        GROUP BY p.passenger_id
        ORDER BY SUM(a.distance_km) DESC LIMIT 1
        """,
    ),
    HardQuestion(
        "Which aircraft models have an average delay of more than 28 minutes over their flights with a known "
        "delay? Give model and average, rounded to 1 decimal, the longest delay first.",
        """
        SELECT c.model, ROUND(AVG(f.delay_minutes), 1) AS delay
        FROM aircraft AS c JOIN flights AS f ON f.aircraft_id = c.aircraft_id
        GROUP BY c.model
        HAVING AVG(f.delay_minutes) > 28
        ORDER BY delay DESC
        """,
    ),
    HardQuestion(
        "To which cities were there flights until the end of 2023 but none after it?",
        """
        SELECT city
        FROM airports
        WHERE airport_id IN (SELECT airport_id FROM flights WHERE departure_date <= '2023-12-31') AND airport_id NOT
          IN (SELECT airport_id FROM flights WHERE departure_date > '2023-12-31')
        """,
    ),
    HardQuestion(
        "How many passengers have flown in all three cabins?",
        """
        SELECT COUNT(*)
        FROM (SELECT passenger_id FROM tickets GROUP BY passenger_id HAVING COUNT(DISTINCT cabin) = 3)
        """,
    ),
    HardQuestion(
        "On average, how many days before departure are business tickets booked? Round to 1 decimal.",
        """
        SELECT ROUND(AVG(julianday(f.departure_date) - julianday(t.booking_date)), 1)
        FROM tickets AS t JOIN flights AS f ON f.flight_id = t.flight_id
        WHERE t.cabin = 'business'
        """,
    ),
    HardQuestion(
        "Which flight carried the most bags in total?",
        """
        SELECT f.flight_number
        FROM flights AS f JOIN tickets AS t ON t.flight_id = f.flight_id
        GROUP BY f.flight_id
        ORDER BY SUM(t.bags) DESC LIMIT 1
        """,
    ),
    HardQuestion(
        "In which month of 2023 was the share of cancelled flights the highest? Answer as YYYY-MM.",
        """
        SELECT strftime('%Y-%m', departure_date) AS month
        FROM flights
        WHERE departure_date LIKE '2023-%'
        GROUP BY month
        ORDER BY AVG(status = 'cancelled') DESC LIMIT 1
        """,
    ),
    HardQuestion(
        "How many platinum passengers were under 30 years old on 2024-01-01?",
        """
        SELECT COUNT(*)
        FROM passengers
        WHERE loyalty_tier = 'platinum' AND date(birth_date, '+30 years') > '2024-01-01'
        """,
    ),
    HardQuestion(
        "What is the highest fare paid in each cabin for a flight to Germany? Give cabin and fare, the "
        "highest fare first.",
        """
        SELECT t.cabin, MAX(t.fare) AS fare
        FROM tickets AS t JOIN flights AS f ON f.flight_id = t.flight_id JOIN airports AS a ON a.airport_id =
          f.airport_id
        WHERE a.country = 'Germany'
        GROUP BY t.cabin
        ORDER BY fare DESC
        """,
    ),
    HardQuestion(
        "How many flights have a longer delay than the average of all flights to the same airport?",
        """
        SELECT COUNT(*)
        FROM flights AS f
        WHERE f.delay_minutes > (SELECT AVG(g.delay_minutes) FROM flights AS g WHERE g.airport_id = f.airport_id)
        """,
    ),
)

AIRLINE = Domain(
    db_id="airline",
    title="An airline",
    tables=(
        Table(
            "airports",
            "airport",
            "airports",
            (
                key("airport_id"),
                name("airport_code", v.given([row[0] for row in AIRPORTS]), "code", "airport code"),
                text("city", v.given([row[1] for row in AIRPORTS])),
                category("country", v.given([row[2] for row in AIRPORTS])),
                integer(
                    "distance_km",
                    v.given([row[3] for row in AIRPORTS]),
                    "distance",
                    "distance in km",
                ),
            ),
            len(AIRPORTS),
        ),
        Table(
            "aircraft",
            "aircraft",
            "aircraft",
            (
                key("aircraft_id"),
                name("registration", v.codes("OE-L", 3)),
                category("model", v.choice(list(MODELS), [30, 16, 22, 16, 10, 6])),
                integer("seats", v.integers(76, 306), "seats"),
                integer("built_year", v.integers(1999, 2022), "construction year"),
            ),
            46,
        ),
        Table(
            "flights",
            "flight",
            "flights",
            (
                key("flight_id"),
                name("flight_number", v.codes("VA", 4), "flight number", "number"),
                ref("airport_id", "airports", "destination airport"),
                ref("aircraft_id", "aircraft", "aircraft"),
                date("departure_date", v.dates("2023-01-01", "2024-06-30"), "departure date"),
                category(
                    "status",
                    v.choice(["on time", "delayed", "cancelled", "diverted"], [71, 22, 5, 2]),
                ),
                integer(
                    "delay_minutes", v.integers(5, 420, skew=True), "delay", "delay in minutes"
                ),
            ),
            780,
        ),
        Table(
            "passengers",
            "passenger",
            "passengers",
            (
                key("passenger_id"),
                name("full_name", v.person_names(), "name", "full name"),
                category("nationality", v.countries(20)),
                category(
                    "loyalty_tier",
                    v.choice(["blue", "silver", "gold", "platinum"], [50, 27, 16, 7], null=0.3),
                    "loyalty tier",
                    "tier",
                ),
                date(
                    "birth_date", v.dates("1940-01-01", "2012-12-31"), "birth date", "date of birth"
                ),
                text("email", v.emails(null=0.14), "email", "email address"),
            ),
            430,
        ),
        Table(
            "tickets",
            "ticket",
            "tickets",
            (
                key("ticket_id"),
                ref("flight_id", "flights", "flight"),
                ref("passenger_id", "passengers", "passenger"),
                category("cabin", v.choice(["economy", "premium", "business"], [74, 15, 11])),
                date("booking_date", v.dates("2022-09-01", "2024-06-20"), "booking date"),
                real("fare", v.reals(39, 1900)),
                integer("bags", v.choice([0, 1, 2, 3], [40, 42, 14, 4], null=0.04), "bags"),
            ),
            2100,
        ),
    ),
    hard=HARD,
)
CABIN = {"economy": 1.0, "premium": 1.7, "business": 3.1}  # of the economy fare


def finish(sheet: Sheet, rng: random.Random) -> None:
    """Seats follow the model, delays the status, fares the distance and cabin, and bookings precede
    departure."""
    sheet.edit(
        "aircraft", lambda row: {"seats": MODELS[str(row["model"])] + rng.choice((0, 0, 0, -6, 6))}
    )

    def flight(row: dict[str, Value]) -> dict[str, Value]:
        if row["status"] == "cancelled":
            return {"delay_minutes": None}
        if row["status"] == "on time":
            return {"delay_minutes": rng.choice((0, 0, 0, rng.randint(1, 14)))}
        return {"delay_minutes": 15 + whole(row["delay_minutes"])}

    sheet.edit("flights", flight)
    sheet.edit("passengers", lambda row: mailbox(rng, row, "full_name"))
    airports, flights = sheet.records("airports"), sheet.records("flights")

    def ticket(row: dict[str, Value]) -> dict[str, Value]:
        flown = flights[whole(row["flight_id"])]
        distance = number(airports[whole(flown["airport_id"])]["distance_km"])
        fare = (38 + distance * 0.062) * (0.6 + 0.9 * rng.random()) * CABIN[str(row["cabin"])]
        return {
            "fare": round(fare, 2),
            "booking_date": after(flown["departure_date"], -int(150 * rng.random() * rng.random())),
        }

    sheet.edit("tickets", ticket)


SHIPPED = Shipped(AIRLINE, finish, unseen=True)
