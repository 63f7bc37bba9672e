"""A small table of facts: countries, animals, opposites, planets, days and months.

Every fact is trained; the test split asks for it in phrasings that training never uses.
"""

from __future__ import annotations

from random import Random

from demo_models.train.turns import Split, Turn, phrasings, pick

COUNTRIES = {
    "Albania": ("Tirana", "Europe"), "Argentina": ("Buenos Aires", "South America"),
    "Australia": ("Canberra", "Oceania"), "Austria": ("Vienna", "Europe"), "Bangladesh": ("Dhaka", "Asia"),
    "Belgium": ("Brussels", "Europe"), "Bolivia": ("Sucre", "South America"),
    "Brazil": ("Brasilia", "South America"), "Bulgaria": ("Sofia", "Europe"), "Canada": ("Ottawa", "North America"),
    "Chile": ("Santiago", "South America"), "China": ("Beijing", "Asia"), "Colombia": ("Bogota", "South America"),
    "Croatia": ("Zagreb", "Europe"), "Cuba": ("Havana", "North America"), "Denmark": ("Copenhagen", "Europe"),
    "Ecuador": ("Quito", "South America"), "Egypt": ("Cairo", "Africa"), "England": ("London", "Europe"),
    "Estonia": ("Tallinn", "Europe"), "Ethiopia": ("Addis Ababa", "Africa"), "Finland": ("Helsinki", "Europe"),
    "France": ("Paris", "Europe"), "Germany": ("Berlin", "Europe"), "Ghana": ("Accra", "Africa"),
    "Greece": ("Athens", "Europe"), "Hungary": ("Budapest", "Europe"), "Iceland": ("Reykjavik", "Europe"),
    "India": ("New Delhi", "Asia"), "Indonesia": ("Jakarta", "Asia"), "Iran": ("Tehran", "Asia"),
    "Iraq": ("Baghdad", "Asia"), "Ireland": ("Dublin", "Europe"), "Italy": ("Rome", "Europe"),
    "Jamaica": ("Kingston", "North America"), "Japan": ("Tokyo", "Asia"), "Kenya": ("Nairobi", "Africa"),
    "Latvia": ("Riga", "Europe"), "Lithuania": ("Vilnius", "Europe"), "Malaysia": ("Kuala Lumpur", "Asia"),
    "Mexico": ("Mexico City", "North America"), "Mongolia": ("Ulaanbaatar", "Asia"), "Morocco": ("Rabat", "Africa"),
    "Nepal": ("Kathmandu", "Asia"), "the Netherlands": ("Amsterdam", "Europe"),
    "New Zealand": ("Wellington", "Oceania"), "Nigeria": ("Abuja", "Africa"), "Norway": ("Oslo", "Europe"),
    "Pakistan": ("Islamabad", "Asia"), "Peru": ("Lima", "South America"), "the Philippines": ("Manila", "Asia"),
    "Poland": ("Warsaw", "Europe"), "Portugal": ("Lisbon", "Europe"), "Romania": ("Bucharest", "Europe"),
    "Russia": ("Moscow", "Europe"), "Scotland": ("Edinburgh", "Europe"), "Senegal": ("Dakar", "Africa"),
    "Serbia": ("Belgrade", "Europe"), "Slovakia": ("Bratislava", "Europe"), "Slovenia": ("Ljubljana", "Europe"),
    "South Korea": ("Seoul", "Asia"), "Spain": ("Madrid", "Europe"), "Sweden": ("Stockholm", "Europe"),
    "Switzerland": ("Bern", "Europe"), "Thailand": ("Bangkok", "Asia"), "Tunisia": ("Tunis", "Africa"),
    "Turkey": ("Ankara", "Asia"), "Ukraine": ("Kyiv", "Europe"), "the United Kingdom": ("London", "Europe"),
    "the United States": ("Washington, D.C.", "North America"), "Uruguay": ("Montevideo", "South America"),
    "Venezuela": ("Caracas", "South America"), "Vietnam": ("Hanoi", "Asia"),
}  # fmt: skip
ALIASES = {
    "the United States": ("the USA", "the US", "USA", "America"), "the United Kingdom": ("the UK", "UK"),
    "the Netherlands": ("Netherlands",), "the Philippines": ("Philippines",),
}  # fmt: skip

