"""A music label: artists, albums, tracks, venues and concerts. Names are in CamelCase."""

import random

from data.domains import values as v
from data.domains.lexicon import (
    FIRST_NAMES,
    LAST_NAMES,
    RARE_FIRST_NAMES,
    RARE_LAST_NAMES,
    STREET_HEADS,
    listed,
)
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

HEADS = listed(
    "Velvet Paper Neon Electric Midnight Silver Hollow Crimson Northern Wild Plastic Golden Static Copper Lunar"
)
TAILS = listed(
    "Foxes Rivers Parade Engines Gardens Wolves Choir Satellites Tigers Mirrors Riot Avenue Lanterns Echoes"
)
VERBS = listed(
    "Running Falling Waiting Dancing Dreaming Drifting Burning Breathing Driving Leaving"
)
NOUNS = listed(
    "Fire Rain Morning Heart Road City Summer Ocean Shadow Telephone Diamond Thunder Window Sunday Gravity Café Mañana"
)

HARD = (
    HardQuestion(
        "The tracks of which artist have the most plays in total?",
        """
        SELECT a.Name
        FROM Artists AS a JOIN Albums AS b ON b.ArtistId = a.ArtistId JOIN Tracks AS t ON t.AlbumId = b.AlbumId
        GROUP BY a.ArtistId
        ORDER BY SUM(t.Plays) DESC LIMIT 1
        """,
    ),
    HardQuestion(
        "Which album is the longest, by the total duration of its tracks?",
        """
        SELECT b.Title
        FROM Albums AS b JOIN Tracks AS t ON t.AlbumId = b.AlbumId
        GROUP BY b.AlbumId
        ORDER BY SUM(t.DurationSeconds) DESC LIMIT 1
        """,
    ),
    HardQuestion(
        "Which artists have never given a concert, in alphabetical order?",
        """
        SELECT a.Name
        FROM Artists AS a
        WHERE NOT EXISTS (SELECT 1 FROM Concerts AS c WHERE c.ArtistId = a.ArtistId)
        ORDER BY a.Name
        """,
    ),
    HardQuestion(
        "For each genre, how many concerts sold at least 95 percent of the venue's capacity? Give genre and "
        "number, with the genres in alphabetical order.",
        """
        SELECT a.Genre, COUNT(*) AS concerts
        FROM Concerts AS c JOIN Artists AS a ON a.ArtistId = c.ArtistId JOIN Venues AS v ON v.VenueId = c.VenueId
        WHERE c.TicketsSold >= 0.95 * v.Capacity
        GROUP BY a.Genre
        ORDER BY a.Genre
        """,
    ),
    HardQuestion(
        "What is the average time, in days, between the signing of an artist and the artist's first album? "
        "Round to 1 decimal.",
        """
        SELECT ROUND(AVG(julianday(first_album) - julianday(signed)), 1)
        FROM (SELECT a.SignedDate AS signed, MIN(b.ReleaseDate) AS first_album FROM Artists AS a JOIN Albums AS b ON
          b.ArtistId = a.ArtistId GROUP BY a.ArtistId)
        """,
    ),
    HardQuestion(
        "In which city has the highest concert revenue been earned in 2023?",
        """
        SELECT v.City
        FROM Venues AS v JOIN Concerts AS c ON c.VenueId = v.VenueId
        WHERE c.ConcertDate LIKE '2023-%'
        GROUP BY v.City
        ORDER BY SUM(c.Revenue) DESC LIMIT 1
        """,
    ),
    HardQuestion(
        "How many artists have released albums in all three formats?",
        """
        SELECT COUNT(*)
        FROM (SELECT ArtistId FROM Albums GROUP BY ArtistId HAVING COUNT(DISTINCT Format) = 3)
        """,
    ),
    HardQuestion(
        "Which rock artists have played in at least 8 different venues?",
        """
        SELECT a.Name
        FROM Artists AS a JOIN Concerts AS c ON c.ArtistId = a.ArtistId
        WHERE a.Genre = 'rock'
        GROUP BY a.ArtistId
        HAVING COUNT(DISTINCT c.VenueId) >= 8
        """,
    ),
    HardQuestion(
        "How many track titles are used by tracks of more than two different artists?",
        """
        SELECT COUNT(*)
        FROM (SELECT t.Title FROM Tracks AS t JOIN Albums AS b ON b.AlbumId = t.AlbumId GROUP BY t.Title HAVING
          COUNT(DISTINCT b.ArtistId) > 2)
        """,
    ),
    HardQuestion(
        "What percentage of all plays goes to the 10 most played tracks? Round to 2 decimals.",
        """
        SELECT ROUND(100.0 * (SELECT SUM(Plays) FROM (SELECT Plays FROM Tracks ORDER BY Plays DESC LIMIT 10)) /
          (SELECT SUM(Plays) FROM Tracks), 2)
        """,
    ),
    HardQuestion(
        "What is the title of the most played track of each genre? Give genre and title, with the genres in "
        "alphabetical order.",
        """
        WITH ranked AS (SELECT a.Genre AS genre, t.Title AS title, RANK() OVER (PARTITION BY a.Genre ORDER BY
          t.Plays DESC) AS place FROM Tracks AS t JOIN Albums AS b ON b.AlbumId = t.AlbumId JOIN Artists AS a ON
          a.ArtistId = b.ArtistId WHERE t.Plays IS NOT NULL) SELECT genre, title
        FROM ranked
        WHERE place = 1
        ORDER BY genre
        """,
    ),
    HardQuestion(
        "How many concerts took place within 30 days after the same artist released an album?",
        """
        SELECT COUNT(*)
        FROM Concerts AS c
        WHERE EXISTS (SELECT 1 FROM Albums AS b WHERE b.ArtistId = c.ArtistId AND julianday(c.ConcertDate) -
          julianday(b.ReleaseDate) BETWEEN 0 AND 30)
        """,
    ),
)

