"""Letters and words: spelling, reversing, sorting and simple rewriting. Lists are held out by content."""

from __future__ import annotations

from random import Random

from demo_models.train.turns import Split, Turn, phrasings, pick, split_of

WORDS = [
    "apple", "bread", "chair", "table", "house", "river", "cloud", "stone", "plant", "tiger", "horse", "mouse",
    "sheep", "snake", "train", "truck", "plane", "beach", "ocean", "music", "piano", "green", "black", "white",
    "brown", "happy", "sunny", "rainy", "windy", "sugar", "honey", "lemon", "mango", "peach", "grape", "onion",
    "potato", "tomato", "carrot", "pepper", "cheese", "butter", "coffee", "water", "juice", "milk", "cake", "cookie",
    "window", "door", "garden", "flower", "tree", "forest", "mountain", "valley", "island", "bridge", "castle",
    "village", "market", "school", "teacher", "doctor", "farmer", "sailor", "pirate", "dragon", "wizard", "king",
    "queen", "prince", "knight", "robot", "rocket", "planet", "moon", "star", "light", "night", "morning", "evening",
    "winter", "summer", "spring", "autumn", "pencil", "paper", "book", "letter", "story", "poem", "song", "dance",
    "game", "ball", "kite", "drum", "bell", "clock", "lamp", "candle", "mirror", "pillow", "blanket", "shirt",
    "dress", "hat", "shoe", "glove", "scarf", "pocket", "button", "needle", "spoon", "fork", "knife", "plate",
    "bottle", "basket", "hammer", "nail", "ladder", "wheel", "engine", "cat", "dog", "cow", "pig", "duck", "frog",
    "bee", "ant", "owl", "fox", "wolf", "bear", "lion", "rabbit", "monkey", "turtle", "dolphin", "whale", "shark",
    "penguin", "parrot", "eagle", "spider", "banana", "orange", "cherry", "berry", "kitchen", "bedroom", "family",
    "friend", "mother", "father", "sister", "brother", "baby", "child", "people", "animal", "world", "hello",
    "yellow", "purple", "silver", "golden", "little", "quiet", "gentle", "brave", "clever", "computer", "keyboard",
    "internet", "elephant", "butterfly", "hospital", "library", "holiday", "birthday", "strawberry", "umbrella",
    "chocolate", "language",
]  # fmt: skip

SPELL = [
    "Spell {w}.", "How do you spell {w}?", "Spell the word {w}.", "Can you spell {w}?", "Please spell {w}.",
    "spell {w}", "Spell '{w}'.", "Spell {w} letter by letter.", "How is {w} spelled?", "Spell the word {w} for me.",
]  # fmt: skip
SPELL_TEST = ["Could you spell {w}?", "Please spell the word {w}.", "Spell out {w}."]
BACKWARDS = ["Spell {w} backwards.", "What is {w} backwards?", "Reverse the word {w}.", "Write {w} backwards."]
BACKWARDS_TEST = ["Can you spell {w} backwards?", "Please write {w} backwards."]
SORT_NUMBERS = [
    "Sort {x}.", "Sort these numbers: {x}.", "Put {x} in order.", "Order these numbers: {x}.", "sort {x}",
    "Sort the numbers {x}.", "Please sort {x}.", "Arrange {x} from small to large.", "Sort: {x}",
]  # fmt: skip
SORT_WORDS = [
    "Sort these words: {x}.", "Put these words in alphabetical order: {x}.", "Sort the words {x}.",
    "Sort alphabetically: {x}.", "Please sort these words: {x}.",
]  # fmt: skip
LARGEST = [
    "Which is larger, {a} or {b}?", "What is bigger, {a} or {b}?", "Which number is larger, {a} or {b}?",
    "Is {a} bigger than {b}?", "Which is bigger: {a} or {b}?",
]  # fmt: skip

