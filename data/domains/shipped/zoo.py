"""A zoo: species, enclosures, keepers, animals, feedings and checkups."""

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

# name, class, diet, conservation status, weight of a grown animal in kg
SPECIES: tuple[tuple[str, str, str, str, float], ...] = (
    ("African Elephant", "mammal", "herbivore", "endangered", 4800),
    ("Giraffe", "mammal", "herbivore", "vulnerable", 950),
    ("Plains Zebra", "mammal", "herbivore", "near threatened", 320),
    ("Lion", "mammal", "carnivore", "vulnerable", 175),
    ("Amur Tiger", "mammal", "carnivore", "endangered", 190),
    ("Snow Leopard", "mammal", "carnivore", "vulnerable", 42),
    ("Cheetah", "mammal", "carnivore", "vulnerable", 50),
    ("Gray Wolf", "mammal", "carnivore", "least concern", 44),
    ("Red Fox", "mammal", "omnivore", "least concern", 7),
    ("Brown Bear", "mammal", "omnivore", "least concern", 280),
    ("Polar Bear", "mammal", "carnivore", "vulnerable", 430),
    ("Red Panda", "mammal", "herbivore", "endangered", 5.2),
    ("Giant Panda", "mammal", "herbivore", "vulnerable", 105),
    ("Bornean Orangutan", "mammal", "omnivore", "critically endangered", 68),
    ("Western Gorilla", "mammal", "herbivore", "critically endangered", 150),
    ("Chimpanzee", "mammal", "omnivore", "endangered", 52),
    ("Ring-tailed Lemur", "mammal", "omnivore", "endangered", 2.3),
    ("Meerkat", "mammal", "omnivore", "least concern", 0.8),
    ("Red Kangaroo", "mammal", "herbivore", "least concern", 60),
    ("Koala", "mammal", "herbivore", "vulnerable", 9),
    ("Hippopotamus", "mammal", "herbivore", "vulnerable", 1500),
    ("Black Rhinoceros", "mammal", "herbivore", "critically endangered", 1100),
    ("Bactrian Camel", "mammal", "herbivore", "critically endangered", 520),
    ("Llama", "mammal", "herbivore", "least concern", 140),
    ("Capybara", "mammal", "herbivore", "least concern", 48),
    ("European Otter", "mammal", "carnivore", "near threatened", 8.5),
    ("Harbor Seal", "mammal", "carnivore", "least concern", 90),
    ("Californian Sea Lion", "mammal", "carnivore", "least concern", 180),
    ("Humboldt Penguin", "bird", "carnivore", "vulnerable", 4.2),
    ("King Penguin", "bird", "carnivore", "least concern", 13),
    ("Greater Flamingo", "bird", "omnivore", "least concern", 3),
    ("Ostrich", "bird", "omnivore", "least concern", 110),
    ("Emu", "bird", "omnivore", "least concern", 38),
    ("Bald Eagle", "bird", "carnivore", "least concern", 4.6),
    ("Snowy Owl", "bird", "carnivore", "vulnerable", 1.9),
    ("Scarlet Macaw", "bird", "herbivore", "least concern", 1),
    ("Kea", "bird", "omnivore", "endangered", 0.9),
    ("Andean Condor", "bird", "carnivore", "vulnerable", 11),
    ("White Stork", "bird", "carnivore", "least concern", 3.4),
    ("Toco Toucan", "bird", "omnivore", "least concern", 0.6),
    ("Indian Peafowl", "bird", "omnivore", "least concern", 4.5),
    ("Mandarin Duck", "bird", "omnivore", "least concern", 0.6),
    ("Aldabra Tortoise", "reptile", "herbivore", "vulnerable", 190),
    ("Nile Crocodile", "reptile", "carnivore", "least concern", 300),
    ("Komodo Dragon", "reptile", "carnivore", "endangered", 70),
    ("Green Iguana", "reptile", "herbivore", "least concern", 4),
    ("Burmese Python", "reptile", "carnivore", "vulnerable", 40),
    ("Panther Chameleon", "reptile", "carnivore", "least concern", 0.2),
    ("Boa Constrictor", "reptile", "carnivore", "least concern", 20),
    ("Gila Monster", "reptile", "carnivore", "near threatened", 0.9),
    ("Axolotl", "amphibian", "carnivore", "critically endangered", 0.2),
    ("Golden Poison Frog", "amphibian", "carnivore", "endangered", 0.1),
    ("Fire Salamander", "amphibian", "carnivore", "vulnerable", 0.1),
    ("American Bullfrog", "amphibian", "carnivore", "least concern", 0.5),
    ("Clownfish", "fish", "omnivore", "least concern", 0.2),
    ("Red-bellied Piranha", "fish", "omnivore", "least concern", 1.8),
    ("Arapaima", "fish", "carnivore", "near threatened", 90),
    ("Epaulette Shark", "fish", "carnivore", "least concern", 1.2),
    ("Koi", "fish", "omnivore", "least concern", 5),
    ("Seahorse", "fish", "carnivore", "vulnerable", 0.1),
)
PETS = listed(
    "Luna Milo Nala Simba Zuri Kofi Tika Bruno Mango Coco Rocky Pepper Hazel Olive Sunny Shadow Misty Willow Ginger "
    "Storm Echo Juno Atlas Nova Pico Zazu Kaya Bamboo Cleo Dakota Indra Ivory Jasper Kiwi Lotus Maple Nimbus Onyx "
    "Paco Quill Rio Saffron Tango Umber Vesper Xena Yoko Ziggy Amber Basil Clover Dingo Ember Iñaki Chloé Søs Björk"
)