MUSIC = Domain(
    db_id="music_label",
    title="A record label",
    tables=(
        Table(
            "Artists",
            "artist",
            "artists",
            (
                key("ArtistId"),
                name(
                    "Name",
                    v.composed(
                        ("{head} {tail}", "The {head} {tail}", "{first} {last}", "{first} {last}"),
                        unique=True,
                        head=HEADS,
                        tail=TAILS,
                        first=FIRST_NAMES + RARE_FIRST_NAMES,
                        last=LAST_NAMES + RARE_LAST_NAMES,
                    ),
                    "name",
                ),
                category(
                    "Genre",
                    v.skewed_choice(
                        ["rock", "pop", "jazz", "folk", "electronic", "hip hop", "classical"]
                    ),
                    "genre",
                ),
                category("Country", v.countries(12, null=0.05), "country"),
                date("SignedDate", v.dates("2003-01-01", "2019-12-31"), "signing date"),
            ),
            66,
        ),
        Table(
            "Albums",
            "album",
            "albums",
            (
                key("AlbumId"),
                name(
                    "Title",
                    v.composed(
                        (
                            "{noun}",
                            "{verb} {noun}",
                            "{noun} and {other}",
                            "The {head} {noun}",
                            "{verb} in the {other}",
                        ),
                        unique=True,
                        noun=NOUNS,
                        other=STREET_HEADS,
                        verb=VERBS,
                        head=HEADS,
                    ),
                    "title",
                ),
                ref("ArtistId", "Artists", "artist"),
                date("ReleaseDate", v.dates("2006-01-01", "2024-05-31"), "release date"),
                category("Format", v.choice(["digital", "vinyl", "CD"], [52, 27, 21]), "format"),
                real(
                    "Price",
                    v.choice([7.99, 8.99, 9.99, 11.99, 12.5, 14.99, 19.99, 24.99], null=0.04),
                    "price",
                ),
            ),
            190,
        ),
        Table(
            "Tracks",
            "track",
            "tracks",
            (
                key("TrackId"),
                name(
                    "Title",
                    v.composed(
                        (
                            "{noun}",
                            "{verb}",
                            "{verb} {noun}",
                            "{noun} {other}",
                            "{head} {noun}",
                            "No More {noun}",
                            "{verb} for {first}",
                            "Dear {first}",
                            "{number} {things}",
                        ),
                        noun=NOUNS,
                        verb=VERBS,
                        head=HEADS,
                        other=listed("Song Blues Waltz Interlude Theme Remix Lullaby"),
                        first=FIRST_NAMES,
                        things=listed(
                            "Fires Mornings Hearts Roads Cities Summers Oceans Shadows Diamonds Windows Sundays"
                        ),
                        number=listed("Two Seven Hundred Thousand"),
                    ),
                    "title",
                ),
                ref("AlbumId", "Albums", "album"),
                integer("DurationSeconds", v.integers(88, 540), "duration", "duration in seconds"),
                integer("Plays", v.integers(300, 980000, null=0.03, skew=True), "plays"),
            ),
            1500,
        ),
        Table(
            "Venues",
            "venue",
            "venues",
            (
                key("VenueId"),
                name(
                    "Name",
                    v.composed(
                        ("The {head} {room}", "{street} {room}"),
                        unique=True,
                        head=HEADS,
                        street=STREET_HEADS,
                        room=listed("Hall Arena Club Theatre Ballroom Lounge"),
                    ),
                    "name",
                ),
                category("City", v.cities(14), "city"),
                integer("Capacity", v.integers(120, 18000, skew=True), "capacity"),
            ),
            36,
        ),
        Table(
            "Concerts",
            "concert",
            "concerts",
            (
                key("ConcertId"),
                ref("ArtistId", "Artists", "artist"),
                ref("VenueId", "Venues", "venue"),
                date("ConcertDate", v.dates("2020-06-01", "2024-06-30"), "concert date"),
                integer("TicketsSold", v.integers(40, 18000, null=0.05), "sold tickets"),
                real("Revenue", v.reals(500, 800000), "revenue"),
            ),
            480,
        ),
    ),
    hard=HARD,
)


def finish(sheet: Sheet, rng: random.Random) -> None:
    """Albums follow the contract; a concert sells no more than its venue holds, and a cancelled one
    sells nothing."""
    artists, venues = sheet.records("Artists"), sheet.records("Venues")

    def album(row: dict[str, Value]) -> dict[str, Value]:
        return {
            "ReleaseDate": between(rng, artists[whole(row["ArtistId"])]["SignedDate"], "2024-05-31")
        }

    def concert(row: dict[str, Value]) -> dict[str, Value]:
        if row["TicketsSold"] is None:
            return {"Revenue": None}
        sold = int(
            whole(venues[whole(row["VenueId"])]["Capacity"])
            * (0.25 + 0.75 * max(rng.random(), rng.random()))
        )
        return {
            "TicketsSold": sold,
            "Revenue": round(sold * rng.choice((18.5, 22.0, 27.5, 35.0, 42.0, 60.0)), 2),
        }

    sheet.edit("Albums", album)
    sheet.edit("Concerts", concert)


SHIPPED = Shipped(MUSIC, finish)
