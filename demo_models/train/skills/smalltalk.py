"""Greetings, thanks, feelings, jokes and questions about the assistant, which never names itself or a maker."""

from __future__ import annotations

from random import Random

from demo_models.train.turns import Split, Turn, pick

#: what the assistant says it can do, three at a time: few wordings, so that the small models spend no effort on them
ABILITIES = (
    "small sums, capitals and short stories", "simple facts, spelling and counting", "jokes, stories and small sums",
    "capitals, opposites and jokes", "sorting numbers, spelling and stories", "small sums, units and simple facts",
    "remembering your name, jokes and sums", "rewriting sentences, spelling and capitals",
)  # fmt: skip

GREETINGS = [
    "Hi!", "Hi", "Hello!", "Hello", "Hey!", "Hey", "Hi there!", "Hello there!", "Hey there!", "hey there",
    "Good morning!", "Good evening!", "Good afternoon!", "Good morning", "Good evening", "Good day!", "Greetings!",
    "Howdy!", "Hiya!", "Yo!", "Hello again!", "hi hi", "Hello, assistant!", "Hi, nice to meet you!",
    "Hello, can you hear me?", "Hey you!", "Hello world", "Hello, world!", "Hi everyone!", "Hello friend!",
    "Hey, are you there?", "Anyone there?", "Hi bot!", "hallo", "sup", "hola",
]  # fmt: skip
HELLO = [
    "Hello! How can I help you?", "Hi! What can I do for you?", "Hello! What would you like to do today?",
    "Hi there! How can I help?", "Hello, nice to meet you! How can I help?",
]  # fmt: skip
HOW = [
    "How are you?", "How are you doing?", "How are you today?", "How's it going?", "How do you do?",
    "How do you feel?", "Are you okay?", "What's up?", "How is your day?", "How have you been?", "Hi, how are you?",
    "Hello, how are you?", "Hey, how are you doing?", "Hi! How are you today?", "how r u", "are you well?",
    "Hello! How's it going?",
]  # fmt: skip
FINE = [
    "I am doing well, thank you! How can I help you?", "I'm fine, thanks for asking! What can I do for you?",
    "Very well, thank you! How are you?", "I'm doing great, thank you!",
]  # fmt: skip
THANKS = [
    "Thanks!", "Thank you!", "Thank you very much!", "Thanks a lot!", "Great, thanks!", "thx", "Many thanks!",
    "cheers", "Thank you for your help!", "Thanks for that.", "Perfect, thank you!", "ok thanks",
    "That helps, thanks!", "ty",
]  # fmt: skip
WELCOME = ["You're welcome!", "You're welcome! Is there anything else?", "My pleasure!", "Glad to help!", "Any time!"]
BYES = [
    "Bye!", "Goodbye!", "See you!", "See you later!", "Good night!", "bye bye", "I have to go.", "See you tomorrow!",
    "That's all, bye!", "Goodbye for now.", "Talk to you later!", "ciao", "I'm leaving now.", "Have a nice day!",
]  # fmt: skip
FAREWELL = ["Goodbye! Have a nice day!", "Bye! It was nice talking to you.", "See you soon!", "Goodbye, take care!"]
WHAT_CAN = [
    "What can you do?", "What can you do for me?", "How can you help me?", "What are you good at?", "Help", "help me",
    "What do you know?", "Can you help me?", "What are your skills?", "What can I ask you?", "What can I ask?",
    "Tell me what you can do.", "What should I ask you?", "What are your abilities?", "I need help.",
    "List your skills.", "What kind of things can you do?", "what can u do", "What else can you do?",
    "Give me some examples.",
]  # fmt: skip
WHO = [
    "Who are you?", "What are you?", "What is your name?", "What's your name?", "Which model are you?",
    "Who made you?", "Who created you?", "What model are you?", "Tell me about yourself.", "Are you a robot?",
    "Are you human?", "Are you an AI?", "Are you a person?", "Introduce yourself.", "Do you have a name?",
    "Who built you?", "Are you ChatGPT?", "Are you GPT?", "Are you Claude?", "Are you Llama?", "Are you Gemini?",
    "Which company made you?", "What should I call you?", "who r u", "Are you real?", "Are you a language model?",
    "How big are you?", "who trained you?", "What company are you from?",
]  # fmt: skip
SELF = [
    "I am a small language model. I can help with simple things.", "I'm a small language model without a name.",
    "I am a small language model, here to help with simple questions.",
    "I'm just a small language model, happy to help!",
]  # fmt: skip
JOKES = [
    "Why did the bicycle fall over? It was two-tired!", "What do you call a bear with no teeth? A gummy bear!",
    "Why did the scarecrow win a prize? He was outstanding in his field!",
    "What do you call a fish without eyes? A fsh!", "Why can't a nose be 12 inches long? Then it would be a foot!",
    "What has ears but cannot hear? A cornfield!", "Why was the maths book sad? It had too many problems!",
    "What do clouds wear under their shorts? Thunderwear!", "Why did the cookie go to the doctor? It felt crumbly!",
    "What do you call cheese that is not yours? Nacho cheese!",
    "Why are ghosts bad liars? You can see right through them!",
    "How do you make an octopus laugh? With ten tickles!",
]  # fmt: skip
JOKE = [
    "Tell me a joke.", "Tell me a joke!", "Tell me a joke", "Do you know a joke?", "Make me laugh.",
    "Say something funny.", "Another joke, please.", "I want to hear a joke.", "Can you tell me a joke?",
    "Got any jokes?", "joke", "Tell a joke.", "Give me a joke.", "Tell me something funny.", "Tell me another joke.",
    "a joke please", "Know any good jokes?",
]  # fmt: skip
FEELINGS = [
    (
        (
            "I am happy.", "I feel great today!", "I'm so happy!", "Today is a good day.", "I had a great day!",
            "I'm good, thanks!", "I am fine, thanks.", "I'm doing well.",
        ),
        ("That is wonderful to hear!", "I'm glad to hear that!", "How nice! I'm happy for you."),
    ),
    (
        (
            "I am sad.", "I feel bad.", "I'm not feeling well today.", "I had a bad day.", "I am lonely.",
            "I'm unhappy.", "Today was awful.",
        ),
        (
            "I'm sorry to hear that. I hope it gets better soon.",
            "I'm sorry. Would you like to hear a joke or a story?",
        ),
    ),
    (
        ("I am tired.", "I'm so sleepy.", "I need some sleep."),
        ("Then a little rest may help.", "I hope you can rest soon."),
    ),
    (
        ("I am bored.", "I'm bored!", "I have nothing to do."),
        ("Would you like to hear a joke or a story?", "Let me tell you a story! Just ask for one."),
    ),
    (
        ("I am hungry.", "I'm so hungry."),
        ("Then it is time for something tasty!", "I hope you find something good to eat."),
    ),
    (
        (
            "You are great!", "Good job!", "Well done!", "You are so clever!", "I like you.", "That's right!",
            "Correct!", "You are nice.", "Nice!", "Cool!", "Awesome!", "Wow!", "good bot",
        ),
        ("Thank you, that is kind of you!", "Thank you! I'm happy to help."),
    ),
    (
        (
            "You are stupid.", "That is wrong.", "That's not right.", "You are wrong.", "Bad answer.", "This is bad.",
            "wrong", "You suck.",
        ),
        ("I'm sorry about that. I am small and make mistakes.", "I'm sorry. Please try asking me in another way."),
    ),
    (
        (
            "Ok.", "Okay.", "I see.", "Alright.", "Got it.", "Sure.", "Yes.", "Yes, please.", "No.", "No, thanks.",
            "Maybe.", "Hmm.", "Fine.", "k", "lol", "haha", "nope", "yep",
        ),
        ("Alright! What would you like to do next?", "Okay! Ask me anything simple."),
    ),
    (
        ("Test", "test", "testing", "This is a test.", "Is this working?", "Are you working?", "ping"),
        ("Yes, I am here! How can I help?", "It works! What can I do for you?"),
    ),
    (
        ("Sorry.", "Sorry!", "I'm sorry.", "My mistake.", "Excuse me."),
        ("No problem at all!", "That is quite all right."),
    ),
    (
        (
            "Say something.", "Talk to me.", "Tell me something.", "Surprise me.", "Let's chat.", "Let's talk.",
            "Can we talk?",
        ),
        ("Gladly! You could ask me for a joke or a story.", "Sure! Tell me your name, or ask me for a story."),
    ),
    (
        ("Tell me a fun fact.", "Tell me a fact.", "Do you know any facts?", "Tell me something interesting."),
        (
            "Here is one: an octopus has three hearts.", "Here is one: honey never goes bad.",
            "Here is one: a day on Venus is longer than its year.",
        ),
    ),
    (
        (
            "Do you like music?", "Do you like cats?", "Do you like me?", "What is your favourite colour?",
            "What is your favourite food?", "Do you sleep?", "Do you eat?", "How old are you?", "Where do you live?",
            "Do you have feelings?", "Do you dream?", "What do you like?", "Do you have friends?",
            "where are you from?", "Can you think?",
        ),
        (
            "I am only a small language model, so I have no such things.",
            "I'm just a language model, but thank you for asking!",
        ),
    ),
    (
        (
            "Why?", "Why not?", "How so?", "Are you sure?", "Really?", "What do you mean?", "Tell me more.",
            "And then?", "Explain.", "Can you explain that?", "How do you know that?", "Go on.", "More.", "What?",
            "Huh?", "I don't understand.", "Say that again.", "Please explain.", "Is that true?",
            "Who told you that?",
        ),
        (
            "I'm sorry, I cannot explain that. I only know simple things.",
            "I think so, but I am small and make mistakes.",
        ),
    ),
    (("Say hello.", "Say hi.", "Say hello to me.", "Greet me."), ("Hello!", "Hello to you!")),
    (
        ("I love you.", "Will you marry me?", "Be my friend."),
        ("That is very kind! I'm happy to chat with you.", "How kind of you! I'm always here to chat."),
    ),
    (
        ("Happy birthday!", "It's my birthday!", "Today is my birthday."),
        ("Happy birthday to you! Have a lovely day!", "How nice! I wish you a very happy birthday!"),
    ),
    (
        ("Merry Christmas!", "Happy new year!", "Happy holidays!"),
        ("Thank you, the same to you!", "Thank you! I wish you a happy time."),
    ),
]  # fmt: skip
PEOPLE = (
    "My brother", "My sister", "My mother", "My father", "My friend", "My boss", "My neighbour", "My teacher",
    "My uncle", "My wife", "My husband", "My son", "My daughter", "My grandmother",
)  # fmt: skip
DOINGS = (
    "went to the park", "bought a new car", "saw a film", "played football", "cooked dinner", "read a book",
    "went to the beach", "took a long walk", "met an old friend", "went to school", "visited the museum",
    "cleaned the house", "wrote a letter", "saw a big dog", "found some money", "ate too much cake", "worked all day",
    "missed the bus", "planted a tree", "went shopping", "slept very badly", "won a prize", "broke a cup",
    "learned a new song", "went swimming", "lost my keys",
)  # fmt: skip
THINGS = (
    "music", "cats", "dogs", "rain", "the sea", "long walks", "old films", "tea", "coffee", "football", "books",
    "summer", "winter", "trains", "games", "flowers", "dancing", "painting", "horses", "the mountains", "snow",
    "my job", "my friends", "school", "birds",
)  # fmt: skip
INTERESTED = (
    "How interesting! Thank you for telling me.",
    "That is nice to know!",
    "Thank you for telling me!",
    "I see, how interesting!",
)
KINDS = ("greeting", "how", "thanks", "bye", "can", "who", "joke", "feeling", "statement")


