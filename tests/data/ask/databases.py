"""Three databases unlike Spider's, and forty questions that a colleague would ask about them.

    python -m tests.data.ask.databases DIR
    python -m trainer evaluate --data DIR --difficulty easy,medium,hard --greedy

`clinic` is an application's database, with codes, timestamps and foreign keys; `fair` is made of
CSV files with untidy names; `parcels` has 200,000 rows. All are seeded, so that the answers of
`questions.jsonl` stay.
"""

import csv
import random
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

QUESTIONS = Path(__file__).with_name("questions.jsonl")
PARCELS = 200_000
Rows = dict[str, list[tuple[Any, ...]]]

CLINIC = """
CREATE TABLE departments (dept_code TEXT PRIMARY KEY, dept_name TEXT NOT NULL, floor INTEGER);
CREATE TABLE staff (staff_id INTEGER PRIMARY KEY, full_name TEXT NOT NULL, role TEXT,
  dept_code TEXT REFERENCES departments, hired_on TEXT);
CREATE TABLE insurers (insurer_id INTEGER PRIMARY KEY, company TEXT, is_private INTEGER);
CREATE TABLE patients (patient_id INTEGER PRIMARY KEY, first_name TEXT, last_name TEXT,
  born_on TEXT, sex TEXT, city TEXT, insurer_id INTEGER REFERENCES insurers);
CREATE TABLE appt_status (status_cd TEXT PRIMARY KEY, label TEXT);
CREATE TABLE appointments (appt_id INTEGER PRIMARY KEY,
  patient_id INTEGER REFERENCES patients, staff_id INTEGER REFERENCES staff,
  starts_at TEXT, minutes INTEGER, status_cd TEXT REFERENCES appt_status);
CREATE TABLE icd_codes (icd TEXT PRIMARY KEY, title TEXT);
CREATE TABLE diagnoses (appt_id INTEGER REFERENCES appointments, icd TEXT REFERENCES icd_codes,
  PRIMARY KEY (appt_id, icd));
CREATE TABLE invoices (invoice_no TEXT PRIMARY KEY, appt_id INTEGER REFERENCES appointments,
  amount_cents INTEGER, issued_at TEXT, paid_at TEXT);
"""
FIRST = (
    *("Ada", "Bruno", "Carla", "David", "Elif", "Farid", "Greta", "Hugo"),
    *("Ines", "Jonas", "Kira", "Liam", "Mona", "Nils", "Olga"),
)
LAST = (
    *("Adler", "Brandt", "Costa", "Dietz", "Ersoy", "Fuchs", "Gruber"),
    *("Hahn", "Ivanov", "Jung", "Keller", "Lange", "Moser"),
)
CITIES = ("Mainz", "Worms", "Speyer", "Trier", "Koblenz")
DEPARTMENTS = [
    *(("CARD", "Cardiology", 2), ("DERM", "Dermatology", 1), ("ORTH", "Orthopaedics", 3)),
    *(("PED", "Paediatrics", 1), ("RAD", "Radiology", 0)),
]
STATUS = [("B", "booked"), ("D", "done"), ("C", "cancelled by patient"), ("N", "no show")]
ICD = [
    *(("I10", "Essential hypertension"), ("L20", "Atopic dermatitis"), ("M54", "Back pain")),
    *(("J06", "Acute respiratory infection"), ("S52", "Fracture of forearm"), ("I48", "Flutter")),
]


def clinic(rng: random.Random) -> Rows:
    staff, first = [], datetime(2025, 1, 6, 8)
    for number in range(1, 19):
        name = f"Dr. {rng.choice(FIRST)} {LAST[number % 13]}" + (" jr." if number > 13 else "")
        hired = (first - timedelta(days=rng.randrange(200, 6000))).date().isoformat()
        role = rng.choice(("physician", "physician", "nurse"))
        staff.append((number, name, role, DEPARTMENTS[number % 5][0], hired))
    patients = [
        (
            number,
            rng.choice(FIRST),
            rng.choice(LAST),
            (first - timedelta(days=rng.randrange(900, 32000))).date().isoformat(),
            rng.choice("FM"),
            rng.choices(CITIES, (9, 7, 5, 4, 3))[0],
            rng.choice((1, 2, 2, 3, 4, None)),
        )
        for number in range(1, 181)
    ]
    appointments, diagnoses, invoices = [], [], []
    for number in range(1, 901):
        start = first + timedelta(days=rng.randrange(360), minutes=15 * rng.randrange(36))
        status = rng.choices("BDCN", (5, 80, 10, 5))[0]
        minutes = rng.choice((15, 15, 20, 30, 45))
        who = (rng.randrange(1, 181), rng.randrange(1, 19))
        appointments.append((number, *who, start.isoformat(" "), minutes, status))
        if status == "D":
            codes = rng.sample([icd for icd, _ in ICD], rng.choice((1, 1, 2)))
            diagnoses += [(number, icd) for icd in codes]
            issued = start + timedelta(days=rng.randrange(1, 9))
            paid = issued + timedelta(days=rng.randrange(1, 60)) if rng.random() < 0.8 else None
            amount = rng.randrange(2500, 48000)
            invoices.append(
                (f"INV-{number:05}", number, amount, str(issued), paid and str(paid))
            )  # fmt: skip
    return {
        "departments": list(DEPARTMENTS),
        "staff": staff,
        "insurers": [(1, "AOK", 0), (2, "TK", 0), (3, "Debeka", 1), (4, "Allianz", 1)],
        "patients": patients,
        "appt_status": list(STATUS),
        "appointments": appointments,
        "icd_codes": list(ICD),
        "diagnoses": diagnoses,
        "invoices": invoices,
    }


