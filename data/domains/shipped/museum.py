"""An art museum: artists, galleries, artworks, exhibitions and visits. Columns carry the table's
name."""

import random

from data.domains import values as v
from data.domains.lexicon import listed
from data.domains.shipped.parts import (
    Sheet,
    Shipped,
    after,
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

SUBJECTS = listed(
    "Harbor Bridge Meadow Garden Mountain River Market Window Mirror Storm Cathedral Field Coast Forest"
)
MOODS = listed(
    "Red Blue Quiet Golden Broken White Sleeping Dancing Distant Winter Green Burning Silent Dark"
)

HARD = (
    HardQuestion(
        "The artworks of which artist have the highest total insured value?",
        """
        SELECT a.artist_name
        FROM artists AS a JOIN artworks AS w ON w.artist_id = a.artist_id
        GROUP BY a.artist_id
        ORDER BY SUM(w.insured_value) DESC LIMIT 1
        """,
    ),
    HardQuestion(
        "How many artworks have been in exhibitions of at least three different curators?",
        """
        SELECT COUNT(*)
        FROM (SELECT x.artwork_id FROM exhibits AS x JOIN exhibitions AS e ON e.exhibition_id = x.exhibition_id
          GROUP BY x.artwork_id HAVING COUNT(DISTINCT e.curator) >= 3)
        """,
    ),
    HardQuestion(
        "Which exhibition showed works of the largest number of different artists?",
        """
        SELECT e.exhibition_title
        FROM exhibitions AS e JOIN exhibits AS x ON x.exhibition_id = e.exhibition_id JOIN artworks AS w ON
          w.artwork_id = x.artwork_id
        GROUP BY e.exhibition_id
        ORDER BY COUNT(DISTINCT w.artist_id) DESC LIMIT 1
        """,
    ),
    HardQuestion(
        "For each wing, what is the average insured value of the artworks in its galleries, rounded to whole "
        "units? Give wing and value, with the highest value first.",
        """
        SELECT g.wing, ROUND(AVG(w.insured_value)) AS value
        FROM galleries AS g JOIN artworks AS w ON w.gallery_id = g.gallery_id
        GROUP BY g.wing
        ORDER BY value DESC
        """,
    ),
    HardQuestion(
        "How many artworks were made after their artist had turned 60?",
        """
        SELECT COUNT(*)
        FROM artworks AS w JOIN artists AS a ON a.artist_id = w.artist_id
        WHERE w.creation_year - a.birth_year > 60
        """,
    ),
    HardQuestion(
        "Which curator's exhibitions have sold the most adult tickets?",
        """
        SELECT e.curator
        FROM exhibitions AS e JOIN visits AS v ON v.exhibition_id = e.exhibition_id
        WHERE v.ticket_type = 'adult'
        GROUP BY e.curator
        ORDER BY COUNT(*) DESC LIMIT 1
        """,
    ),
    HardQuestion(
        "How long, in days, was the longest exhibition?",
        """
        SELECT CAST(MAX(julianday(end_date) - julianday(start_date)) AS INTEGER)
        FROM exhibitions
        """,
    ),
    HardQuestion(
        "Which artists of the twentieth century, born in 1901 or later, have only bronze or marble artworks "
        "in the museum?",
        """
        SELECT a.artist_name
        FROM artists AS a
        WHERE a.birth_year >= 1901 AND EXISTS (SELECT 1 FROM artworks AS w WHERE w.artist_id = a.artist_id) AND NOT
          EXISTS (SELECT 1 FROM artworks AS w WHERE w.artist_id = a.artist_id AND w.medium NOT IN ('bronze',
          'marble'))
        """,
    ),
    HardQuestion(
        "What is the average number of visits of an exhibition, counting exhibitions without visits as zero? "
        "Round to 2 decimals.",
        """
        SELECT ROUND(AVG(visits), 2)
        FROM (SELECT COUNT(v.visit_id) AS visits FROM exhibitions AS e LEFT JOIN visits AS v ON v.exhibition_id =
          e.exhibition_id GROUP BY e.exhibition_id)
        """,
    ),
    HardQuestion(
        "Which galleries hold artworks in all seven media?",
        """
        SELECT g.gallery_name
        FROM galleries AS g JOIN artworks AS w ON w.gallery_id = g.gallery_id
        GROUP BY g.gallery_id
        HAVING COUNT(DISTINCT w.medium) = 7
        """,
    ),
    HardQuestion(
        "In which decade were the most of the museum's artworks made? Answer with the first year of the "
        "decade, such as 1870.",
        """
        SELECT creation_year / 10 * 10 AS decade
        FROM artworks
        WHERE creation_year IS NOT NULL
        GROUP BY decade
        ORDER BY COUNT(*) DESC LIMIT 1
        """,
    ),
    HardQuestion(
        "What is the title of the most valuable artwork in each medium? Give medium and title, with the media "
        "in alphabetical order.",
        """
        WITH ranked AS (SELECT medium, artwork_title, RANK() OVER (PARTITION BY medium ORDER BY insured_value DESC)
          AS place FROM artworks) SELECT medium, artwork_title
        FROM ranked
        WHERE place = 1
        ORDER BY medium
        """,
    ),
)

MUSEUM = Domain(
    db_id="museum",
    title="An art museum",
    tables=(
        Table(
            "artists",
            "artist",
            "artists",
            (
                key("artist_id"),
                name("artist_name", v.person_names(unique=True), "name", "artist name"),
                category("artist_country", v.countries(15, null=0.04), "country"),
                integer("birth_year", v.integers(1790, 1975), "birth year", "year of birth"),
                integer("death_year", v.integers(1850, 2020), "death year", "year of death"),
            ),
            96,
        ),
        Table(
            "galleries",
            "gallery",
            "galleries",
            (
                key("gallery_id"),
                name(
                    "gallery_name",
                    v.composed(
                        ("{who} Gallery", "{who} Hall", "{who} Room"),
                        unique=True,
                        who=listed(
                            "Aldine Bartók Beaumont Cervantes Corvin Dürer Emerald Galileo Halley Ivory Kepler "
                            "Lindqvist Mercator Nightingale Orion Palladio Quartz Rosetta Sappho Tagore Vesta"
                        ),
                    ),
                    "name",
                    "gallery name",
                ),
                category("wing", v.choice(["north", "south", "east", "west"], [32, 28, 22, 18])),
                real("floor_area", v.even_reals(60, 720, 1), "floor area", "area"),
            ),
            30,
        ),
        Table(
            "artworks",
            "artwork",
            "artworks",
            (
                key("artwork_id"),
                name(
                    "artwork_title",
                    v.composed(
                        (
                            "The {mood} {subject}",
                            "{subject} in {season}",
                            "{subject} with {thing}",
                            "Portrait of {who}",
                            "{mood} {subject}",
                            "Still Life with {thing}",
                            "View of {town}",
                            "Study of a {subject}",
                        ),
                        unique=True,
                        mood=MOODS,
                        subject=SUBJECTS,
                        season=listed("Spring Summer Autumn Winter Rain Moonlight"),
                        thing=listed(
                            "Lemons Birds Apples Roses Boats Figures Oysters Horses Grapes Violins"
                        ),
                        who=(
                            "Clara",
                            "Inês",
                            "Hélène",
                            "Otto",
                            "Zoë",
                            "Agnes",
                            "Don José",
                            "Mrs. Novak",
                            "a Sailor",
                            "an Old Man",
                            "a Young Weaver",
                            "a Fisherman",
                            "the Postman",
                            "the Duchess",
                            "Two Sisters",
                        ),
                        town=listed(
                            "Delft Toledo Kraków Bruges Sète Siena Cádiz Bergen Lucca Győr Nara Fez"
                        ),
                    ),
                    "title",
                    "artwork title",
                ),
                ref("artist_id", "artists", "artist", null=0.05),
                ref("gallery_id", "galleries", "gallery", null=0.14),
                category(
                    "medium",
                    v.choice(
                        ["oil", "watercolor", "bronze", "marble", "photograph", "print", "textile"],
                        [40, 14, 9, 8, 13, 11, 5],
                    ),
                ),
                integer("creation_year", v.integers(1800, 2015, null=0.04), "creation year"),
                real("insured_value", v.reals(800, 950000, 0), "insured value", "value"),
                date("acquisition_date", v.dates("1958-01-01", "2018-11-30"), "acquisition date"),
            ),
            440,
        ),
        Table(
            "exhibitions",
            "exhibition",
            "exhibitions",
            (
                key("exhibition_id"),
                name(
                    "exhibition_title",
                    v.composed(
                        (
                            "{topic} and {other}",
                            "The Age of {other}",
                            "{town}: {topic}",
                            "Beyond {other}",
                        ),
                        unique=True,
                        topic=listed(
                            "Light Color Line Memory Water Labor Faces Paper Stone Dreams"
                        ),
                        other=listed(
                            "Silence Industry Gold Empire Leisure Reason Distance Glass Faith Speed"
                        ),
                        town=listed("Vienna Paris Łódź Tokyo Havana Weimar Barcelona"),
                    ),
                    "title",
                    "exhibition title",
                ),
                category(
                    "curator",
                    v.skewed_choice(
                        ["Ines Duarte", "Paul Okafor", "Renée Lambert", "Yuki Mori", "Sven Dahl"]
                    ),
                ),
                date("start_date", v.dates("2019-01-10", "2024-03-15"), "start date"),
                date("end_date", v.dates("2019-04-10", "2024-07-15"), "end date"),
            ),
            36,
        ),
        Table(
            "exhibits",
            "exhibit",
            "exhibits",
            (
                key("exhibit_id"),
                ref("exhibition_id", "exhibitions", "exhibition"),
                ref("artwork_id", "artworks", "artwork"),
                real("insurance_fee", v.reals(20, 900, null=0.06), "insurance fee", "fee"),
            ),
            460,
        ),
        Table(
            "visits",
            "visit",
            "visits",
            (
                key("visit_id"),
                ref("exhibition_id", "exhibitions", "exhibition"),
                date("visit_date", v.dates("2019-01-10", "2024-06-30"), "visit date"),
                category(
                    "ticket_type",
                    v.choice(
                        ["adult", "student", "senior", "child", "member"], [46, 18, 14, 12, 10]
                    ),
                    "ticket type",
                ),
                real("ticket_price", v.reals(0, 18), "price", "ticket price"),
                integer(
                    "visit_minutes", v.integers(15, 190, null=0.15), "visit minutes", "minutes"
                ),
            ),
            1700,
        ),
    ),
    hard=HARD,
)
# of the full ticket price
SHARE = {"adult": 1.0, "student": 0.5, "senior": 0.75, "child": 0.25, "member": 0.0}


def finish(sheet: Sheet, rng: random.Random) -> None:
    """Artists live 30 to 90 years and work from 18 on; visits fall within an exhibition and pay its
    price."""

    def artist(row: dict[str, Value]) -> dict[str, Value]:
        died = whole(row["birth_year"]) + rng.randint(30, 90)
        return {"death_year": died if died <= 2022 else None}

    sheet.edit("artists", artist)
    artists = sheet.records("artists")

    def artwork(row: dict[str, Value]) -> dict[str, Value]:
        if row["artist_id"] is None or row["creation_year"] is None:
            return {}
        maker = artists[whole(row["artist_id"])]
        first, last = whole(maker["birth_year"]) + 18, maker["death_year"]
        made = rng.randint(first, min(2015, 2015 if last is None else whole(last)))
        return {
            "creation_year": made,
            "acquisition_date": between(rng, f"{max(1958, made)}-01-15", "2018-11-30"),
        }

    def exhibition(row: dict[str, Value]) -> dict[str, Value]:
        return {
            "end_date": after(
                row["start_date"], rng.choice((56, 70, 84, 91, 120, rng.randint(40, 150)))
            )
        }

    sheet.edit("artworks", artwork)
    sheet.edit("exhibitions", exhibition)
    exhibitions = sheet.records("exhibitions")
    full = {key: rng.choice((12.0, 14.0, 15.0, 16.5, 18.0)) for key in exhibitions}

    def visit(row: dict[str, Value]) -> dict[str, Value]:
        shown = whole(row["exhibition_id"])
        exhibition = exhibitions[shown]
        return {
            "visit_date": between(rng, exhibition["start_date"], exhibition["end_date"]),
            "ticket_price": round(full[shown] * SHARE[str(row["ticket_type"])], 2),
        }

    sheet.edit("visits", visit)


SHIPPED = Shipped(MUSEUM, finish)