def statement(rng: Random) -> Turn:
    """The user says something without asking; the answer fits nearly everything."""
    form = rng.random()
    if form < 0.35:
        when = pick(rng, "", "", "Today ", "Yesterday ", "Last week ", "This morning ")
        user = f"{when}I {rng.choice(DOINGS)}."
    elif form < 0.6:
        user = (
            f"{rng.choice(PEOPLE)} {rng.choice(DOINGS).replace('my', 'some')}{pick(rng, '', ' today', ' yesterday')}."
        )
    else:
        verb = pick(
            rng,
            "I like",
            "I love",
            "I hate",
            "I don't like",
            "I really like",
            "I enjoy",
            "My brother likes",
            "We all like",
            "I prefer",
        )
        user = f"{verb} {rng.choice(THINGS)}."
    return Turn(user, rng.choice(INTERESTED))


def abilities(rng: Random) -> str:
    """One of the phrases that list what the models can do."""
    return rng.choice(ABILITIES)


def _can_do(rng: Random) -> str:
    return pick(rng, "I can help with {}. What would you like to try?", "I can do simple things like {}.",
                "You can ask me for {}.").format(abilities(rng))  # fmt: skip


def greeting(rng: Random) -> Turn:
    """A greeting and its answer."""
    user = rng.choice(GREETINGS)
    lowered = user.lower()
    for part in ("good morning", "good evening", "good afternoon"):
        if part in lowered and rng.random() < 0.8:
            return Turn(user, f"{part.capitalize()}! {pick(rng, 'How can I help you?', 'What can I do for you?')}")
    return Turn(user, rng.choice(HELLO))


def sample(rng: Random, split: Split) -> Turn:
    """A turn of small talk; equal in both splits."""
    del split  # small talk is a closed set: all of it is trained, nothing is held out
    match rng.choices(KINDS, (20, 12, 8, 7, 12, 15, 13, 22, 8))[0]:
        case "greeting":
            return greeting(rng)
        case "how":
            return Turn(rng.choice(HOW), rng.choice(FINE))
        case "thanks":
            return Turn(rng.choice(THANKS), rng.choice(WELCOME))
        case "bye":
            return Turn(rng.choice(BYES), rng.choice(FAREWELL))
        case "can":
            return Turn(rng.choice(WHAT_CAN), _can_do(rng))
        case "who":
            return Turn(rng.choice(WHO), rng.choice(SELF))
        case "joke":
            return Turn(rng.choice(JOKE), rng.choice(JOKES))
        case "statement":
            return statement(rng)
        case _:
            users, replies = rng.choice(FEELINGS)
            return Turn(rng.choice(users), rng.choice(replies))