PARCEL_SCHEMA = """
CREATE TABLE depot (depot_id INTEGER PRIMARY KEY, town TEXT, opened_year INTEGER);
CREATE TABLE parcel (parcel_id INTEGER PRIMARY KEY, depot_id INTEGER REFERENCES depot,
  service TEXT, weight_g INTEGER, dest_country TEXT, sent_at TEXT, delivered_at TEXT,
  return_reason TEXT);
"""
TOWNS = ["Ulm", "Bern", "Graz", "Lyon", "Gent", "Turin", "Lodz", "Brno"]


def parcels(rng: random.Random) -> Rows:
    start, rows = datetime(2025, 3, 1), []
    for number in range(1, PARCELS + 1):
        sent = start + timedelta(minutes=rng.randrange(90 * 1440))
        service = rng.choices(("standard", "express", "same day"), (70, 25, 5))[0]
        hours = {"standard": 72, "express": 24, "same day": 8}[service] * rng.uniform(0.3, 1.4)
        arrived = str(sent + timedelta(hours=int(hours))) if rng.random() < 0.99 else None
        country = rng.choices(("DE", "CH", "AT", "FR", "IT", "LI"), (40, 20, 20, 12, 7, 1))[0]
        reasons = ("refused", "wrong address", "not collected")
        reason = rng.choices(reasons, (2, 5, 3))[0] if rng.random() < 0.03 else None
        weight = int(rng.lognormvariate(7, 0.8))
        depot = rng.choices(range(1, 9), (9, 14, 11, 17, 6, 12, 8, 10))[0]
        rows.append((number, depot, service, weight, country, str(sent), arrived, reason))
    depots = [(number, town, 1990 + 4 * number) for number, town in enumerate(TOWNS, 1)]
    return {"depot": depots, "parcel": rows}


def fair(rng: random.Random) -> Iterator[tuple[str, list[Any]]]:
    """Yield the rows of the CSV files, each with its file's name; the first are the headers."""
    kinds = ("food", "crafts", "books", "toys")
    yield "Stall List", ["Stall No.", "Trader / Owner", "Cat.", "Rent (EUR)", "power?"]
    for number in range(1, 41):
        trader = f"{rng.choice(FIRST)} {LAST[number % 13]} & {rng.choice(('Sons', 'Co', 'Cie'))}"
        rent = f"{rng.randrange(80, 400)}.50"
        stall = [f"S-{number:03}", f"{trader} {number}", rng.choice(kinds), rent]
        yield "Stall List", [*stall, rng.choice("yn")]
    yield "daily_takings_2025", ["stall", "Day", "takings EUR", "No of Customers"]
    for day in range(1, 9):
        for number in range(1, 41):
            sold = f"{rng.uniform(40, 900):.2f}" if rng.random() < 0.95 else ""
            row = [f"S-{number:03}", f"2025-07-{day:02}", sold, rng.randrange(5, 160)]
            yield "daily_takings_2025", row
    yield "weather", ["Day", "Max Temp C", "rain mm", "Remarks"]
    for day, remark in enumerate(("", "storm warning", "", "", "heat", "", "", "closing"), 1):
        degrees = [21.5, 18.2, 24.9, 26.1, 33.4, 29.8, 23.3, 20.6][day - 1]
        yield "weather", [f"2025-07-{day:02}", degrees, round(rng.uniform(0, 12), 1), remark]


def make(folder: Path) -> list[Path]:
    made = []
    sources: tuple[tuple[str, str, Callable[[random.Random], Rows]], ...] = (
        ("clinic", CLINIC, clinic),
        ("parcels", PARCEL_SCHEMA, parcels),
    )
    for name, schema, rows_of in sources:
        path = folder / f"{name}.sqlite"
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript(schema)
            for table, rows in rows_of(random.Random(name)).items():
                marks = ", ".join("?" * len(rows[0]))
                connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
            connection.commit()
        made.append(path)
    (folder / "fair").mkdir()
    for name, row in fair(random.Random("fair")):
        with (folder / "fair" / f"{name}.csv").open("a", newline="", encoding="utf-8") as file:
            csv.writer(file).writerow(row)
    run("csv", folder / "fair", "--out", folder / "fair-data")
    return [*made, folder / "fair-data/databases/fair/fair.sqlite"]


def run(*arguments: object) -> None:
    command = [sys.executable, "-m", "data", "import", *map(str, arguments)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def main(out: str) -> None:
    with TemporaryDirectory() as folder:
        databases = make(Path(folder))
        run("sqlite", *databases, "--eval-questions", QUESTIONS, "--out", out)


if __name__ == "__main__":
    main(sys.argv[1])
