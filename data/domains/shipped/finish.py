"""Edits of the populated rows, so that cells agree: one function per database, named after it.

Each function edits the rows in place. It draws from the stream in a fixed order, on which the bytes
of the shipped database depend.
"""

import datetime as dt
import random
from typing import Any

from data.domains.values import address

Row = dict[str, Any]  # column -> cell
Sheet = dict[str, dict[int, Row]]  # table -> primary key -> row
Lookup = dict[str, dict[Any, Any]]  # the [lookup] tables of the database's file


def after(date: str, days: int) -> str:
    """Return the ISO date `days` after the ISO date `date`."""
    return (dt.date.fromisoformat(date) + dt.timedelta(days=days)).isoformat()


def days_between(first: str, last: str) -> int:
    """Return the number of days from one ISO date to another, negative if `last` is earlier."""
    return (dt.date.fromisoformat(last) - dt.date.fromisoformat(first)).days


def between(rng: random.Random, first: str, last: str) -> str:
    """Draw an ISO date in [first, last]; return `first` if `last` is earlier."""
    return after(first, rng.randint(0, max(0, days_between(first, last))))


def derive_emails(rows: dict[int, Row], name: str, rng: random.Random) -> None:
    """Derive the addresses in the column `email` from the persons' names in the column `name`."""
    for row in rows.values():
        if row["email"] is not None:
            row["email"] = address(row[name], rng)


def airline(sheet: Sheet, lookup: Lookup, rng: random.Random) -> None:
    """Derive seats from the model, delays from the status, fares and dates from the flight."""
    for plane in sheet["aircraft"].values():
        plane["seats"] = lookup["seats"][plane["model"]] + rng.choice((0, 0, 0, -6, 6))
    for flight in sheet["flights"].values():
        if flight["status"] == "cancelled":
            flight["delay_minutes"] = None
        elif flight["status"] == "on time":
            flight["delay_minutes"] = rng.choice((0, 0, 0, rng.randint(1, 14)))
        else:
            flight["delay_minutes"] += 15
    derive_emails(sheet["passengers"], "full_name", rng)
    for ticket in sheet["tickets"].values():
        flight = sheet["flights"][ticket["flight_id"]]
        economy = 38 + sheet["airports"][flight["airport_id"]]["distance_km"] * 0.062
        fare = economy * (0.6 + 0.9 * rng.random()) * lookup["fare_factor"][ticket["cabin"]]
        ticket["fare"] = round(fare, 2)
        days = -int(150 * rng.random() * rng.random())
        ticket["booking_date"] = after(flight["departure_date"], days)


def bakery(sheet: Sheet, lookup: Lookup, rng: random.Random) -> None:
    """Date orders after the customer's signup; charge no delivery for orders in the shop."""
    derive_emails(sheet["customers"], "name", rng)
    for order in sheet["orders"].values():
        joined = sheet["customers"][order["customer_id"]]["signup_date"]
        order["order_date"] = between(rng, max(joined, "2022-01-02"), "2024-04-30")
        if order["channel"] == "shop":
            order["delivery_fee"] = None


def bike_rental(sheet: Sheet, lookup: Lookup, rng: random.Random) -> None:
    """Derive prices from the model and distances from the time; date rentals after the signup."""
    for bike in sheet["bikes"].values():
        price = lookup["purchase_price"][bike["model"]]
        bike["purchase_price"] = round(price * (0.9 + 0.25 * rng.random()), 2)
    for rental in sheet["rentals"].values():
        minutes = rental["duration_minutes"]
        if rental["distance_km"] is not None:  # at 8 to 20 km/h
            rental["distance_km"] = round(minutes / 60 * (8 + 12 * rng.random()), 1)
        joined = max("2022-03-01", sheet["riders"][rental["rider_id"]]["signup_date"])
        model = sheet["bikes"][rental["bike_id"]]["model"]
        rental["cost"] = round(1.0 + minutes * lookup["rate"][model], 2)
        rental["rental_date"] = between(rng, joined, "2024-05-31")
    for repair in sheet["repairs"].values():
        electric = sheet["bikes"][repair["bike_id"]]["model"] == "Electric Plus"
        if repair["problem"] == "battery" and not electric:
            repair["problem"] = "saddle"


def clinic(sheet: Sheet, lookup: Lookup, rng: random.Random) -> None:
    """Charge completed visits alone, by the doctor's fee and the duration."""
    for visit in sheet["appointments"].values():
        if visit["status"] != "completed":
            visit["charge"] = visit["duration_minutes"] = None
            continue
        fee = sheet["doctors"][visit["doctor_id"]]["consultation_fee"]
        extra = rng.choice((0, 0, 12.5, 35))
        visit["charge"] = round(fee * (0.6 + visit["duration_minutes"] / 60) + extra, 2)