HARD = (
    HardQuestion(
        "Which keeper has fed animals of the largest number of different species?",
        """
        SELECT k.name
        FROM keepers AS k JOIN feedings AS f ON f.keeper_id = k.keeper_id JOIN animals AS a ON a.animal_id =
          f.animal_id
        GROUP BY k.keeper_id
        ORDER BY COUNT(DISTINCT a.species_id) DESC LIMIT 1
        """,
    ),
    HardQuestion(
        "Which vulnerable species have no animal in the zoo?",
        """
        SELECT common_name
        FROM species AS s
        WHERE conservation_status = 'vulnerable' AND NOT EXISTS (SELECT 1 FROM animals AS a WHERE a.species_id =
          s.species_id)
        """,
    ),
    HardQuestion(
        "For each class of animals, how much food in kg was fed in 2023? Give class and amount, rounded to 1 "
        "decimal, the largest amount first.",
        """
        SELECT s.animal_class, ROUND(SUM(f.amount_kg), 1) AS amount
        FROM feedings AS f JOIN animals AS a ON a.animal_id = f.animal_id JOIN species AS s ON s.species_id =
          a.species_id
        WHERE f.feeding_date BETWEEN '2023-01-01' AND '2023-12-31'
        GROUP BY s.animal_class
        ORDER BY amount DESC
        """,
    ),
    HardQuestion(
        "How many animals have not had a checkup since 2023-01-01, or never had one?",
        """
        SELECT COUNT(*)
        FROM animals AS a
        WHERE NOT EXISTS (SELECT 1 FROM checkups AS c WHERE c.animal_id = a.animal_id AND c.checkup_date >=
          '2023-01-01')
        """,
    ),
    HardQuestion(
        "Which enclosure holds animals of the most different species?",
        """
        SELECT e.enclosure_name
        FROM enclosures AS e JOIN animals AS a ON a.enclosure_id = e.enclosure_id
        GROUP BY e.enclosure_id
        ORDER BY COUNT(DISTINCT a.species_id) DESC LIMIT 1
        """,
    ),
    HardQuestion(
        "What was the average age in years of the animals at their checkups, taking 365.25 days for a year? "
        "Round to 1 decimal.",
        """
        SELECT ROUND(AVG((julianday(c.checkup_date) - julianday(a.birth_date)) / 365.25), 1)
        FROM checkups AS c JOIN animals AS a ON a.animal_id = c.animal_id
        """,
    ),
    HardQuestion(
        "Which species has the highest total cost of checkups?",
        """
        SELECT s.common_name
        FROM species AS s JOIN animals AS a ON a.species_id = s.species_id JOIN checkups AS c ON c.animal_id =
          a.animal_id
        GROUP BY s.species_id
        ORDER BY SUM(c.cost) DESC LIMIT 1
        """,
    ),
    HardQuestion(
        "How many animals weigh more than the average animal of their own species?",
        """
        SELECT COUNT(*)
        FROM animals AS a
        WHERE a.weight > (SELECT AVG(b.weight) FROM animals AS b WHERE b.species_id = a.species_id)
        """,
    ),
    HardQuestion(
        "Which vet found the largest share of animals healthy, among the checkups with a result?",
        """
        SELECT vet
        FROM checkups
        WHERE result IS NOT NULL
        GROUP BY vet
        ORDER BY AVG(result = 'healthy') DESC LIMIT 1
        """,
    ),
    HardQuestion(
        "Which species have at least 8 animals, all of which have an enclosure?",
        """
        SELECT s.common_name
        FROM species AS s JOIN animals AS a ON a.species_id = s.species_id
        GROUP BY s.species_id
        HAVING COUNT(*) >= 8 AND COUNT(a.enclosure_id) = COUNT(*)
        """,
    ),
    HardQuestion(
        "What is the heaviest animal of each zone? Give zone and the animal's name, with the zones in "
        "alphabetical order.",
        """
        WITH ranked AS (SELECT e.zone AS zone, a.animal_name AS name, RANK() OVER (PARTITION BY e.zone ORDER BY
          a.weight DESC) AS place FROM animals AS a JOIN enclosures AS e ON e.enclosure_id = a.enclosure_id) SELECT
          zone, name
        FROM ranked
        WHERE place = 1
        ORDER BY zone
        """,
    ),
    HardQuestion(
        "How many keepers hired before 2015 have never fed a reptile?",
        """
        SELECT COUNT(*)
        FROM keepers AS k
        WHERE k.hire_date < '2015-01-01' AND k.keeper_id NOT IN (SELECT f.keeper_id FROM feedings AS f JOIN animals
          AS a ON a.animal_id = f.animal_id JOIN species AS s ON s.species_id = a.species_id WHERE s.animal_class =
          'reptile')
        """,
    ),
)

