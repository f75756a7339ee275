"""Writes the teacher's prompts: one JSON object a line,
{"u": user text, "c": category, "k": key words that a good answer mentions, "f": follow-up user turn or null}."""

import json, random, sys
from wordlists import *


def a(w):
    return w if w.split()[0] in ("a", "an", "the") else ("an " if w[0] in "aeiou" else "a ") + w


MASS = set(FOODS) & set(
    "bread rice soup pasta pizza salad cheese butter honey sugar salt pepper garlic corn milk yogurt chicken fish beef tea coffee juice chocolate spinach".split()
)
MASSN = set(
    "rain snow wind thunder lightning grass moss sand soil mud ice fire smoke water air fog spring summer autumn winter".split()
)
UNIQ = set("sun moon sea ocean sky".split())


def nat(w):
    return w if w in MASSN else ("the " + w if w in UNIQ else a(w))


def plural(w):
    irr = {
        "mouse": "mice",
        "goose": "geese",
        "wolf": "wolves",
        "sheep": "sheep",
        "deer": "deer",
        "salmon": "salmon",
        "goldfish": "goldfish",
        "butterfly": "butterflies",
        "dragonfly": "dragonflies",
        "puppy": "puppies",
        "ladybug": "ladybugs",
        "fox": "foxes",
        "octopus": "octopuses",
    }
    return irr.get(w, w + "s")


FOLLOW = [
    "Can you tell me more?",
    "Why is that?",
    "Can you give me an example?",
    "Thank you! Can you say it in one sentence?",
    "Can you explain that again in simpler words?",
    "That is interesting. What else should I know?",
    "Is that always true?",
    "Please make it shorter.",
    "What is the most important part?",
    "How can I use that?",
    "Thanks!",
    "Thank you, that helps a lot.",
    "Why does it matter?",
    "Who can help me with that?",
    "What should I do first?",
]
FSTORY = [
    "What happens next?",
    "Can you make it funnier?",
    "What does this story teach us?",
    "Tell me another one, please.",
    "Please write a new ending.",
    "Thank you! I like this story.",
    "Give the story a title.",
    "Who is the hero of the story?",
    "Please tell it in two sentences.",
]


def story(r):
    A, N, J, O, P = r.choice(ANIMALS), r.choice(NAMES), r.choice(ADJ), r.choice(OBJECTS), r.choice(PLACES)
    ev = r.choice(EVENTS).format(o=O, p=P, a=r.choice(ANIMALS))
    k = r.random()
    if k < 0.3:
        return (
            f"{r.choice(['Write a short story about', 'Tell me a story about', 'Tell me a short story about', 'Please write a story about'])} {a(J)} {A} who {ev}.",
            [A],
        )
    if k < 0.5:
        return (
            f"{r.choice(['Tell me a bedtime story about', 'Write a short story about', 'Tell me a story about'])} a {r.choice(['girl', 'boy', 'child'])} named {N} who {ev}.",
            [N],
        )
    if k < 0.62:
        return f"Write a short story about {N} and {a(r.choice(COLORS))} {O}.", [N, O]
    if k < 0.74:
        return f"Tell me a story about {a(A)} and {a(r.choice(ANIMALS))} in the {P}.", [A]
    if k < 0.84:
        return f"Tell me a very short story with the words {A}, {O} and {P}.", [A]
    if k < 0.92:
        return f"Write a story about {a(A)} named {N}.", [N]
    return r.choice(
        [
            f"Tell me a story about {a(J)} {A}.",
            f"Can you tell me a story about {a(P)}?",
            f"Write three sentences about {a(J)} {A}.",
        ]
    ), []


