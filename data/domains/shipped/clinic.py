"""A medical clinic: doctors, patients, appointments, medicines and prescriptions."""

import random

from data.domains import values as v
from data.domains.lexicon import listed
from data.domains.shipped.parts import (
    Sheet,
    Shipped,
    category,
    date,
    integer,
    key,
    name,
    number,
    real,
    ref,
    text,
    whole,
)
from data.domains.spec import Domain, HardQuestion, Table, Value

DRUGS = v.composed(
    ("{head}{middle}{tail}", "{head}{tail}"),
    unique=True,
    head=listed(
        "Alto Beri Cardo Dela Evo Fluo Gabo Hexa Indo Keto Lami Meto Nova Oxi Pento Rani Sulo Tera Vexo Zylo"
    ),
    middle=listed("ba ci do fe ma no ra ti va xi"),
    tail=listed("cillin pril statin zole mide pine tol rin fen xan"),
)

HARD = (
    HardQuestion(
        "Which doctor brought in the highest total of charges in 2023?",
        """
        SELECT d.name
        FROM doctors AS d JOIN appointments AS a ON a.doctor_id = d.doctor_id
        WHERE a.visit_date BETWEEN '2023-01-01' AND '2023-12-31'
        GROUP BY d.doctor_id
        ORDER BY SUM(a.charge) DESC LIMIT 1
        """,
    ),
    HardQuestion(
        "How many patients have completed appointments with doctors of at least four different specialties?",
        """
        SELECT COUNT(*)
        FROM (SELECT a.patient_id FROM appointments AS a JOIN doctors AS d ON d.doctor_id = a.doctor_id WHERE
          a.status = 'completed' GROUP BY a.patient_id HAVING COUNT(DISTINCT d.specialty) >= 4)
        """,
    ),
    HardQuestion(
        "For each specialty, what percentage of its appointments was cancelled? Give specialty and "
        "percentage, rounded to 1 decimal, from the highest percentage to the lowest.",
        """
        SELECT d.specialty, ROUND(100.0 * SUM(a.status = 'cancelled') / COUNT(*), 1) AS share
        FROM appointments AS a JOIN doctors AS d ON d.doctor_id = a.doctor_id
        GROUP BY d.specialty
        ORDER BY share DESC
        """,
    ),
    HardQuestion(
        "How many completed appointments with cardiology doctors were of patients younger than 18 on that day?",
        """
        SELECT COUNT(*)
        FROM appointments AS a JOIN doctors AS d ON d.doctor_id = a.doctor_id JOIN patients AS p ON p.patient_id =
          a.patient_id
        WHERE d.specialty = 'cardiology' AND a.status = 'completed' AND a.visit_date < date(p.birth_date, '+18
          years')
        """,
    ),
    HardQuestion(
        "Which medicines have never been prescribed, in alphabetical order?",
        """
        SELECT name
        FROM medicines AS m
        WHERE NOT EXISTS (SELECT 1 FROM prescriptions AS r WHERE r.medicine_id = m.medicine_id)
        ORDER BY name
        """,
    ),
    HardQuestion(
        "What is the total value, as quantity times unit price, of the medicines prescribed by dermatology "
        "doctors? Round to 2 decimals.",
        """
        SELECT ROUND(SUM(r.quantity * m.unit_price), 2)
        FROM prescriptions AS r JOIN medicines AS m ON m.medicine_id = r.medicine_id JOIN appointments AS a ON
          a.appointment_id = r.appointment_id JOIN doctors AS d ON d.doctor_id = a.doctor_id
        WHERE d.specialty = 'dermatology'
        """,
    ),
    HardQuestion(
        "Of all insurers, whose patients have the highest average charge?",
        """
        SELECT p.insurer
        FROM patients AS p JOIN appointments AS a ON a.patient_id = p.patient_id
        WHERE p.insurer IS NOT NULL
        GROUP BY p.insurer
        ORDER BY AVG(a.charge) DESC LIMIT 1
        """,
    ),
    HardQuestion(
        "Which patient went the longest between two consecutive appointments, and for how many days?",
        """
        WITH gaps AS (SELECT patient_id, julianday(visit_date) - julianday(LAG(visit_date) OVER (PARTITION BY
          patient_id ORDER BY visit_date)) AS days FROM appointments) SELECT p.name, CAST(g.days AS INTEGER)
        FROM gaps AS g JOIN patients AS p ON p.patient_id = g.patient_id
        ORDER BY g.days DESC LIMIT 1
        """,
    ),
    HardQuestion(
        "How many doctors ask for a consultation fee above the average fee of their own specialty?",
        """
        SELECT COUNT(*)
        FROM doctors AS d
        WHERE d.consultation_fee > (SELECT AVG(e.consultation_fee) FROM doctors AS e WHERE e.specialty =
          d.specialty)
        """,
    ),
    HardQuestion(
        "On which weekday do the most appointments take place? Give its English name.",
        """
        SELECT CASE strftime('%w', visit_date) WHEN '0' THEN 'Sunday' WHEN '1' THEN 'Monday' WHEN '2' THEN 'Tuesday'
          WHEN '3' THEN 'Wednesday' WHEN '4' THEN 'Thursday' WHEN '5' THEN 'Friday' ELSE 'Saturday' END AS weekday
        FROM appointments
        GROUP BY weekday
        ORDER BY COUNT(*) DESC LIMIT 1
        """,
    ),
    HardQuestion(
        "Which patients without an insurer have been prescribed medicines in at least four different forms?",
        """
        SELECT p.name
        FROM patients AS p JOIN appointments AS a ON a.patient_id = p.patient_id JOIN prescriptions AS r ON
          r.appointment_id = a.appointment_id JOIN medicines AS m ON m.medicine_id = r.medicine_id
        WHERE p.insurer IS NULL
        GROUP BY p.patient_id
        HAVING COUNT(DISTINCT m.form) >= 4
        """,
    ),
    HardQuestion(
        "How many patients have had appointments but never a completed one?",
        """
        SELECT COUNT(*)
        FROM (SELECT patient_id FROM appointments EXCEPT SELECT patient_id FROM appointments WHERE status =
          'completed')
        """,
    ),
)