def film_festival(sheet: Sheet, lookup: Lookup, rng: random.Random) -> None:
    """Sell at most as many tickets as there are seats; date awards after the film's release."""
    for screening in sheet["screening"].values():
        seats = sheet["cinema"][screening["cinema_id"]]["seats"]
        screening["tickets_sold"] = min(seats, int(seats * 1.08 * (0.2 + 0.8 * rng.random())))
    for award in sheet["award"].values():
        award["award_year"] = rng.randint(sheet["film"][award["film_id"]]["release_year"], 2024)
    for review in sheet["review"].values():
        review["review_date"] = between(rng, "2024-05-10", review["review_date"])


def football_league(sheet: Sheet, lookup: Lookup, rng: random.Random) -> None:
    """Give each fixture two different clubs and a crowd that fits the stadium."""
    clubs = sheet["club"]
    for fixture in sheet["fixture"].values():
        home = fixture["home_club_id"]
        if home == fixture["away_club_id"]:
            fixture["away_club_id"] = home % len(clubs) + 1
        if fixture["attendance"] is not None:
            share = 0.45 + 0.55 * max(rng.random(), rng.random())
            fixture["attendance"] = int(clubs[home]["capacity"] * share)


def library(sheet: Sheet, lookup: Lookup, rng: random.Random) -> None:
    """Date books after the author grew up and loans after the member joined; fine late returns."""
    today = "2024-06-30"
    derive_emails(sheet["members"], "name", rng)
    for book in sheet["books"].values():
        born = sheet["authors"][book["author_id"]]["birth_year"]
        earliest = 1950 if born is None else max(1910, born + 22)
        book["publication_year"] = min(2018, earliest + int(55 * rng.random()))
    for loan in sheet["loans"].values():
        lent = between(rng, sheet["members"][loan["member_id"]]["join_date"], "2024-06-24")
        days = rng.choice((rng.randint(1, 21), rng.randint(5, 23), rng.randint(10, 60)))
        returned = None if after(lent, days) > today or rng.random() < 0.02 else after(lent, days)
        late = returned is not None and days > 21
        loan["loan_date"], loan["due_date"], loan["return_date"] = lent, after(lent, 21), returned
        loan["fine"] = (days - 21) * 0.25 if late else None


def museum(sheet: Sheet, lookup: Lookup, rng: random.Random) -> None:
    """Date artworks within the artist's working life and visits within the exhibition."""
    for artist in sheet["artists"].values():  # who live 30 to 90 years and work from 18 on
        died = artist["birth_year"] + rng.randint(30, 90)
        artist["death_year"] = died if died <= 2022 else None
    for work in sheet["artworks"].values():
        if work["artist_id"] is None or work["creation_year"] is None:
            continue
        artist = sheet["artists"][work["artist_id"]]
        year = rng.randint(artist["birth_year"] + 18, min(2015, artist["death_year"] or 2015))
        work["creation_year"] = year
        work["acquisition_date"] = between(rng, f"{max(1958, year)}-01-15", "2018-11-30")
    for show in sheet["exhibitions"].values():
        days = rng.choice((56, 70, 84, 91, 120, rng.randint(40, 150)))
        show["end_date"] = after(show["start_date"], days)
    full = {key: rng.choice((12.0, 14.0, 15.0, 16.5, 18.0)) for key in sheet["exhibitions"]}
    for visit in sheet["visits"].values():
        show = sheet["exhibitions"][visit["exhibition_id"]]
        visit["visit_date"] = between(rng, show["start_date"], show["end_date"])
        share = lookup["price_share"][visit["ticket_type"]]
        visit["ticket_price"] = round(full[visit["exhibition_id"]] * share, 2)


def music_label(sheet: Sheet, lookup: Lookup, rng: random.Random) -> None:
    """Date albums after the contract; sell at most what the venue holds, nothing if cancelled."""
    for album in sheet["Albums"].values():
        signed = sheet["Artists"][album["ArtistId"]]["SignedDate"]
        album["ReleaseDate"] = between(rng, signed, "2024-05-31")
    for concert in sheet["Concerts"].values():
        if concert["TicketsSold"] is None:
            concert["Revenue"] = None
            continue
        share = 0.25 + 0.75 * max(rng.random(), rng.random())
        sold = int(sheet["Venues"][concert["VenueId"]]["Capacity"] * share)
        concert["TicketsSold"] = sold
        concert["Revenue"] = round(sold * rng.choice((18.5, 22.0, 27.5, 35.0, 42.0, 60.0)), 2)