def qa(r):
    k = r.randrange(24)
    N, T, A, F = r.choice(NATURE), r.choice(THINGS), r.choice(ANIMALS), r.choice(FOODS)
    f1 = (
        F
        if F in MASS
        else plural(F)
        if not F.endswith(("y", "o", "h"))
        else {
            "cherry": "cherries",
            "strawberry": "strawberries",
            "tomato": "tomatoes",
            "potato": "potatoes",
            "peach": "peaches",
            "sandwich": "sandwiches",
        }.get(F, F + "s")
    )
    if k == 0:
        return f"What is {nat(N)}?", [N]
    if k == 1:
        return f"What is {a(T)} used for?", [T]
    if k == 2:
        return f"What do {plural(A)} eat?", [A[:-1]]
    if k == 3:
        return f"Where do {plural(A)} live?", [A[:-1]]
    if k == 4:
        return f"{r.choice(['Tell me about', 'Describe', 'Tell me something interesting about'])} {plural(A)}.", [
            A[:-1]
        ]
    if k == 5:
        return f"How do I make {r.choice(COOK)}?", []
    if k == 6:
        v = r.choice(ACTIVITIES)
        return f"{r.choice(['How can I', 'How do I', 'What is a good way to'])} {v}?", []
    if k == 7:
        return f"Give me {r.choice(['three', 'two', 'some', 'a few'])} tips for {r.choice(TIPS)}.", []
    if k in (8, 9):
        c = r.choice(CONCEPTS)
        return r.choice(
            [
                f"Explain {c} in simple words.",
                f"What is {c}?"
                if c not in ("magnets", "germs", "bones", "muscles", "teeth", "tides", "the lungs", "the seasons")
                else f"What are {c}?",
                f"Can you explain {c} to a child?",
                f"Why is {c} important?" if not c.endswith("s") else f"Why are {c} important?",
            ]
        ), [c.split()[-1][:-1]]
    if k in (10, 11):
        x, y = r.choice(PAIRS)
        if r.random() < 0.5:
            x, y = y, x
        return f"What is the difference between {x} and {y}?", [x.split()[-1], y.split()[-1]]
    if k == 12:
        return f"What does {a(r.choice(JOBS))} do?", []
    if k == 13:
        return f"{'Is' if F in MASS else 'Are'} {f1} healthy?", [F[:-1]]
    if k == 14:
        return f"What can I cook with {f1}?", [F[:-1]]
    if k == 15:
        return r.choice(
            [
                f"Why do we need {nat(N) if N in MASSN | UNIQ else plural(N)}?",
                f"Describe {nat(N)}.",
                f"Why do people like {nat(N) if N in MASSN | UNIQ else plural(N)}?",
            ]
        ), [N[:-1]]
    if k == 16:
        return f"Who uses {a(T)}?", [T]
    if k == 17:
        return f"Describe {a(T)} in {r.choice(['one sentence', 'two sentences', 'simple words'])}.", [T]
    if k == 18:
        return f"What is {F if F in MASS else a(F)}?", [F[:-1]]
    if k == 19:
        return f"How does {a(A)} move?", [A]
    if k == 20:
        return (
            f"What are the benefits of {r.choice(['walking', 'swimming', 'reading', 'sleeping', 'singing', 'dancing', 'gardening', 'laughing', 'drawing', 'cooking', 'cycling', 'running', 'playing music', 'drinking water', 'eating fruit', 'having a pet', 'learning languages', 'working together', 'resting', 'traveling'])}?",
            [],
        )
    if k == 21:
        return (
            f"Write {r.choice(['a short poem', 'two lines', 'a rhyme', 'a short description'])} about {r.choice([nat(N), a(A), a(T)])}.",
            [],
        )
    if k == 22:
        return (
            f"Name {r.choice(['three', 'five', 'some'])} {r.choice(['animals that live in the ' + r.choice(['sea', 'forest', 'desert', 'jungle', 'river', 'mountains']), 'fruits', 'vegetables', 'colors', 'things in a kitchen', 'things in a school', 'sports', 'musical instruments', 'kinds of weather', 'jobs', 'drinks', 'things that can fly', 'things made of wood', 'things made of glass', 'birds', 'insects', 'games for children', 'flowers', 'tools'])}.",
            [],
        )
    return (
        f"Why do {plural(A)} {r.choice(['sleep', 'make sounds', 'live in groups', 'have tails', 'run', 'hide', 'build homes', 'need water'])}?",
        [A[:-1]],
    )


def talk(r):
    N = r.choice(NAMES)
    f = r.choice(FEELINGS)
    o = [
        f"I feel {f} today.",
        f"I am {f}. What should I do?",
        f"My friend is {f}. What can I say?",
        f"I saw {a(r.choice(ANIMALS))} today.",
        f"I want to buy {a(r.choice(THINGS))}. What should I look for?",
        f"I lost my {r.choice(THINGS)}.",
        f"My name is {N}. I like {plural(r.choice(ANIMALS))}.",
        f"I am learning to {r.choice(['swim', 'cook', 'draw', 'sing', 'dance', 'drive', 'paint', 'read', 'write', 'play the piano'])}.",
        f"It is {r.choice(['raining', 'snowing', 'sunny', 'windy', 'very hot', 'very cold'])} today. What should I do?",
        f"What should I {r.choice(['eat for breakfast', 'eat for lunch', 'eat for dinner', 'wear today', 'read next', 'do this weekend', 'give my mother for her birthday', 'do after school'])}?",
        f"I have {r.choice(['a test', 'a party', 'a long trip', 'a new job', 'a day off', 'a headache', 'a free hour', 'a guest'])} tomorrow.",
        f"Do you like {r.choice([plural(r.choice(ANIMALS)), r.choice(FOODS), 'music', 'books', 'rain', 'snow', 'games'])}?",
        f"Tell me a fun fact about {r.choice([plural(r.choice(ANIMALS)), nat(r.choice(NATURE)), r.choice(CONCEPTS)])}.",
        f"Let us talk about {r.choice(['music', 'food', 'animals', 'sports', 'books', 'the weather', 'travel', 'school', 'family', 'friends', 'the sea', 'the stars'])}.",
        f"I had {r.choice(['a good day', 'a bad day', 'a long day', 'a strange dream', 'a nice walk', 'a big breakfast'])}.",
        f"Can you help me {r.choice(ACTIVITIES)}?",
    ]
    return r.choice(o), []


def main(n, seed, out):
    r = random.Random(seed)
    with open(out, "w") as fh:
        for _ in range(n):
            x = r.random()
            c, fn = ("story", story) if x < 0.36 else ("qa", qa) if x < 0.84 else ("talk", talk)
            u, k = fn(r)
            f = r.choice(FSTORY if c == "story" else FOLLOW) if r.random() < 0.22 else None
            fh.write(json.dumps({"u": u, "c": c, "k": k, "f": f}) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