ZOO = Domain(
    db_id="zoo",
    title="A zoo",
    tables=(
        Table(
            "species",
            "species",
            "species",
            (
                key("species_id"),
                name("common_name", v.given([row[0] for row in SPECIES]), "name", "common name"),
                category(
                    "animal_class", v.given([row[1] for row in SPECIES]), "class", "animal class"
                ),
                category("diet", v.given([row[2] for row in SPECIES])),
                category(
                    "conservation_status",
                    v.given([row[3] for row in SPECIES]),
                    "conservation status",
                    "status",
                ),
            ),
            len(SPECIES),
        ),
        Table(
            "enclosures",
            "enclosure",
            "enclosures",
            (
                key("enclosure_id"),
                name(
                    "enclosure_name",
                    v.composed(
                        ("{place} {kind}",),
                        unique=True,
                        place=listed(
                            "Savanna Rainforest Arctic Coastal Desert Mountain Bamboo "
                            "River Canyon Meadow Lagoon Highland"
                        ),
                        kind=listed("House Paddock Pavilion Dome Terrace Grove"),
                    ),
                    "name",
                    "enclosure name",
                ),
                category(
                    "zone",
                    v.choice(
                        ["Africa", "Asia", "Americas", "Oceania", "Europe"], [30, 24, 20, 14, 12]
                    ),
                ),
                real("area", v.reals(25, 5200, 1), "area"),
                integer("built_year", v.integers(1968, 2022, null=0.05), "construction year"),
            ),
            40,
        ),
        Table(
            "keepers",
            "keeper",
            "keepers",
            (
                key("keeper_id"),
                name("name", v.person_names(unique=True)),
                date("hire_date", v.dates("2001-03-01", "2022-11-15"), "hire date"),
                real("hourly_wage", v.even_reals(14, 34), "wage", "hourly wage"),
            ),
            36,
        ),
        Table(
            "animals",
            "animal",
            "animals",
            (
                key("animal_id"),
                name("animal_name", v.choice(PETS), "name", "animal name"),
                ref("species_id", "species", "species"),
                ref("enclosure_id", "enclosures", "enclosure", null=0.05),
                category("sex", v.choice(["female", "male"], [53, 47], null=0.06)),
                date(
                    "birth_date", v.dates("1999-01-01", "2022-11-20"), "birth date", "date of birth"
                ),
                real("weight", v.reals(0.1, 5000), "weight", "weight in kilograms"),
            ),
            340,
        ),
        Table(
            "feedings",
            "feeding",
            "feedings",
            (
                key("feeding_id"),
                ref("animal_id", "animals", "animal"),
                ref("keeper_id", "keepers", "keeper"),
                date("feeding_date", v.dates("2023-01-01", "2024-05-31"), "feeding date"),
                category(
                    "food",
                    v.choice(
                        ["hay", "fruit", "fish", "meat", "insects", "seeds", "leaves", "pellets"]
                    ),
                ),
                real("amount_kg", v.reals(0.1, 40, 1, null=0.03), "amount", "amount in kg"),
            ),
            1800,
        ),
        Table(
            "checkups",
            "checkup",
            "checkups",
            (
                key("checkup_id"),
                ref("animal_id", "animals", "animal"),
                category(
                    "vet", v.skewed_choice(["Dr. Osei", "Dr. Lindgren", "Dr. Núñez", "Dr. Kaplan"])
                ),
                date("checkup_date", v.dates("2021-01-05", "2024-05-31"), "checkup date"),
                category(
                    "result",
                    v.choice(
                        ["healthy", "injured", "underweight", "overweight", "sick"],
                        [66, 8, 9, 8, 9],
                        null=0.03,
                    ),
                ),
                real("cost", v.prices(30, 420)),
            ),
            460,
        ),
    ),
    hard=HARD,
)
FOODS = {
    "herbivore": ("hay", "fruit", "leaves", "pellets", "seeds"),
    "carnivore": ("meat", "fish", "meat", "insects"),
    "omnivore": ("fruit", "insects", "pellets", "seeds", "fish"),
}


