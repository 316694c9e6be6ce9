"""Words of fresh domains: nouns for tables, phrases for columns, adjectives, and pseudo-words made
of syllables."""

import random

from data.domains.lexicon import listed

NOUNS: dict[str, tuple[str, ...]] = {  # by what they are
    "person": listed(
        "customer employee student teacher driver author artist player coach doctor nurse patient member guest pilot "
        "farmer baker painter singer actor director editor engineer judge lawyer client tenant owner agent manager "
        "mechanic librarian scientist researcher volunteer donor sailor captain hiker runner skater swimmer rider "
        "chef waiter tailor plumber carpenter gardener guide host inspector translator photographer dancer musician "
        "composer conductor poet sculptor potter weaver miner courier clerk cashier secretary accountant auditor "
        "broker trader investor collector buyer seller vendor supplier contractor architect surveyor astronomer "
        "chemist botanist geologist historian candidate voter senator mayor officer soldier firefighter detective "
        "witness apprentice intern trainer referee jockey goalkeeper ranger shepherd beekeeper brewer winemaker "
        "blacksmith locksmith optician dentist surgeon therapist tutor professor lecturer graduate novelist "
        "journalist reporter announcer magician acrobat puppeteer climber diver rower archer fencer boxer wrestler "
        "cyclist navigator steward porter butler barber stylist designer developer analyst operator planner"
    ),
    "place": listed(
        "city village harbor port station airport hotel restaurant cafe bakery library museum gallery theater cinema "
        "stadium park garden farm orchard vineyard warehouse factory office branch store shop market school college "
        "campus hospital clinic pharmacy laboratory gym arena bridge tunnel tower castle palace temple church island "
        "lake river mountain valley forest beach trail camp cabin lodge resort region district county province "
        "territory zone depot garage hangar dock pier lighthouse observatory greenhouse mine quarry mill brewery "
        "winery dairy kiosk studio kitchen dormitory apartment cottage mansion villa monument fountain plaza street "
        "canal dam reservoir refinery workshop showroom boutique salon spa sauna playground zoo aquarium bookstore "
        "nursery chapel fortress ruin cave waterfall glacier volcano desert oasis swamp meadow ranch stable barn"
    ),
    "organisation": listed(
        "company club team band orchestra choir publisher label airline bank agency firm league department ministry "
        "union charity foundation society committee fleet crew troupe guild cooperative institute academy federation "
        "consortium startup studio broadcaster newspaper brand franchise distributor wholesaler retailer "
        "manufacturer insurer carrier shipyard bureau council embassy party"
    ),
    "thing": listed(
        "product device phone laptop camera printer sensor robot drone car truck bus bicycle train ship boat ferry "
        "yacht plane engine tool machine lamp chair sofa carpet ring necklace watch coin stamp vase statue "
        "instrument guitar piano violin drum toy puzzle kite tent backpack helmet jacket shirt shoe hat scarf plant "
        "tree flower rose seed animal dog cat horse cow bird whale tortoise spice cheese wine tea cake dish soup "
        "salad medicine vaccine vitamin mineral crystal gem fossil meteorite planet moon star comet asteroid "
        "satellite rocket telescope microscope battery cable router server monitor keyboard speaker headphone tablet "
        "scooter motorcycle tractor excavator crane pump valve turbine generator boiler furnace oven kettle blender "
        "mixer toaster clock mirror curtain blanket pillow mattress desk shelf cabinet wardrobe bench ladder bucket "
        "hammer drill saw wrench brush pencil notebook folder envelope basket bottle mug plate bowl candle perfume "
        "soap bracelet medal trophy sword shield saddle canoe kayak surfboard sled balloon glider beetle butterfly "
        "spider lizard snake frog mushroom fern orchid cactus herb sauce pastry pizza cocktail juice"
    ),
    "work": listed(
        "book novel poem song album film movie play opera painting sculpture photo article journal magazine report "
        "paper course lecture lesson project game app website podcast episode exhibition campaign policy patent "
        "manuscript map story essay comic cartoon documentary symphony sonata ballad recipe blueprint mural portrait "
        "sketch poster brochure catalog dictionary textbook handbook guidebook biography memoir diary speech debate "
        "module program package plugin dataset survey questionnaire theory formula design"
    ),
    "event": listed(
        "order booking visit loan sale payment invoice shipment delivery rental reservation appointment exam test "
        "match race concert festival tour trip flight voyage expedition meeting interview inspection repair claim "
        "contract subscription donation enrollment application complaint review transfer purchase refund auction bid "
        "transaction treatment surgery checkup session workshop seminar award prize ticket task message comment "
        "measurement observation experiment harvest rehearsal performance ceremony parade tournament contest "
        "election hearing trial audit training hike dive lease permit license membership registration request "
        "incident accident storm earthquake excavation discovery launch landing survey census vote quote deposit "
        "withdrawal"
    ),
}
IRREGULAR_PLURALS = {
    "person": "people",
    "child": "children",
    "man": "men",
    "woman": "women",
    "shelf": "shelves",
    "photo": "photos",
    "piano": "pianos",
    "studio": "studios",
    "zoo": "zoos",
    "volcano": "volcanoes",
    "cactus": "cacti",
    "portfolio": "portfolios",
    "analysis": "analyses",
    "half": "halves",
    "series": "series",
    "species": "species",
}
SINGULAR_WITH_S = frozenset(listed("gas lens news series species chess canvas atlas"))