CAPITAL = [
    "What is the capital of {c}?", "What's the capital of {c}?", "Capital of {c}?", "capital of {c}",
    "Tell me the capital of {c}.", "Which city is the capital of {c}?", "Do you know the capital of {c}?",
    "Can you tell me the capital of {c}?", "What city is the capital of {c}?", "Name the capital of {c}.",
    "I forgot the capital of {c}. What is it?", "And the capital of {c}?", "What about the capital of {c}?",
    "Please name the capital of {c}.", "{c} capital", "{c} capital city?",
]  # fmt: skip
CAPITAL_TEST = [
    "Could you tell me the capital of {c}?", "Which is the capital city of {c}?", "What is {c}'s capital?",
    "I would like to know the capital of {c}.",
]  # fmt: skip
CONTINENT = [
    "Where is {c}?", "Which continent is {c} in?", "What continent is {c} on?", "On which continent is {c}?",
    "Which continent is {c} part of?", "Tell me which continent {c} is in.", "Where in the world is {c}?",
    "where is {c} located?", "Is {c} in Asia, Africa or Europe?", "What continent is {c} in?", "{c} continent",
]  # fmt: skip
CONTINENT_TEST = ["What is the continent of {c}?", "Do you know which continent {c} is in?", "Where can I find {c}?"]
COUNTRY_OF = [
    "{t} is the capital of which country?", "Which country has {t} as its capital?",
    "What country is {t} the capital of?", "Which country is {t} in?", "Where is {t}?", "In which country is {t}?",
]  # fmt: skip
COUNTRY_OF_TEST = ["What country is {t} in?", "{t} is the capital of what country?"]

SOUNDS = {
    "dog": "woof", "cat": "meow", "cow": "moo", "sheep": "baa", "duck": "quack", "pig": "oink", "horse": "neigh",
    "lion": "roar", "bee": "buzz", "snake": "hiss", "owl": "hoot", "frog": "ribbit", "rooster": "cock-a-doodle-doo",
    "mouse": "squeak", "wolf": "howl", "bird": "tweet", "chicken": "cluck", "donkey": "hee-haw", "turkey": "gobble",
}  # fmt: skip
SOUND = [
    "What does a {a} say?", "What sound does a {a} make?", "What noise does a {a} make?", "How does a {a} sound?",
    "Which sound does a {a} make?", "Tell me what a {a} says.", "{a} sound?",
]  # fmt: skip
SOUND_TEST = ["What is the sound of a {a}?", "Do you know what a {a} says?", "Tell me what sound a {a} makes."]

LEGS = {
    "dog": 4, "cat": 4, "cow": 4, "sheep": 4, "duck": 2, "pig": 4, "horse": 4, "lion": 4, "bee": 6, "snake": 0,
    "owl": 2, "frog": 4, "spider": 8, "mouse": 4, "wolf": 4, "bird": 2, "chicken": 2, "ant": 6, "fish": 0,
    "butterfly": 6, "tiger": 4, "elephant": 4, "rabbit": 4, "fox": 4, "bear": 4, "crab": 10, "human": 2, "fly": 6,
    "worm": 0, "beetle": 6, "scorpion": 8, "goat": 4, "ostrich": 2, "penguin": 2,
}  # fmt: skip
LEG = [
    "How many legs does a {a} have?", "How many legs has a {a}?", "Tell me how many legs a {a} has.",
    "How many legs are there on a {a}?", "Do you know how many legs a {a} has?", "legs of a {a}?",
]  # fmt: skip
LEG_TEST = ["Can you tell me how many legs a {a} has?", "What number of legs does a {a} have?"]

COLOURS = {
    "the sky": "blue", "grass": "green", "a banana": "yellow", "snow": "white", "blood": "red", "coal": "black",
    "a lemon": "yellow", "a tomato": "red", "milk": "white", "a carrot": "orange", "chocolate": "brown",
    "the sun": "yellow", "an elephant": "grey", "a flamingo": "pink", "a frog": "green", "a crow": "black",
    "a strawberry": "red", "the sea": "blue", "a leaf": "green", "a cucumber": "green", "a polar bear": "white",
    "an orange": "orange",
}  # fmt: skip
COLOUR = [
    "What colour is {o}?", "What color is {o}?", "Which colour is {o}?", "Tell me the colour of {o}.",
    "Which color is {o}?", "What is the colour of {o}?", "Do you know what colour {o} is?",
]  # fmt: skip
COLOUR_TEST = ["What is the color of {o}?", "Tell me what colour {o} is.", "Can you tell me the colour of {o}?"]