CLINIC = Domain(
    db_id="clinic",
    title="A medical clinic",
    tables=(
        Table(
            "doctors",
            "doctor",
            "doctors",
            (
                key("doctor_id"),
                name("name", v.person_names(unique=True)),
                category(
                    "specialty",
                    v.skewed_choice(
                        [
                            "general practice",
                            "pediatrics",
                            "cardiology",
                            "dermatology",
                            "neurology",
                            "orthopedics",
                        ]
                    ),
                ),
                date("hire_date", v.dates("2004-02-01", "2021-12-15"), "hire date"),
                real("consultation_fee", v.even_reals(45, 210), "fee", "consultation fee"),
            ),
            42,
        ),
        Table(
            "patients",
            "patient",
            "patients",
            (
                key("patient_id"),
                name("name", v.person_names()),
                date(
                    "birth_date", v.dates("1936-01-01", "2021-12-31"), "birth date", "date of birth"
                ),
                category("city", v.cities(10)),
                category(
                    "blood_type",
                    v.choice(
                        ["O+", "A+", "B+", "AB+", "O-", "A-", "B-", "AB-"],
                        [36, 30, 10, 4, 8, 7, 3, 2],
                        null=0.1,
                    ),
                    "blood type",
                ),
                category(
                    "insurer",
                    v.skewed_choice(
                        ["Medalia", "Unicare", "Northshield", "Salus", "Vita Plus"], null=0.12
                    ),
                ),
                text("phone", v.phones(null=0.08), "phone", "phone number"),
            ),
            330,
        ),
        Table(
            "appointments",
            "appointment",
            "appointments",
            (
                key("appointment_id"),
                ref("patient_id", "patients", "patient"),
                ref("doctor_id", "doctors", "doctor"),
                date("visit_date", v.dates("2022-01-03", "2024-05-31"), "visit date"),
                category("status", v.choice(["completed", "cancelled", "no-show"], [82, 11, 7])),
                integer(
                    "duration_minutes",
                    v.choice([10, 15, 20, 25, 30, 40, 45, 60]),
                    "duration",
                    "duration in minutes",
                ),
                real("charge", v.reals(40, 300), "charge"),
            ),
            1500,
        ),
        Table(
            "medicines",
            "medicine",
            "medicines",
            (
                key("medicine_id"),
                name("name", DRUGS),
                category(
                    "form",
                    v.choice(
                        ["tablet", "capsule", "syrup", "cream", "injection"], [38, 24, 14, 12, 12]
                    ),
                ),
                real("unit_price", v.prices(2, 95), "price", "unit price"),
                integer("stock", v.integers(0, 900, null=0.04, skew=True), "stock"),
            ),
            72,
        ),
        Table(
            "prescriptions",
            "prescription",
            "prescriptions",
            (
                key("prescription_id"),
                ref("appointment_id", "appointments", "appointment"),
                ref("medicine_id", "medicines", "medicine"),
                integer("quantity", v.integers(1, 8, skew=True)),
                integer(
                    "treatment_days",
                    v.choice([3, 5, 7, 10, 14, 21, 28, 30, 60, 90], null=0.05),
                    "treatment days",
                ),
            ),
            950,
        ),
    ),
    hard=HARD,
)


def finish(sheet: Sheet, rng: random.Random) -> None:
    """Only completed visits are charged, about the doctor's fee for half an hour."""
    doctors = sheet.records("doctors")

    def appointment(row: dict[str, Value]) -> dict[str, Value]:
        fee = number(doctors[whole(row["doctor_id"])]["consultation_fee"])
        if row["status"] != "completed":
            return {"charge": None, "duration_minutes": None}
        return {
            "charge": round(
                fee * (0.6 + whole(row["duration_minutes"]) / 60) + rng.choice((0, 0, 12.5, 35)), 2
            )
        }

    sheet.edit("appointments", appointment)


SHIPPED = Shipped(CLINIC, finish)