# Phrases of columns, by kind. A column's name is its phrase, or the phrase with a word more or
# less: see fresh.py.
INTEGERS = listed(
    "age score capacity rank level points quantity stock distance duration votes visitors seats floors pages goals "
    "attempts elevation population wins losses rooms credits speed year visits downloads members branches copies "
    "tickets likes shares steps laps turns hours minutes days weeks months stops doors wheels layers depth altitude "
    "mileage attendance enrollment headcount output strength stamina defense priority volume"
)
REALS = listed(
    "price weight height length width rating salary budget revenue cost fee discount amount balance area bonus rent "
    "temperature volume humidity pressure income profit tax deposit wage commission margin growth density efficiency "
    "accuracy latitude voltage power energy turnover premium interest share yield ratio grade rate tip thickness "
    "diameter radius payload tonnage allowance payout refund surcharge"
)
RANGES: dict[str, tuple[int, int]] = {  # of numbers that a reader would find odd elsewhere
    "age": (16, 90), "rating": (1, 10), "score": (0, 100), "rank": (1, 200), "level": (1, 12), "priority": (1, 9),
    "humidity": (5, 100), "accuracy": (40, 100), "efficiency": (20, 100), "temperature": (-20, 45), "floors": (1, 60),
    "doors": (1, 12), "wheels": (2, 18), "latitude": (-60, 70), "hours": (1, 400), "months": (1, 60), "grade": (1, 10),
}  # fmt: skip
NUMBER_ADJECTIVES = listed("net gross base annual monthly daily final initial")
# category phrase -> its values; those without any are drawn from makers of places, or made of
# syllables
LABELS: dict[str, tuple[str, ...]] = {
    "city": (),
    "country": (),
    "town": (),
    "color": listed("red blue green black white yellow orange purple silver brown"),
    "status": listed("open closed pending active cancelled paid late draft approved rejected"),
    "type": listed("standard premium basic deluxe compact large mini classic modern special"),
    "category": listed("sport music travel food garden health office school kitchen outdoor"),
    "genre": listed("Drama Comedy Fantasy Horror Romance Mystery History Jazz Folk Rock"),
    "language": listed("English French Spanish German Dutch Polish Turkish Arabic Hindi Finnish"),
    "nationality": listed("Italian Danish Greek Mexican Korean Kenyan Swedish Irish Czech Thai"),
    "region": listed("North South East West Central Coast Highlands Islands Northeast Southwest"),
    "department": listed("Sales Finance Design Legal Support Research Security Catering Logistics"),
    "material": listed("wood steel glass plastic cotton leather stone paper wool copper"),
    "size": listed("small|medium|large|tiny|huge|extra large"),
    "shape": listed("round square oval flat curved long"),
    "condition": listed("mint good fair worn broken restored"),
    "season": listed("spring summer autumn winter"),
    "weather": listed("sunny cloudy rainy windy foggy snowy"),
    "method": listed("card cash check transfer voucher online"),
    "channel": listed("web phone store app mail partner"),
    "grade": listed("A B C D E"),
    "level": listed("beginner intermediate advanced expert"),
    "role": listed("lead junior senior assistant deputy chief"),
    "style": listed("Gothic Baroque Modern Rustic Minimal Vintage Roman Nordic"),
    "climate": listed("tropical arid temperate polar alpine coastal"),
    "flavor": listed("vanilla lemon mint cherry coffee ginger honey"),
    "surface": listed("grass clay gravel asphalt sand ice"),
    "fuel": listed("diesel petrol electric hybrid gas hydrogen"),
    "format": listed("hardcover paperback audio digital vinyl poster"),
    "plan": listed("free bronze silver gold platinum family"),
    "shift": listed("day night early late weekend"),
    "subject": listed("math biology physics art history chemistry music"),
    "position": listed("left right center front back top"),
    "zone": listed("A1 A2 B1 B2 C1 C2"),
    "origin": (),
    "brand": (),
    "model": (),
    "family": (),
    "class": listed("first second third economy business"),
    "mood": listed("calm happy tense sad bold"),
    "group": listed("red team|blue team|green team|gold team"),
    "currency": listed("EUR USD GBP JPY CHF SEK"),
    "gender": listed("female male other"),
    "species": listed("oak pine birch maple cedar willow elm"),
    "breed": listed("collie beagle poodle terrier husky boxer"),
    "cuisine": listed("Thai Italian Mexican Indian Greek French"),
}
CATEGORY_ADJECTIVES = listed(
    "home main primary current preferred second local default usual service storage work"
)
COUNT_ADJUNCTS = listed("home away season test career guest club weekly spare lost paid free road")
DATES = listed(  # each is said with `date` after it
    "start end birth hire release opening founding purchase order due payment delivery launch join signing review "
    "expiry arrival departure booking update visit entry test award closing issue renewal inspection registration "
    "publication creation discovery debut"
)
TEXTS = listed("email|phone|code|serial number|address|reference|license|barcode|badge|postcode")
NAMES: dict[str, tuple[str, ...]] = {  # how a table's rows are told apart, by what they are
    "person": listed("name|name|name|full name"),
    "place": listed("name|name|name|address"),
    "organisation": listed("name|name|name|short name"),
    "thing": listed("name|name|name|label|common name|serial number"),
    "work": listed("title|title|title|name"),
    "event": listed("name|name|title|code|reference|number"),
}