SUBJECTS = [
    "the cat", "my dog", "the boy", "the girl", "my sister", "the farmer", "the old man", "a bird", "the teacher",
    "my friend", "the queen", "the little fox", "he", "she", "I", "we", "they",
]  # fmt: skip
VERBS = [
    ("eat", "eats", "ate"), ("see", "sees", "saw"), ("find", "finds", "found"), ("like", "likes", "liked"),
    ("buy", "buys", "bought"), ("take", "takes", "took"), ("want", "wants", "wanted"), ("paint", "paints", "painted"),
    ("carry", "carries", "carried"), ("make", "makes", "made"), ("hold", "holds", "held"), ("lose", "loses", "lost"),
]  # fmt: skip
OBJECTS = [
    "an apple", "the red ball", "a book", "the cake", "a small boat", "the green hat", "some bread", "a big box",
    "the letter", "two eggs", "a blue cup", "the old clock", "a flower", "the warm soup",
]  # fmt: skip
REQUESTS = [
    "close the door", "give me the book", "open the window", "bring me some water", "wait here", "call me tomorrow",
    "help me", "send me the letter", "turn off the light", "come to the garden", "show me the map", "sit down",
    "tell me the time", "pass the salt", "clean the table", "read the story", "move the chair", "lend me a pen",
    "feed the cat",
]  # fmt: skip
UPPER = [
    "Write this in upper case: {x}", "Put this in capital letters: {x}", "Make this upper case: {x}",
    "Upper case: {x}", "uppercase {x}", "Write {x} in capital letters.",
]  # fmt: skip
LOWER = ["Write this in lower case: {x}", "Make this lower case: {x}", "Lower case: {x}"]
POLITE = [
    "Make this polite: {x}",
    "Say this politely: {x}",
    "Write this in a polite way: {x}",
    "Make this more polite: {x}",
]
PAST = [
    "Put this in the past tense: {x}",
    "Write this in the past tense: {x}",
    "Change this to the past tense: {x}",
    "Past tense: {x}",
]
ECHO = [
    "Repeat after me: {x}",
    "Say {x}",
    "Repeat this: {x}",
    "Write {x}",
    "Please say: {x}",
    "Echo: {x}",
    "Repeat: {x}",
]
REORDER = [
    "Reverse the order of these words: {x}",
    "Write these words in reverse order: {x}",
    "Reverse these words: {x}",
]


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def spelling(rng: Random, split: Split) -> Turn:
    """Ask to spell a word."""
    word = rng.choice(WORDS)
    shown = word if rng.random() < 0.8 else word.capitalize() if rng.random() < 0.6 else word.upper()
    user = rng.choice(phrasings(split, SPELL, SPELL_TEST)).format(w=shown)
    spelled = "-".join(word.upper())
    return Turn(user, f"{_capital(word)} is spelled {spelled}.", spelled, "case")


def backwards(rng: Random, split: Split) -> Turn:
    """Ask to spell a word backwards."""
    word = rng.choice([word for word in WORDS if len(word) <= 6])
    user = rng.choice(phrasings(split, BACKWARDS, BACKWARDS_TEST)).format(w=word)
    spelled = "-".join(reversed(word.upper()))
    return Turn(user, f"{_capital(word)} backwards is {spelled}.", spelled, "case")


def sort_numbers(rng: Random, split: Split) -> Turn:
    """Ask to sort three to five numbers."""
    while True:
        numbers = rng.sample(range(100), rng.randint(3, 5))
        if split_of(f"sort:{sorted(numbers)}") == split:
            break
    ordered = ", ".join(map(str, sorted(numbers)))
    user = rng.choice(SORT_NUMBERS).format(x=pick(rng, ", ", ", ", " ").join(map(str, numbers)))
    return Turn(user, pick(rng, f"Sorted: {ordered}.", f"In order: {ordered}."), ordered)


