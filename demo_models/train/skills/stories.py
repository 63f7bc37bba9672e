"""Short stories of three to five sentences from a grammar, about the hero that the user names."""

from __future__ import annotations

from random import Random

from demo_models.train.turns import Split, Turn, pick, split_of

HEROES = [
    "fox", "dragon", "cat", "dog", "mouse", "bear", "rabbit", "wizard", "knight", "robot", "princess", "king",
    "queen", "pirate", "turtle", "owl", "lion", "duck", "horse", "frog", "wolf", "bird", "boy", "girl", "farmer",
    "sailor", "elephant", "penguin", "giant", "fairy", "snail", "bee", "fish", "star", "cloud", "tree", "monkey",
    "tiger", "hedgehog", "squirrel", "unicorn", "ghost", "witch", "astronaut", "teacher", "baker", "clock", "boat",
    "train", "snowman", "dinosaur", "spider", "ant", "butterfly", "cow", "pig", "goat", "sheep", "monster", "alien",
]  # fmt: skip
TRAITS = [
    "little", "old", "brave", "clever", "shy", "kind", "lonely", "curious", "happy", "sleepy", "hungry", "young",
    "tiny", "gentle", "proud", "funny",
]  # fmt: skip
PLACES = [
    "in a deep forest", "near a quiet lake", "on a green hill", "in a small village", "by the sea",
    "in an old castle", "on a far island", "under a tall tree", "behind the blue mountains", "in a warm valley",
]  # fmt: skip
WISHES = [
    ("to see the moon", "the moon"), ("to find a friend", "a friend"), ("to learn to sing", "a song"),
    ("to find a golden key", "a golden key"), ("to cross the wide river", "the river"),
    ("to bake the best cake", "a cake"), ("to see snow", "the snow"), ("to find a hidden garden", "a hidden garden"),
    ("to build a boat", "a boat"), ("to find a lost star", "a lost star"),
]  # fmt: skip
HELPERS = [
    "a wise owl",
    "a small bird",
    "a kind old woman",
    "a friendly bear",
    "a white horse",
    "a funny frog",
    "a quiet mouse",
]
ENDINGS = [
    "From that day on, they were the best of friends.", "Then {they} went home and slept well.",
    "And {they} lived happily ever after.", "Everyone in the land was glad.",
    "{The} smiled and never felt alone again.", "It was the best day of all.",
]  # fmt: skip
ASK_ABOUT = [
    "Tell me a story about {h}.", "Write a short story about {h}.", "Can you tell me a story about {h}?",
    "Story about {h}", "Write a story about {h}.", "I want a story about {h}.",
    "Please tell me a short story about {h}.", "a story about {h} please", "Tell me a short story about {h}.",
    "Make up a story about {h}.", "Write me a story about {h}.", "Give me a story about {h}.",
    "Tell a story with {h}.", "Write a tale about {h}.", "Tell me about {h} in a story.",
]  # fmt: skip
ASK_ANY = [
    "Tell me a story.", "Write a short story.", "Can you tell me a story?", "I want to hear a story.",
    "Tell me a short story.", "Another story, please.", "Write a story.", "Do you know a story?", "story",
    "Tell me a bedtime story.", "Make up a story.", "Tell me another story.", "Once upon a time", "Write something.",
    "Write a story for me.",
]  # fmt: skip


def _article(word: str) -> str:
    return "an" if word[0] in "aeiou" and word != "unicorn" else "a"


def tell(rng: Random, hero: str, trait: str) -> str:
    """A story of four or five sentences about a hero with a trait."""
    place, (wish, prize), helper = rng.choice(PLACES), rng.choice(WISHES), rng.choice(HELPERS)
    opening = pick(rng, f"Once upon a time, {_article(trait)} {trait} {hero} lived {place}.",
                   f"There was once {_article(trait)} {trait} {hero} who lived {place}.")  # fmt: skip
    guide = helper.split(" ", 1)[1]
    want = pick(
        rng,
        f"The {hero} wanted {wish}.",
        f"Every night the {hero} dreamed of {prize}.",
        f"More than anything, the {hero} wanted {wish}.",
    )
    meeting = pick(
        rng,
        f"One day the {hero} met {helper}.",
        f"One morning {helper} came by.",
        f"One rainy day the {hero} helped {helper}.",
    )
    turn = pick(
        rng,
        f"Together they looked for {prize} and found it.",
        f'"I know the way," said the {guide}, and off they went.',
        f"They walked for three days until they came to {prize}.",
        f"In the end, the {hero} was not afraid any more.",
    )
    end = rng.choice(ENDINGS).format(they=pick(rng, "they", f"the {hero}"), The=f"The {hero}")
    sentences = [opening, want, meeting, turn, end]
    if rng.random() < 0.3:
        sentences.pop(rng.choice((1, 3)))
    return " ".join(sentences)


def sample(rng: Random, split: Split) -> Turn:
    """Ask for a story, mostly about a named hero."""
    while True:
        hero, trait = rng.choice(HEROES), rng.choice(TRAITS)
        if split_of(f"story:{trait},{hero}") == split:
            break
    if rng.random() < 0.2 and split == "train":
        return Turn(rng.choice(ASK_ANY), tell(rng, hero, trait))
    asked = (
        f"{_article(trait)} {trait} {hero}" if rng.random() < 0.35 or split == "test" else f"{_article(hero)} {hero}"
    )
    return Turn(rng.choice(ASK_ABOUT).format(h=asked), tell(rng, hero, trait), hero)
