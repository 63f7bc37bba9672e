"""Remembering what the user said: name, pet, city, favourite colour, food, animal, number, age and job.

About a tenth is held out by content. For names, places and numbers it is the value, which training never asks to
remember. For the short lists (colours, food, animals, jobs) it is the value in one wording, because every entry of a
list must be trained. Half of the trained names are invented, so that the models learn to copy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from demo_models.train.turns import Split, Turn, pick, split_of

NAMES = [
    "Anna", "Ben", "Clara", "David", "Emma", "Felix", "Grace", "Henry", "Ida", "Jack", "Kate", "Leo", "Maria", "Noah",
    "Olivia", "Paul", "Rosa", "Sam", "Tina", "Victor", "Wendy", "Adam", "Bella", "Carlos", "Diana", "Erik", "Fatima",
    "George", "Hannah", "Ivan", "Julia", "Karl", "Laura", "Mark", "Nina", "Oscar", "Petra", "Quentin", "Rachel",
    "Simon", "Tom", "Uma", "Vera", "Walter", "Yusuf", "Zoe", "Alice", "Bob", "Charlie", "Daniel", "Elena", "Frank",
    "Gina", "Hugo", "Irene", "James", "Kenji", "Lucy", "Mia", "Nora", "Omar", "Priya", "Ravi", "Sara", "Tim", "Ella",
    "Max", "Lena", "Jonas", "Marta", "Alex", "Chris", "Pat", "Sasha", "Robin", "Jordan", "Taylor", "Morgan", "Lily",
    "Jane", "John", "Peter", "Mary", "Susan", "Linda", "Amir", "Aisha", "Chen", "Wei", "Yuki", "Hiro", "Mei", "Sofia",
    "Mateo", "Diego", "Lucia", "Pablo", "Ines", "Hans", "Greta", "Lars", "Ingrid", "Sven", "Olga", "Boris", "Dmitri",
    "Katya", "Andrei", "Nadia", "Ali", "Hassan", "Leila", "Samir", "Layla", "Kofi", "Ama", "Kwame", "Zara", "Tariq",
    "Nour", "Deepak", "Anita", "Sunil", "Meera", "Arjun", "Kiran", "Minh", "Linh", "Thuy", "Jin", "Soo", "Hana",
    "Ken", "Aiko", "Luca", "Marco", "Giulia", "Paolo", "Chiara", "Pierre", "Claire", "Louis", "Camille", "Antoine",
    "Jan", "Eva", "Tomas", "Lucie", "Pavel", "Istvan", "Zsofia", "Ewa", "Marek", "Agnes", "Nils", "Astrid", "Freya",
    "Thor", "Sean", "Fiona", "Liam", "Nigel", "Rupert", "Harriet", "Edith", "Arthur", "Oliver", "Harry", "Lewis",
    "Ruby", "Pearl", "Violet", "Hazel", "Ivy", "Rose", "Daisy", "Jasper", "Miles", "Ethan", "Logan", "Mason", "Aiden",
]  # fmt: skip
PETS = [
    "dog",
    "cat",
    "rabbit",
    "parrot",
    "hamster",
    "horse",
    "turtle",
    "goldfish",
    "mouse",
    "snake",
    "duck",
    "goat",
    "pony",
    "lizard",
]
CITIES = [
    "Paris", "London", "Berlin", "Madrid", "Rome", "Lisbon", "Vienna", "Prague", "Oslo", "Dublin", "Athens", "Warsaw",
    "Budapest", "Helsinki", "Stockholm", "Copenhagen", "Amsterdam", "Brussels", "Tokyo", "Kyoto", "Osaka", "Beijing",
    "Shanghai", "Delhi", "Mumbai", "Bangkok", "Hanoi", "Seoul", "Manila", "Jakarta", "Cairo", "Nairobi", "Lagos",
    "Accra", "Tunis", "Boston", "Chicago", "Denver", "Seattle", "Dallas", "Houston", "Miami", "Toronto", "Montreal",
    "Vancouver", "Lima", "Quito", "Bogota", "Santiago", "Sydney", "Melbourne", "Perth", "Auckland", "Munich",
    "Hamburg", "Cologne", "Lyon", "Nice", "Milan", "Turin", "Naples", "Florence", "Venice", "Barcelona", "Valencia",
    "Seville", "Porto", "Zurich", "Geneva", "Basel", "Krakow",
]  # fmt: skip
COLOURS = [
    "red", "blue", "green", "yellow", "purple", "orange", "pink", "black", "white", "brown", "grey", "silver", "gold",
    "turquoise", "violet", "indigo", "beige", "crimson",
]  # fmt: skip
FOODS = [
    "pizza", "pasta", "rice", "soup", "bread", "cheese", "chocolate", "apples", "bananas", "cake", "pancakes",
    "noodles", "curry", "salad", "sushi", "tacos", "fish", "chicken", "potatoes", "tomatoes", "strawberries",
    "cherries", "honey", "burgers", "dumplings", "cookies", "eggs", "mushrooms", "olives", "waffles", "lasagna",
    "porridge",
]  # fmt: skip
ANIMALS = [
    "dog", "cat", "horse", "lion", "tiger", "elephant", "penguin", "dolphin", "fox", "wolf", "bear", "owl", "rabbit",
    "giraffe", "zebra", "panda", "koala", "whale", "turtle", "eagle",
]  # fmt: skip
JOBS = [
    "teacher", "doctor", "farmer", "nurse", "baker", "pilot", "painter", "writer", "student", "gardener", "cook",
    "driver", "builder", "sailor", "dancer", "singer", "lawyer", "carpenter", "plumber", "librarian", "engineer",
    "photographer",
]  # fmt: skip
ONSETS = [
    "b", "c", "d", "f", "g", "h", "j", "k", "l", "m", "n", "p", "r", "s", "t", "v", "w", "y", "z", "br", "ch", "cl",
    "dr", "fr", "gr", "kr", "pr", "sh", "st", "th", "tr", "vl", "zh",
]  # fmt: skip
VOWELS = ["a", "e", "i", "o", "u", "ai", "ea", "ia", "oo"]
CODAS = ["", "", "", "n", "l", "r", "s", "k", "m", "x", "nd", "rt", "th", "sh"]


def invented_name(rng: Random) -> str:
    """A name of one to three random syllables."""
    syllables = (rng.choice(ONSETS) + rng.choice(VOWELS) + rng.choice(CODAS) for _ in range(rng.randint(1, 3)))
    return "".join(syllables).capitalize()


def _name(rng: Random) -> str:
    return invented_name(rng) if rng.random() < 0.5 else rng.choice(NAMES)


def _place(rng: Random) -> str:
    return invented_name(rng) if rng.random() < 0.4 else rng.choice(CITIES)


def _of(options: list[str]) -> Callable[[Random], str]:
    return lambda rng: rng.choice(options)


def _article(word: str) -> str:
    return "an" if word[0] in "aeiou" else "a"


@dataclass(frozen=True)
class Topic:
    """One thing to remember. `{v}` is the value, `{a}` its article, `{p}` the kind of pet."""

    value: Callable[[Random], str]
    tell: tuple[str, ...]
    reply: tuple[str, ...]
    ask: tuple[str, ...]
    recall: tuple[str, ...]
    unknown: str


TOPICS: dict[str, Topic] = {
    "name": Topic(
        _name,
        (
            "My name is {v}.", "I am {v}.", "I'm {v}.", "Hi, my name is {v}.", "Hello, I'm {v}.", "Call me {v}.",
            "Please call me {v}.", "Hi! I'm {v}.", "Hey, I am {v}.", "You can call me {v}.", "Hello! My name is {v}.",
            "my name's {v}", "The name is {v}.", "My name is {v}, remember it.", "Remember that my name is {v}.",
            "My name is {v}. Nice to meet you!",
        ),
        (
            "Nice to meet you, {v}!", "Hello, {v}! How can I help you?",
            "Nice to meet you, {v}! What can I do for you?", "Hi, {v}!",
        ),
        (
            "What is my name?", "What's my name?", "Do you know my name?", "Who am I?", "Do you remember my name?",
            "Tell me my name.", "Can you tell me my name?", "What am I called?", "Say my name.",
            "And what is my name?", "So, what is my name?", "what was my name?", "Do you still know my name?",
            "What was my name again?",
        ),
        ("Your name is {v}.", "Your name is {v}.", "You are {v}."),
        "You have not told me your name yet.",
    ),
    "pet": Topic(
        _name,
        (
            "I have a {p} called {v}.", "My {p} is called {v}.", "My {p}'s name is {v}.", "I have a {p} named {v}.",
            "My pet {p} is called {v}.", "I own a {p} called {v}.",
        ),
        (
            "What a lovely name for a {p}: {v}!", "How nice! {v} sounds like a good {p}.",
            "I'd love to hear more about {v}!",
        ),
        (
            "What is my {p} called?", "What is my {p}'s name?", "What's the name of my {p}?",
            "What is the name of my {p}?", "Do you remember the name of my {p}?", "How is my {p} called?",
            "What is my pet called?", "Do you know my {p}'s name?",
        ),
        ("Your {p} is called {v}.", "Your {p}'s name is {v}."),
        "You have not told me about that pet yet.",
    ),
    "city": Topic(
        _place,
        (
            "I live in {v}.", "I am from {v}.", "I'm from {v}.", "My home is in {v}.", "I come from {v}.",
            "My city is {v}.", "I live near {v}.",
        ),
        ("I have heard that {v} is a nice place!", "How nice to live in {v}!", "I hope you like it in {v}."),
        (
            "Where do I live?", "Where am I from?", "Which city do I live in?", "What is my city?",
            "Do you remember where I live?", "Do you know where I live?", "Where is my home?", "What city am I from?",
            "Tell me where I live.",
        ),
        ("You live in {v}.", "You told me that you live in {v}."),
        "You have not told me where you live yet.",
    ),
    "colour": Topic(
        _of(COLOURS),
        (
            "My favourite colour is {v}.", "My favorite color is {v}.", "I like the colour {v} best.",
            "The colour I like most is {v}.", "I love the color {v}.",
        ),
        ("{V} is a beautiful colour!", "I will remember that you like {v}.", "{V} is a fine choice!"),
        (
            "What is my favourite colour?", "What is my favorite color?", "Which colour do I like?",
            "What's my favourite color?", "Do you remember my favourite colour?", "Which color do I like best?",
            "Do you know my favorite color?",
        ),
        ("Your favourite colour is {v}.",),
        "You have not told me your favourite colour yet.",
    ),
    "food": Topic(
        _of(FOODS),
        (
            "My favourite food is {v}.", "My favorite food is {v}.", "I love to eat {v}.",
            "I like {v} best of all food.", "I love eating {v}.",
        ),
        ("{V} must taste good!", "Good choice! I will remember that you like {v}."),
        (
            "What is my favourite food?", "What is my favorite food?", "What do I like to eat?",
            "What's my favorite food?", "Do you remember my favourite food?", "Which food do I like best?",
            "What food do I like?",
        ),
        ("Your favourite food is {v}.",),
        "You have not told me your favourite food yet.",
    ),
    "animal": Topic(
        _of(ANIMALS),
        ("My favourite animal is the {v}.", "My favorite animal is the {v}.", "The animal I like most is the {v}."),
        ("The {v} is a wonderful animal!", "I like that choice: the {v}!"),
        (
            "What is my favourite animal?", "What is my favorite animal?", "Which animal do I like best?",
            "What's my favourite animal?", "Do you remember my favorite animal?", "Which animal do I like?",
        ),
        ("Your favourite animal is the {v}.",),
        "You have not told me your favourite animal yet.",
    ),
    "number": Topic(
        lambda rng: str(rng.randint(0, 999)),
        (
            "My lucky number is {v}.", "My favourite number is {v}.", "Remember the number {v}.",
            "My favorite number is {v}.", "Please remember this number: {v}.", "Remember {v}.",
        ),
        ("I will remember {v}.", "Good, I will remember {v}.", "{v}, got it!"),
        (
            "What is my number?", "What is my lucky number?", "What is my favourite number?",
            "What number did I tell you?", "Which number should you remember?", "What was the number?",
            "Do you remember my number?", "What was my number?",
        ),
        ("Your number is {v}.",),
        "You have not told me a number yet.",
    ),
    "age": Topic(
        lambda rng: str(rng.randint(5, 95)),
        ("I am {v} years old.", "I'm {v} years old.", "My age is {v}.", "I am {v}.", "I turned {v} this year."),
        ("{v} is a good age!", "I will remember that you are {v}."),
        (
            "How old am I?", "What is my age?", "Do you remember how old I am?", "Do you know my age?",
            "What's my age?", "Tell me my age.",
        ),
        ("You are {v} years old.",),
        "You have not told me your age yet.",
    ),
    "job": Topic(
        _of(JOBS),
        (
            "I am {a} {v}.", "I work as {a} {v}.", "I'm {a} {v}.", "My job is to be {a} {v}.",
            "I am working as {a} {v}.",
        ),
        ("Being {a} {v} sounds interesting!", "How interesting! I hope you enjoy being {a} {v}."),
        (
            "What is my job?", "What do I do for work?", "What's my job?", "Do you remember my job?",
            "Do you know what my job is?", "What do I work as?", "Tell me my job.",
        ),
        ("You are {a} {v}.",),
        "You have not told me your job yet.",
    ),
}  # fmt: skip
WEIGHTS = (34, 14, 12, 10, 8, 5, 7, 6, 4)


OPEN_TOPICS = ("name", "pet", "city", "number", "age")


def memory_key(kind: str, value: str, wording: str) -> str:
    """Names something to remember for the split: the value, for short lists also its wording."""
    return f"memory:{value.lower()}" if kind in OPEN_TOPICS else f"memory:{value.lower()}/{wording}"


class Notebook:
    """What the user has said in one dialogue; the caller makes one per dialogue."""

    def __init__(self, split: Split) -> None:
        self._split = split
        self._known: dict[str, tuple[str, str]] = {}

    @property
    def name(self) -> str | None:
        """The user's name, if it has been told."""
        return self._known["name"][0] if "name" in self._known else None

    @property
    def topics(self) -> list[str]:
        """What has been told so far."""
        return list(self._known)

    def _fill(self, text: str, value: str, pet: str) -> str:
        return text.format(v=value, V=value[0].upper() + value[1:], a=_article(value), p=pet)

    def tell(self, rng: Random, kind: str | None = None) -> Turn:
        """The user tells something, by default of a random kind; the notebook keeps it."""
        kind = kind or rng.choices(list(TOPICS), WEIGHTS)[0]
        topic = TOPICS[kind]
        while True:
            value, wording = topic.value(rng), rng.choice(topic.tell)
            if split_of(memory_key(kind, value, wording)) == self._split:
                break
        # One kind of pet per dialogue: "what is my pet called?" must have one answer.
        pet = self._known["pet"][1] if kind == "pet" and "pet" in self._known else rng.choice(PETS)
        self._known[kind] = (value, pet)
        user = self._fill(wording, value, pet)
        if self._split == "train" and user[-1] in ".!" and rng.random() < 0.12:
            user = user.lower() if kind not in ("name", "pet", "city") else user
        return Turn(user, self._fill(rng.choice(topic.reply), value, pet), value, "fixed")

    def ask(self, rng: Random, kind: str | None = None) -> Turn:
        """The user asks for something, by default mostly for what has been told; otherwise the answer says so."""
        if kind is None:
            kind = rng.choice(self.topics) if self._known and rng.random() < 0.85 else rng.choice(list(TOPICS))
        topic = TOPICS[kind]
        value, pet = self._known.get(kind, ("", rng.choice(PETS)))
        user = rng.choice(topic.ask).format(p=pet)
        if kind not in self._known:
            return Turn(user, topic.unknown, "not told me")
        return Turn(user, self._fill(rng.choice(topic.recall), value, pet), value)

    def use(self, rng: Random) -> Turn:
        """A greeting or farewell that uses the name, once the user has told it."""
        name = self.name
        assert name is not None
        if rng.random() < 0.5:
            return Turn(
                pick(rng, "Bye!", "Goodbye!", "See you!", "Good night!"),
                pick(rng, f"Goodbye, {name}!", f"Bye, {name}! Have a nice day!"),
                name,
            )
        return Turn(
            pick(rng, "Thanks!", "Thank you!", "Great, thanks!"),
            pick(rng, f"You're welcome, {name}!", f"Any time, {name}!"),
            name,
        )