def finish(sheet: Sheet, rng: random.Random) -> None:
    """Animals weigh what their species does, and eat what it eats, by their weight."""
    species = sheet.records("species")

    def animal(row: dict[str, Value]) -> dict[str, Value]:
        grown = SPECIES[whole(row["species_id"]) - 1][4]
        return {"weight": max(0.1, round(grown * (0.55 + 0.6 * rng.random()), 1))}

    sheet.edit("animals", animal)
    animals = sheet.records("animals")

    def feeding(row: dict[str, Value]) -> dict[str, Value]:
        eater = animals[whole(row["animal_id"])]
        diet = str(species[whole(eater["species_id"])]["diet"])
        weight = eater["weight"]
        amount = round(min(60.0, 0.1 + float(weight or 0) * (0.01 + 0.03 * rng.random())), 1)
        return {
            "food": rng.choice(FOODS[diet]),
            "amount_kg": None if row["amount_kg"] is None else max(0.1, amount),
        }

    def checkup(row: dict[str, Value]) -> dict[str, Value]:
        born = str(animals[whole(row["animal_id"])]["birth_date"])
        return {"checkup_date": between(rng, max("2021-01-05", born), "2024-05-31")}

    sheet.edit("feedings", feeding)
    sheet.edit("checkups", checkup)


SHIPPED = Shipped(ZOO, finish)