def sort_words(rng: Random, split: Split) -> Turn:
    """Ask to sort three words by the alphabet."""
    while True:
        words = rng.sample(WORDS, 3)
        if len({word[0] for word in words}) == 3 and split_of(f"sort:{sorted(words)}") == split:
            break
    ordered = ", ".join(sorted(words))
    return Turn(rng.choice(SORT_WORDS).format(x=", ".join(words)), f"In order: {ordered}.", ordered, "case")


def larger(rng: Random, split: Split) -> Turn:
    """Ask for the larger of two numbers."""
    while True:
        a, b = rng.sample(range(100), 2)
        if split_of(f"larger:{min(a, b)},{max(a, b)}") == split:
            break
    phrase = rng.choice(LARGEST)
    if phrase.startswith("Is "):
        reply = f"Yes, {a} is larger than {b}." if a > b else f"No, {b} is larger than {a}."
        return Turn(phrase.format(a=a, b=b), reply, reply[:3].rstrip(","))
    return Turn(phrase.format(a=a, b=b), f"{max(a, b)} is larger than {min(a, b)}.", f"{max(a, b)} is")


def _sentence(rng: Random, split: Split) -> tuple[str, tuple[str, str, str], str]:
    while True:
        subject, verb, thing = rng.choice(SUBJECTS), rng.choice(VERBS), rng.choice(OBJECTS)
        if split_of(f"sentence:{subject},{verb[0]},{thing}") == split:
            return subject, verb, thing


def rewriting(rng: Random, split: Split) -> Turn:
    """Ask to change case, tense, politeness or order of a text, or to repeat it."""
    kind = rng.choices(("upper", "lower", "polite", "past", "echo", "reorder"), (20, 10, 20, 25, 20, 10))[0]
    if kind == "polite":
        request = rng.choice(REQUESTS)
        shown = request if split == "test" else pick(rng, request, _capital(request), _capital(request) + ".")
        user = rng.choice(
            phrasings(split, POLITE, ["Say this in a polite way: {x}", "Write this politely: {x}"])
        ).format(x=shown)
        reply = pick(rng, f"Could you please {request}?", f"Would you please {request}?")
        return Turn(user, reply, f"please {request}", "fixed")
    if kind == "reorder":
        while True:
            words = rng.sample(WORDS, rng.randint(3, 4))
            if split_of(f"reorder:{words}") == split:
                break
        answer = " ".join(reversed(words))
        return Turn(rng.choice(REORDER).format(x=" ".join(words)), _capital(answer) + ".", answer, "fixed", "any_case")
    subject, verb, thing = _sentence(rng, split)
    present = verb[0] if subject in ("I", "we", "they") else verb[1]
    sentence = _capital(f"{subject} {present} {thing}.")
    match kind:
        case "upper":
            return Turn(
                rng.choice(UPPER).format(x=sentence.rstrip(".")),
                sentence.upper(),
                sentence.upper().rstrip("."),
                "fixed",
            )
        case "lower":
            return Turn(rng.choice(LOWER).format(x=sentence.upper()), sentence.lower(), sentence.lower(), "fixed")
        case "past":
            past = _capital(f"{subject} {verb[2]} {thing}.")
            return Turn(rng.choice(PAST).format(x=sentence), past, past, "fixed")
        case _ if rng.random() < 0.5:
            while True:
                echoed = " ".join(rng.sample(WORDS, rng.randint(1, 4)))
                if split_of(f"echo:{echoed}") == split:
                    break
            echoed = _capital(echoed) if rng.random() < 0.5 else echoed
            return Turn(rng.choice(ECHO).format(x=echoed), _capital(echoed) + ".", echoed, "fixed", "any_case")
        case _:
            return Turn(rng.choice(ECHO).format(x=sentence), sentence, sentence, "fixed")


def sample(rng: Random, split: Split) -> Turn:
    """A turn of any kind about letters and words, without rewriting."""
    kind = rng.choices((spelling, backwards, sort_words, larger), (55, 12, 13, 20))[0]
    return kind(rng, split)