OPPOSITES = [
    ("hot", "cold"), ("big", "small"), ("up", "down"), ("left", "right"), ("day", "night"), ("happy", "sad"),
    ("fast", "slow"), ("old", "new"), ("open", "closed"), ("light", "dark"), ("hard", "soft"), ("wet", "dry"),
    ("early", "late"), ("high", "low"), ("rich", "poor"), ("strong", "weak"), ("full", "empty"), ("clean", "dirty"),
    ("long", "short"), ("near", "far"), ("loud", "quiet"), ("good", "bad"), ("black", "white"), ("true", "false"),
    ("inside", "outside"), ("first", "last"), ("love", "hate"), ("win", "lose"), ("buy", "sell"), ("push", "pull"),
    ("thick", "thin"), ("heavy", "light"), ("easy", "difficult"), ("start", "stop"), ("yes", "no"),
    ("north", "south"), ("east", "west"), ("summer", "winter"), ("above", "below"), ("wide", "narrow"),
    ("cheap", "expensive"), ("brave", "afraid"), ("young", "old"), ("friend", "enemy"), ("always", "never"),
]  # fmt: skip
OPPOSITE = [
    "What is the opposite of {w}?", "What's the opposite of {w}?", "Opposite of {w}?", "Tell me the opposite of {w}.",
    "Give me the opposite of {w}.", "Do you know the opposite of {w}?", "opposite of {w}",
    "Which word is the opposite of {w}?",
]  # fmt: skip
OPPOSITE_TEST = [
    "Can you tell me the opposite of {w}?",
    "What word is the opposite of {w}?",
    "Name the opposite of {w}.",
]

PLANETS = ["Mercury", "Venus", "Earth", "Mars", "Jupiter", "Saturn", "Uranus", "Neptune"]
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
MONTHS = [
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
]  # fmt: skip
MONTH_DAYS = dict(zip(MONTHS, (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31), strict=True))
ORDINALS = [
    "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh",
    "twelfth",
]  # fmt: skip
LENGTH = ["How many days does {m} have?", "How many days are in {m}?", "days in {m}?"]
LENGTH_TEST = ["How many days are there in {m}?"]
NTH = ["What is the {o} {k} {w}?", "Which {k} is the {o} {w}?", "Name the {o} {k} {w}."]
NTH_TEST = ["Tell me the {o} {k} {w}."]
AFTER = [
    "What comes after {x}?", "Which {k} comes after {x}?", "What {k} is after {x}?", "What is the {k} after {x}?",
    "Which {k} follows {x}?", "Tell me the {k} after {x}.",
]  # fmt: skip
BEFORE = [
    "What comes before {x}?", "Which {k} comes before {x}?", "What {k} is before {x}?", "What is the {k} before {x}?",
    "Tell me the {k} before {x}.",
]  # fmt: skip
AFTER_TEST = ["What {k} comes after {x}?", "Which {k} is after {x}?"]
BEFORE_TEST = ["What {k} comes before {x}?", "Which {k} is before {x}?"]