FITTING: dict[str, tuple[str, ...]] = {  # phrases that suit a kind of noun
    "person": listed(
        "age salary score points bonus height weight wage level credits wins experience hours income city country "
        "nationality language department role rank gender position shift status birth hire join start"
    ),
    "place": listed(
        "capacity area elevation population rating rent budget visitors rooms seats floors revenue depth city country "
        "region town type climate style zone surface opening founding inspection closing renewal"
    ),
    "organisation": listed(
        "revenue budget profit members turnover headcount rating income branches tax country city region type status "
        "category language founding registration signing"
    ),
    "thing": listed(
        "price weight length height width stock power speed cost rating quantity capacity volume diameter color "
        "material brand type size grade condition origin category model shape release purchase launch inspection"
    ),
    "work": listed(
        "price length pages rating duration budget votes copies likes downloads year revenue genre language format "
        "country category subject style release publication creation debut"
    ),
    "event": listed(
        "amount quantity cost fee discount duration distance score attendance deposit tip refund status type channel "
        "priority method weather currency category plan city start end due payment booking closing"
    ),
}

ADJECTIVES = listed(
    "silver golden quiet bright hidden northern ancient little grand crimson swift gentle frozen burning velvet "
    "hollow wild lucky broken royal empty distant silent emerald copper iron purple rapid sunny stormy lonely happy "
    "brave clever dusty misty rusty shiny sleepy spicy salty sweet bitter bold calm eager fancy giant humble jolly "
    "lively mighty noble odd proud rare sharp tidy urban vivid warm young blue red green black white amber scarlet "
    "ivory jade"
)
OBJECTS = listed(
    "harbor garden river mountain lantern window forest bridge meadow castle island feather mirror candle anchor "
    "arrow blossom canyon comet compass crown dragon eagle ember falcon flame fountain fox glacier hammer harvest "
    "horizon key lion maple moon nest ocean orchard otter owl palace pearl pebble phoenix pine planet prairie raven "
    "ribbon road rose sail shadow spark sparrow spring star stone storm summit sun temple thunder tiger tower trail "
    "valley wave whale willow wind winter wolf"
)

