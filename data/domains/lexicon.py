"""Word lists of the cell makers. The RARE lists hold names with letters that are not ASCII."""


def listed(text: str) -> tuple[str, ...]:
    """The words of `text`, separated by `|`, or by white space where it has no `|`."""
    return tuple(word.strip() for word in (text.split("|") if "|" in text else text.split()))


FIRST_NAMES = listed(
    "Aaron Abigail Adam Adele Agnes Aisha Alan Albert Alice Amara Amelia Amir Ana Andrew Anita Anna Anthony "
    "Anton Arthur Asha Astrid Barbara Beatrice Ben Bianca Boris Brian Bruno Camila Carl Carmen Caroline "
    "Cecilia Charles Chen Chloe Clara Colin Connor Daisy Daniel Daria David Deepa Diana Diego Dmitri Dora "
    "Edith Edward Elena Eli Elias Elif Elise Ella Emil Emily Emma Enzo Eric Erica Esther Ethan Eva Fatima "
    "Felix Fiona Flora Frank Freya Gabriel Gemma George Gina Grace Greta Hana Hannah Harold Harry Hassan "
    "Hazel Helen Henry Hiro Hugo Ida Igor Ines Ingrid Irene Iris Isaac Isabel Ivan Jack Jacob James Jane "
    "Jasmin Jason Jean Jenna Joan Joel Johan John Jonas Joseph Judith Julia Karim Karin Kate Keiko Kenji "
    "Kevin Kiran Klaus Kofi Lara Laura Layla Leah Lena Leo Leon Lila Lily Linda Lisa Lucas Lucia Luis Luna "
    "Maya Marco Maria Marie Mark Marta Martin Matteo Max Mei Mia Michael Mila Mina Mira Mohamed Monica Nadia "
    "Naomi Nathan Neil Nina Noah Nora Oliver Olga Omar Oscar Otto Pablo Paula Peter Petra Philip Priya Rachel "
    "Rafael Raj Ravi Rita Robert Rosa Ruby Ruth Ryan Sam Samira Sara Sasha Simon Sofia Stella Stephen Sven "
    "Tara Teresa Thomas Tina Tobias Tom Uma Ursula Vera Victor Viola Walter Wei Wendy Will Yara Yusuf Zara"
)
RARE_FIRST_NAMES = listed(
    "José Zoë Łukasz Björn Chloé François Jürgen Renée Søren Núria Ágnes Íñigo Åsa Žofia Çağla Małgorzata "
    "Andrés Hélène Günther Đorđe Σοφία Юлия 健太 美咲"
)
LAST_NAMES = listed(
    "Abbott Adams Ahmed Allen Andersen Andrade Archer Bailey Baker Barnes Barros Becker Bell Bennett Berg "
    "Bianchi Bishop Blake Bond Brandt Brooks Brown Burke Byrne Campbell Carlson Carr Carter Castro Chan "
    "Chapman Chen Clarke Cole Collins Conti Cook Cooper Costa Cox Cruz Dahl Dalton Davies Dean Delgado Desai "
    "Dixon Doyle Duarte Dubois Dunn Eaton Ekberg Ellis Engel Evans Farrell Ferrari Fischer Fisher Flores "
    "Foster Fox Frank Fuchs Garcia Gibson Gomez Gordon Graham Grant Gray Green Gupta Haas Hale Hall Hansen "
    "Harper Harris Hart Hayes Herrera Hill Hoffman Holm Hughes Hunt Ito Ivanov Jackson Jansen Jensen Johnson "
    "Jones Joshi Kaplan Kaur Keller Kelly Khan Kim King Klein Koch Kovacs Kruger Kumar Lambert Lang Larsen "
    "Lee Lewis Li Lindgren Long Lopez Lund Ma Marino Marsh Martin Mason Mbeki Mehta Mendes Meyer Miller Mills "
    "Mori Morris Moss Murphy Nash Nelson Nguyen Nilsen Novak Nunez Okafor Olsen Ortiz Osei Owens Palmer Park "
    "Parker Patel Pereira Perry Peters Phillips Popov Porter Powell Price Quinn Ramos Reed Reid Reyes Rice "
    "Rivera Roberts Romano Rossi Roy Russo Ryan Saito Santos Sato Schmidt Scott Shah Sharma Silva Singh Smith "
    "Soto Stein Stone Suzuki Tanaka Taylor Torres Tran Turner Vargas Vega Vogel Wagner Walker Wallace Wang "
    "Ward Watson Webb Weber West White Wolf Wong Wood Wright Wu Yang Yilmaz Young Zhang Ziegler"
)
RARE_LAST_NAMES = listed(
    "Müller Gonçalves Peña Ibáñez Kowalczyk-Żak Sørensen Nyström Dvořák Çelik Muñoz Łuczak Fernández Lefèvre "
    "Größl Åkesson O'Brien D'Angelo Şahin Petrović 山本 Παππάς"
)
CITIES = listed(
    "Aberdeen|Accra|Adelaide|Amsterdam|Antwerp|Athens|Atlanta|Auckland|Austin|Bangkok|Barcelona|Bergen|"
    "Berlin|Bologna|Boston|Bremen|Brisbane|Bristol|Brussels|Budapest|Cairo|Calgary|Cape Town|Cardiff|Chicago|"
    "Cork|Dakar|Dallas|Delhi|Denver|Dublin|Durban|Edinburgh|Florence|Geneva|Genoa|Ghent|Glasgow|Granada|"
    "Hamburg|Hanoi|Helsinki|Houston|Istanbul|Jakarta|Kyoto|Lagos|Leeds|Lima|Lisbon|Liverpool|London|Lyon|"
    "Madrid|Manila|Marseille|Melbourne|Mexico City|Milan|Montreal|Mumbai|Munich|Nairobi|Naples|New York|Nice|"
    "Osaka|Oslo|Ottawa|Oxford|Paris|Perth|Porto|Portland|Prague|Quito|Riga|Rome|Rotterdam|Salzburg|Santiago|"
    "Seattle|Seoul|Seville|Sheffield|Singapore|Sofia|Sydney|Taipei|Tallinn|Tampa|Toronto|Toulouse|Tunis|"
    "Turin|Utrecht|Valencia|Venice|Vienna|Vilnius|Warsaw|Wellington|York|Zagreb"
)
RARE_CITIES = listed(
    "São Paulo|Zürich|Kraków|Malmö|Bogotá|Köln|Reykjavík|İzmir|Córdoba|Łódź|Québec|東京|Αθήνα|Århus"
)
COUNTRIES = listed(
    "Argentina|Australia|Austria|Belgium|Brazil|Canada|Chile|China|Colombia|Croatia|Denmark|Egypt|Estonia|"
    "Finland|France|Germany|Ghana|Greece|Hungary|Iceland|India|Ireland|Italy|Japan|Kenya|Latvia|Mexico|"
    "Morocco|Netherlands|New Zealand|Nigeria|Norway|Peru|Poland|Portugal|Romania|Senegal|Serbia|Slovenia|"
    "South Africa|South Korea|Spain|Sweden|Switzerland|Thailand|Tunisia|Turkey|Uruguay|Vietnam|Zambia"
)
RARE_COUNTRIES = listed("Côte d'Ivoire|México|Türkiye|Curaçao|Réunion")
COMPANY_HEADS = listed(
    "Alpine Amber Anchor Apex Arrow Ashford Atlas Aurora Beacon Birch Blue Bright Canyon Cedar Central City "
    "Clear Coastal Copper Crown Delta Eagle East Echo Ember Evergreen Falcon First Forge Fox Garden Golden "
    "Granite Green Harbor Heron High Horizon Iron Island Ivory Jade Juniper Keystone Lake Lark Laurel Lime "
    "Lotus Lunar Maple Marble Meadow Metro Mill Modern Noble North Oak Ocean Olive Onyx Orchard Origin Otter "
    "Pacific Pearl Pine Pioneer Polar Prime Quarry Rapid Raven Red Ridge River Robin Royal Ruby Saffron Sage "
    "Sierra Silver Solar South Spruce Star Sterling Stone Summit Sun Swift Terra Tidal Timber Union Urban "
    "Valley Velvet Vista West White Willow Winter"
)
COMPANY_TAILS = listed(
    "Analytics Bakery Books Brands Brewing Builders Capital Catering Coffee Consulting Dairy Design Digital "
    "Electric Energy Farms Fashion Foods Foundry Freight Furniture Health Holdings Imports Industries "
    "Insurance Labs Logistics Media Motors Outdoor Partners Pharma Press Records Robotics Seafood Software "
    "Stores Studio Supplies Systems Textiles Tools Toys Traders Travel Works"
)
COMPANY_SUFFIXES = listed("& Sons|& Co|Brothers|Group|& Partners|Ltd")
MAIL_DOMAINS = listed("example.com example.org example.net mail.example post.example")
STREET_HEADS = listed(
    "Abbey Acorn Ash Bank Birch Bridge Canal Castle Cedar Chapel Church Clover College Elm Ferry Field Forest "
    "Garden Glen Green Grove Harbor High Hill King Lake Linden Market Meadow Mill Oak Orchard Park Pine "
    "Poplar Queen River Rose School Spring Station Sunset Temple Union Vine Walnut Willow"
)
STREET_TAILS = listed("Street Road Lane Avenue Court Place Row Drive")