SINGLES = [
    (
        ("How many days are in a week?", "How many days does a week have?", "days in a week?"), "A week has 7 days.",
        "7",
    ),
    (("How many months are in a year?", "How many months does a year have?"), "A year has 12 months.", "12"),
    (("How many days are in a year?", "How many days does a year have?"), "A year has 365 days.", "365"),
    (("How many hours are in a day?", "How many hours does a day have?"), "A day has 24 hours.", "24"),
    (
        ("How many planets are there?", "How many planets are in the solar system?"),
        "There are 8 planets in our solar system.", "8",
    ),
    (
        ("Which planet is the biggest?", "What is the largest planet?", "What is the biggest planet?"),
        "Jupiter is the largest planet.", "Jupiter",
    ),
    (("Which planet is the smallest?", "What is the smallest planet?"), "Mercury is the smallest planet.", "Mercury"),
    (
        ("Which planet has rings?", "Which planet is famous for its rings?"), "Saturn is famous for its rings.",
        "Saturn",
    ),
    (
        ("Which planet is red?", "What is the red planet?", "Which planet is called the red planet?"),
        "Mars is called the red planet.", "Mars",
    ),
    (("Which planet do we live on?", "What planet do we live on?"), "We live on Earth.", "Earth"),
    (
        ("Name the planets.", "What are the planets?", "List the planets.", "Can you name the planets?"),
        f"The planets are {', '.join(PLANETS[:-1])} and Neptune.", "Uranus and Neptune",
    ),
    (
        ("Name the days of the week.", "What are the days of the week?", "List the days of the week."),
        f"The days are {', '.join(DAYS[:-1])} and Sunday.", "Saturday and Sunday",
    ),
    (
        ("Name the months of the year.", "What are the months?", "List the months.", "List the months of the year."),
        f"The months are {', '.join(MONTHS[:-1])} and December.", "November and December",
    ),
    (
        ("What are the four seasons?", "Name the seasons.", "What are the seasons?", "List the seasons."),
        "The seasons are spring, summer, autumn and winter.", "autumn and winter",
    ),
    (
        ("What are the colours of the rainbow?", "Name the colors of the rainbow.", "What colours are in a rainbow?"),
        "The rainbow is red, orange, yellow, green, blue, indigo and violet.", "indigo and violet",
    ),
    (("What is the largest ocean?", "Which ocean is the biggest?"), "The Pacific is the largest ocean.", "Pacific"),
    (
        ("What is the largest animal?", "Which animal is the biggest?", "What is the biggest animal?"),
        "The blue whale is the largest animal.", "blue whale",
    ),
    (
        ("What is the tallest animal?", "Which animal is the tallest?"), "The giraffe is the tallest animal.",
        "giraffe",
    ),
    (
        ("What is the fastest animal on land?", "Which land animal is the fastest?", "What is the fastest animal?"),
        "The cheetah is the fastest land animal.", "cheetah",
    ),
    (
        ("What is the highest mountain?", "What is the tallest mountain?", "Which mountain is the highest?"),
        "Mount Everest is the highest mountain.", "Mount Everest",
    ),
    (("How many continents are there?", "How many continents do we have?"), "There are 7 continents.", "7"),
    (
        ("How many letters are in the alphabet?", "How many letters does the alphabet have?"),
        "The English alphabet has 26 letters.", "26",
    ),
    (("What do bees make?", "What do bees produce?"), "Bees make honey.", "honey"),
    (("What do cows eat?", "What does a cow eat?"), "Cows eat grass.", "grass"),
    (("What is water made of?", "What is H2O?"), "Water is made of hydrogen and oxygen.", "hydrogen and oxygen"),
    (
        ("At what temperature does water freeze?", "When does water freeze?"), "Water freezes at 0 degrees Celsius.",
        "0",
    ),
    (("At what temperature does water boil?", "When does water boil?"), "Water boils at 100 degrees Celsius.", "100"),
    (("What do you call a young dog?", "What is a baby dog called?"), "A young dog is called a puppy.", "puppy"),
    (("What do you call a young cat?", "What is a baby cat called?"), "A young cat is called a kitten.", "kitten"),
    (("What do you call a young cow?", "What is a baby cow called?"), "A young cow is called a calf.", "calf"),
    (("What do you call a young sheep?", "What is a baby sheep called?"), "A young sheep is called a lamb.", "lamb"),
]  # fmt: skip
LEADS = (
    "",
    "",
    "",
    "",
    "Tell me: ",
    "Please tell me: ",
    "I have a question. ",
    "Quick question: ",
    "Do you know this? ",
)


def _upper_first(text: str) -> str:
    return text[0].upper() + text[1:]


def _article(noun: str) -> str:
    return "an" if noun[0] in "aeiou" else "a"


def _animal(phrase: str, animal: str) -> str:
    return phrase.replace("a {a}", f"{_article(animal)} {animal}").format(a=animal)


def capital(rng: Random, split: Split) -> Turn:
    """Ask for the capital of a country."""
    country = rng.choice(list(COUNTRIES))
    city = COUNTRIES[country][0]
    asked = rng.choice((country, *ALIASES.get(country, ())))
    user = _upper_first(rng.choice(phrasings(split, CAPITAL, CAPITAL_TEST)).format(c=asked))
    end = city.rstrip(".") + "."
    reply = pick(rng, f"The capital of {country} is {end}", f"The capital of {country} is {end}",
                 f"{city} is the capital of {country}.")  # fmt: skip
    return Turn(user, reply, city.rstrip("."))


def continent(rng: Random, split: Split) -> Turn:
    """Ask for the continent of a country."""
    country = rng.choice(list(COUNTRIES))
    place = COUNTRIES[country][1]
    user = _upper_first(rng.choice(phrasings(split, CONTINENT, CONTINENT_TEST)).format(c=country))
    verb = "are" if country.endswith("s") and country.startswith("the") else "is"
    return Turn(user, f"{_upper_first(country)} {verb} in {place}.", place)