def real_estate(sheet: Sheet, lookup: Lookup, rng: random.Random) -> None:
    """Derive prices from type and area; accept at most one offer per property."""
    derive_emails(sheet["owners"], "owner_name", rng)
    for home in sheet["properties"].values():
        kind = home["property_type"]
        area = round(rng.uniform(*lookup["floor_area"][kind]), 1)
        rooms = 0 if kind == "studio" else max(1, min(6, int(area / 34 + rng.random())))
        price = area * lookup["price_per_meter"][kind] * (0.75 + 0.6 * rng.random())
        home["bedrooms"], home["asking_price"] = rooms, round(price / 500) * 500.0
        if home["floor_area"] is not None:
            home["floor_area"] = area
    viewers: dict[int, list[int]] = {}  # property -> its viewings' buyers
    for viewing in sheet["viewings"].values():
        viewers.setdefault(viewing["property_id"], []).append(viewing["buyer_id"])
        listed = sheet["properties"][viewing["property_id"]]["listing_date"]
        viewing["viewing_date"] = between(rng, listed, min("2024-06-15", after(listed, 120)))
    sold: set[int] = set()
    for offer in sheet["offers"].values():
        number = offer["property_id"]
        home, buyers = sheet["properties"][number], viewers.get(number)
        first = after(home["listing_date"], 5)
        if offer["status"] == "accepted" and number in sold:
            offer["status"] = "rejected"
        if offer["status"] == "accepted":
            sold.add(number)
            share = 0.96 + 0.1 * rng.random()
        else:
            share = 0.8 + 0.2 * rng.random()
        if buyers and rng.random() < 0.85:
            offer["buyer_id"] = rng.choice(buyers)
        offer["offer_date"] = between(rng, first, min("2024-06-25", after(first, 150)))
        offer["amount"] = round(home["asking_price"] * share / 500) * 500.0


def university(sheet: Sheet, lookup: Lookup, rng: random.Random) -> None:
    """Let students enter at 18 to 22, and derive the grade from the score."""
    for student in sheet["students"].values():
        born = student["entry_year"] - rng.choice((18, 18, 19, 19, 20, 22))
        date = f"{born}{student['birth_date'][4:]}"
        student["birth_date"] = date.replace("-02-29", "-02-28")
    for enrollment in sheet["enrollments"].values():
        score = enrollment["score"]
        if score is None:
            enrollment["grade"] = None
            continue
        score = round(35 + (score - 35) * (0.55 + 0.45 * rng.random()) + 12 * rng.random(), 1)
        enrollment["score"] = min(score, 100.0)
        grades = (("A", 85), ("B", 72), ("C", 60), ("D", 50), ("F", 0))
        enrollment["grade"] = next(grade for grade, least in grades if score >= least)


def vineyard(sheet: Sheet, lookup: Lookup, rng: random.Random) -> None:
    """Price and score older wines a little higher; date tastings after the vintage."""
    for wine in sheet["wines"].values():
        if wine["bottle_price"] is not None:
            per_year = rng.choice((0, 0.5, 1, 2))
            price = wine["bottle_price"] + (2022 - wine["vintage_year"]) * per_year
            wine["bottle_price"] = round(price, 2)
    for tasting in sheet["tastings"].values():
        wine = sheet["wines"][tasting["wine_id"]]
        if tasting["points"] is not None:
            points = 70 + int((wine["bottle_price"] or 20) / 8)
            tasting["points"] = min(100, points + int(22 * max(rng.random(), rng.random())))
        first = max(tasting["tasting_date"], f"{wine['vintage_year'] + 1}-03-01")
        tasting["tasting_date"] = between(rng, first, "2024-04-30")


def zoo(sheet: Sheet, lookup: Lookup, rng: random.Random) -> None:
    """Derive weights and food from the species; date checkups after the animal's birth."""
    animals = sheet["animals"]
    for animal in animals.values():
        adult = lookup["adult_weight"][animal["species_id"]]
        animal["weight"] = max(0.1, round(adult * (0.55 + 0.6 * rng.random()), 1))
    for feeding in sheet["feedings"].values():
        animal = animals[feeding["animal_id"]]
        amount = round(min(60.0, 0.1 + animal["weight"] * (0.01 + 0.03 * rng.random())), 1)
        diet = sheet["species"][animal["species_id"]]["diet"]
        feeding["food"] = rng.choice(lookup["foods"][diet])
        if feeding["amount_kg"] is not None:
            feeding["amount_kg"] = max(0.1, amount)
    for checkup in sheet["checkups"].values():
        born = animals[checkup["animal_id"]]["birth_date"]
        checkup["checkup_date"] = between(rng, max("2021-01-05", born), "2024-05-31")