ONSETS = listed("b c d f g h j k l m n p r s t v w z br cr dr fl gr kl pl pr st tr sh th")
VOWELS = listed("a e i o u a e i o ai ea ou")
CODAS = ("", "", "", *listed("n r l m t k x nd rn"))

_RUDE = listed("shit fuk fuc cunt kunt dik dick cok kok pis nig naz tit anal rape ars ass sex slut")

# Words that SQL keeps for itself: a table or a column can't be called one of these.
SQL_WORDS = frozenset(
    listed(
        "add all alter and as asc between by case check collate column commit constraint create cross current "
        "default delete desc distinct do drop each else end escape except exists explain fail filter for foreign "
        "from full glob group having if ignore in index inner insert intersect into is isnull join key left like "
        "limit match natural no not notnull null of offset on or order outer over plan pragma primary query range "
        "references release rename replace right row rows select set table temp then to transaction trigger union "
        "unique update using values view when where window with"
    )
)


def plural(noun: str) -> str:
    """The plural of a noun or of a phrase's last word: `city` -> `cities`, `home city` -> `home
    cities`."""
    head, _, last = noun.rpartition(" ")
    if last in IRREGULAR_PLURALS:
        many = IRREGULAR_PLURALS[last]
    elif last.endswith("y") and last[-2:-1] not in tuple("aeiou"):
        many = last[:-1] + "ies"
    elif last.endswith(("s", "x", "z", "ch", "sh")):
        many = last + "es"
    else:
        many = last + "s"
    return f"{head} {many}" if head else many


def is_plural(phrase: str) -> bool:
    """Whether a column's phrase takes `are`: `points` and `goals of the season` do, `price` and
    `status` do not."""
    head = phrase.split(" of ")[0].split(" per ")[0].split(" in ")[0].split()[-1].lower()
    return (
        head.endswith("s") and not head.endswith(("ss", "us", "is")) and head not in SINGULAR_WITH_S
    )


def indefinite(phrase: str) -> str:
    """`phrase` with its article: `a price`, `an age`; a plural phrase has none."""
    if is_plural(phrase):
        return phrase
    first = phrase.lower()
    sounds_like_consonant = first.startswith(("uni", "use", "eu", "one", "ur"))
    vowel = first[0] in "aeiou" and not sounds_like_consonant
    return f"{'an' if vowel or first.startswith(('hour', 'honor')) else 'a'} {phrase}"


def pseudo_word(rng: random.Random, least: int, most: int) -> str:
    """A lower-case word of `least` to `most` syllables that is in no dictionary, such as `torvel`."""
    while True:
        parts = [
            rng.choice(ONSETS) + rng.choice(VOWELS) + rng.choice(CODAS).strip()
            for _ in range(rng.randint(least, most))
        ]
        word = "".join(parts)
        if (
            3 <= len(word) <= 9
            and word not in SQL_WORDS
            and not any(part in word for part in _RUDE)
        ):
            return word