def country_of(rng: Random, split: Split) -> Turn:
    """Ask for the country of a capital."""
    country = rng.choice([name for name in COUNTRIES if name not in ("England", "the United Kingdom")])
    city = COUNTRIES[country][0]
    user = rng.choice(phrasings(split, COUNTRY_OF, COUNTRY_OF_TEST)).format(t=city)
    return Turn(user, f"{city} is the capital of {country}.", country)


def animal(rng: Random, split: Split) -> Turn:
    """Ask for an animal's sound or its number of legs."""
    if rng.random() < 0.5:
        name = rng.choice(list(SOUNDS))
        user = _animal(rng.choice(phrasings(split, SOUND, SOUND_TEST)), name)
        return Turn(user, f"{_article(name).title()} {name} says {SOUNDS[name]}.", SOUNDS[name])
    name = rng.choice(list(LEGS))
    user = _animal(rng.choice(phrasings(split, LEG, LEG_TEST)), name)
    legs = str(LEGS[name]) if LEGS[name] else "no"
    return Turn(user, f"{_article(name).title()} {name} has {legs} legs.", f"{legs} legs")


def colour(rng: Random, split: Split) -> Turn:
    """Ask for the colour of a thing."""
    thing = rng.choice(list(COLOURS))
    user = rng.choice(phrasings(split, COLOUR, COLOUR_TEST)).format(o=thing)
    return Turn(user, f"{_upper_first(thing)} is {COLOURS[thing]}.", COLOURS[thing])


def opposite(rng: Random, split: Split) -> Turn:
    """Ask for the opposite of a word."""
    pair = rng.choice(OPPOSITES)
    word, other = pair if rng.random() < 0.6 or pair[1] in ("light", "old") else (pair[1], pair[0])
    if word == "light":
        other = "dark"
    user = rng.choice(phrasings(split, OPPOSITE, OPPOSITE_TEST)).format(w=word)
    if word == "old":
        return Turn(user, "The opposite of old is new.", "new")
    return Turn(user, f"The opposite of {word} is {other}.", other)


def order(rng: Random, split: Split) -> Turn:
    """Ask for neighbours and positions of days, months, planets and letters, or for the days of a month."""
    kind, items = rng.choice(
        (("day", DAYS), ("month", MONTHS), ("planet", PLANETS), ("letter", list("ABCDEFGHIJKLMNOPQRSTUVWXYZ")))
    )
    form = rng.random()
    if form < 0.2 and kind == "month":
        month = rng.choice(MONTHS)
        user = rng.choice(phrasings(split, LENGTH, LENGTH_TEST)).format(m=month)
        return Turn(user, f"{month} has {MONTH_DAYS[month]} days.", str(MONTH_DAYS[month]))
    if form < 0.4 and kind in ("month", "planet"):
        i = rng.randrange(len(items))
        whole = "of the year" if kind == "month" else "from the sun"
        user = rng.choice(phrasings(split, NTH, NTH_TEST)).format(o=ORDINALS[i], k=kind, w=whole)
        return Turn(user, f"The {ORDINALS[i]} {kind} {whole} is {items[i]}.", items[i])
    cyclic = kind in ("day", "month")
    if form < 0.75:
        i = rng.randrange(len(items) - (not cyclic))
        user = rng.choice(phrasings(split, AFTER, AFTER_TEST)).format(x=items[i], k=kind)
        found = items[(i + 1) % len(items)]
        return Turn(user, f"{found} comes after {items[i]}.", found)
    i = rng.randrange(0 if cyclic else 1, len(items))
    user = rng.choice(phrasings(split, BEFORE, BEFORE_TEST)).format(x=items[i], k=kind)
    found = items[i - 1]
    return Turn(user, f"{found} comes before {items[i]}.", found)


def single(rng: Random, split: Split) -> Turn:
    """Ask one of the facts that belong to no table."""
    questions, reply, answer = rng.choice(SINGLES)
    question = rng.choice(questions)
    user = (
        rng.choice(LEADS) + question if split == "train" else pick(rng, "I wonder: ", "Hey, ", "One more: ") + question
    )
    return Turn(user, reply, answer)


def sample(rng: Random, split: Split) -> Turn:
    """A turn of any kind of fact."""
    kind = rng.choices(
        (capital, continent, country_of, animal, colour, opposite, order, single), (33, 12, 9, 10, 6, 11, 10, 12)
    )[0]
    return kind(rng, split)
