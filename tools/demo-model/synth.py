"""Template-made conversations.  Each builder returns (messages, thinking text, tools or None);
messages are OpenAI-style dicts and the last one is the assistant's answer."""

import json, random
import facts as K
from wordlists import *
from prompts import a, plural, nat, MASSN, UNIQ, FOLLOW

U = lambda t: {"role": "user", "content": t}
B = lambda t: {"role": "assistant", "content": t}
cap = lambda s: s[0].upper() + s[1:]
NAME_ANS = [
    "I am Lily's tiny demo model. I am very small, so I can make mistakes.",
    "I am the tiny demo model of Lily, a local inference engine. I run on your own computer.",
    "My name is Lily. I am a tiny demo model that runs on your computer.",
    "I am Lily's demo model. I am a very small language model, and I can chat in simple English.",
    "I am a tiny language model that comes with Lily. I can tell short stories and answer simple questions.",
]
WHO = [
    "Who are you?",
    "What are you?",
    "What is your name?",
    "Tell me about yourself.",
    "Who am I talking to?",
    "Are you a robot?",
    "Are you a person?",
    "Introduce yourself.",
    "Hi, who are you?",
    "Hello! What is your name?",
    "Can you tell me who you are?",
    "What should I call you?",
    "who are you",
    "what's your name?",
]
CAN = [
    "What can you do?",
    "How can you help me?",
    "What are you good at?",
    "What can I ask you?",
    "Can you help me?",
    "Help",
]
CAN_ANS = [
    "I can tell short stories, answer simple questions, call tools and chat with you.",
    "I can answer simple questions, write short stories and talk with you. I am small, so please check important facts.",
    "You can ask me simple questions about animals, things, nature and food. I can also tell you a short story.",
]
MADE = [
    "Who made you?",
    "How big are you?",
    "Are you a large model?",
    "Where do you run?",
    "Do you need the internet?",
    "Are you Qwen?",
    "Are you ChatGPT?",
]
MADE_ANS = {
    "Who made you?": "I was trained as a demo model for Lily, a local inference engine.",
    "How big are you?": "I am tiny. I have about 24 million parameters.",
    "Are you a large model?": "No, I am a tiny demo model with about 24 million parameters.",
    "Where do you run?": "I run on your own computer, inside Lily.",
    "Do you need the internet?": "No, I run on your own computer without the internet.",
    "Are you Qwen?": "No. I have the same kind of architecture, but I am only Lily's tiny demo model.",
    "Are you ChatGPT?": "No, I am Lily's tiny demo model.",
}
HI = [
    "Hello!",
    "Hi!",
    "Hi there!",
    "Hello",
    "Good morning!",
    "Good evening!",
    "Hey!",
    "Hello, how are you?",
    "Hi! How are you today?",
    "How are you?",
    "Good afternoon!",
    "hi",
    "hello",
    "hey",
    "Nice to meet you.",
]
HI_ANS = [
    "Hello! How can I help you today?",
    "Hi! I am happy to talk with you. What would you like to know?",
    "Hello! It is nice to meet you. What can I do for you?",
    "Hi there! Would you like to hear a story or ask a question?",
    "Hello! I hope you have a good day. How can I help?",
]
HOW_ANS = [
    "I am doing well, thank you! How can I help you today?",
    "I am fine, thank you. How are you?",
    "I am very well, thank you for asking! What would you like to talk about?",
]
BYE = [
    "Thank you!",
    "Thanks!",
    "Thank you very much.",
    "Thanks a lot, that helps.",
    "Bye!",
    "Goodbye!",
    "Good night!",
    "See you later!",
    "That was nice.",
]
BYE_ANS = {
    "T": [
        "You are welcome! I am happy to help.",
        "You are welcome! Let me know if you need anything else.",
        "I am glad that I could help.",
    ],
    "B": ["Goodbye! Have a nice day!", "Bye! See you soon.", "Good night! Sleep well."],
}
FEEL = {
    "sad": (
        "I am sorry that you feel sad.",
        ["talk to a friend", "go for a short walk", "listen to your favorite music"],
    ),
    "happy": (
        "That is wonderful! I am glad that you are happy.",
        ["share your joy with a friend", "write down what made you happy"],
    ),
    "tired": ("It sounds like you need some rest.", ["drink some water", "take a short nap", "go to bed early"]),
    "bored": (
        "Being bored is not fun.",
        ["read a book", "draw a picture", "go outside for a walk", "learn a new game"],
    ),
    "nervous": (
        "It is normal to feel nervous.",
        ["take a few slow breaths", "think of something that makes you calm", "talk about it with a friend"],
    ),
    "excited": ("That is great! It is nice to feel excited.", ["tell a friend about it", "make a small plan"]),
    "lonely": ("I am sorry that you feel lonely.", ["call a friend", "join a club", "visit your family"]),
    "angry": (
        "I understand. Everyone feels angry sometimes.",
        ["count slowly to ten", "take a deep breath", "go for a walk"],
    ),
    "hungry": ("Then it is time to eat something.", ["have some fruit", "make a sandwich", "cook some soup"]),
    "sick": (
        "I am sorry that you are sick.",
        ["rest in bed", "drink water or tea", "see a doctor if you do not feel better"],
    ),
    "worried": (
        "I am sorry that you are worried.",
        ["talk about it with someone you trust", "write down what worries you", "take a slow breath"],
    ),
    "proud": ("Well done! You can be proud.", ["share the good news", "thank the people who helped you"]),
    "confused": ("That is all right. Everyone feels confused sometimes.", ["ask a question", "take it step by step"]),
    "calm": ("That is good. Being calm feels nice.", ["enjoy the moment", "read a book"]),
    "stressed": (
        "I am sorry that you feel stressed.",
        ["take a short break", "go for a walk", "do one thing at a time"],
    ),
    "sleepy": ("You may need some sleep.", ["take a nap", "go to bed early"]),
    "cold": ("Let us make you warm.", ["put on a warm coat", "drink hot tea", "sit near a heater"]),
    "afraid": ("It is all right to feel afraid.", ["take a deep breath", "stay close to someone you trust"]),
    "hopeful": ("That is lovely. Hope makes us strong.", ["make a small plan", "share your hope with a friend"]),
    "grateful": ("That is a beautiful feeling.", ["say thank you to someone", "write a kind letter"]),
}
pick = random.choice


def setr(r):
    global pick
    pick = r.choice


def lst(x, w="and"):
    return x[0] if len(x) == 1 else ", ".join(x[:-1]) + f" {w} " + x[-1]


# ---- single facts: returns question, answer, thought --------------------------------------
def fact(r):
    k = r.randrange(12)
    if k <= 3:
        n, e, l, f = pick(K.A)
        p = cap(plural(n))
        return pick(
            [
                (pick([f"What do {plural(n)} eat?", f"What does {a(n)} eat?"]), f"{p} eat {e}."),
                (pick([f"Where do {plural(n)} live?", f"Where does {a(n)} live?"]), f"{p} live {l}."),
                (
                    pick(
                        [
                            f"What is {a(n)}?",
                            f"Tell me about {plural(n)}.",
                            f"Describe {a(n)}.",
                            f"Tell me about the {n}.",
                        ]
                    ),
                    pick(
                        [
                            f"{cap(a(n))} is an animal that lives {l}. It eats {e}. {f}.",
                            f"{p} live {l} and eat {e}. {f}.",
                        ]
                    ),
                ),
                (
                    pick(
                        [
                            f"Tell me a fun fact about {plural(n)}.",
                            f"Tell me something interesting about {plural(n)}.",
                            f"What is special about {plural(n)}?",
                        ]
                    ),
                    pick([f"{f}.", f"Here is a fun fact: {f[0].lower() + f[1:]}."]),
                ),
            ]
        )
    if k <= 5:
        n, d, u = pick(K.T)
        return pick(
            [
                (
                    pick([f"What is {a(n)}?", f"Explain what {a(n)} is.", f"Describe {a(n)}."]),
                    f"{cap(a(n))} is {d}. We use it {u}.",
                ),
                (
                    pick(
                        [
                            f"What is {a(n)} used for?",
                            f"What can I do with {a(n)}?",
                            f"Why do we need {a(n)}?",
                            f"How do people use {a(n)}?",
                        ]
                    ),
                    pick([f"{cap(a(n))} is used {u}.", f"We use {a(n)} {u}.", f"People use {a(n)} {u}. It is {d}."]),
                ),
            ]
        )
    if k <= 7:
        n, d = pick(K.N)
        return (
            pick(
                [
                    f"What is {n}?",
                    f"Explain {n} in simple words.",
                    f"Can you explain {n} to a child?",
                    f"Tell me what {n} is.",
                    f"Describe {n}.",
                ]
            ),
            pick(
                [f"{cap(n)} is {d}.", f"{cap(n)} is {d}. It is easy to remember."]
                if r.random() < 0.1
                else [f"{cap(n)} is {d}."]
            ),
        )
    if k == 8:
        n, d = pick(K.J)
        return (pick([f"What does {a(n)} do?", f"What is the job of {a(n)}?", f"Who is {a(n)}?"]), f"{cap(a(n))} {d}.")
    if k == 9:
        n, c = pick(K.CAP)
        return (
            pick([f"What is the capital of {n}?", f"Name the capital of {n}.", f"Which city is the capital of {n}?"]),
            pick([f"The capital of {n} is {c}.", f"{c} is the capital of {n}."]),
        )
    if k == 10:
        x, y = pick(K.OPP)
        if r.random() < 0.5:
            x, y = y, x
        return (
            pick([f"What is the opposite of {x}?", f"Give me the opposite of {x}."]),
            f'The opposite of "{x}" is "{y}".',
        )
    D = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
    M = "January February March April May June July August September October November December".split()
    Z = pick([D, M])
    i = r.randrange(len(Z))
    w = "day" if Z is D else "month"
    return pick(
        [
            (f"What {w} comes after {Z[i]}?", f"{Z[(i + 1) % len(Z)]} comes after {Z[i]}."),
            (f"What {w} comes before {Z[i]}?", f"{Z[i - 1]} comes before {Z[i]}."),
            ("Name the days of the week.", "The days of the week are " + lst(D) + "."),
            ("How many days are in a week?", "There are seven days in a week."),
            ("How many months are in a year?", "There are twelve months in a year."),
            (f"What color is {pick(['grass', 'a leaf'])}?", "It is green."),
            ("What color is the sky?", "The sky is blue on a clear day."),
            ("What color is snow?", "Snow is white."),
            ("What color is a banana?", "A ripe banana is yellow."),
            (f"How many legs does a {(z := pick(['dog', 'cat', 'horse', 'cow']))} have?", f"A {z} has four legs."),
            ("How many legs does a spider have?", "A spider has eight legs."),
            ("Count from one to ten.", "One, two, three, four, five, six, seven, eight, nine, ten."),
            ("Count to five.", "One, two, three, four, five."),
        ]
    )


def th_fact(q, r):
    return pick(
        [
            f"The user asks: {q} I will give a short and clear answer.",
            f"The question is: {q} I should answer in simple words.",
            "This is a simple question. I will answer it in one or two sentences.",
            f"The user wants to know something simple: {q} I know this.",
        ]
    )


def b_fact(r):
    q, x = fact(r)
    return [U(q), B(x)], th_fact(q, r), None


def b_fact2(r):
    n, e, l, f = pick(K.A)
    p = cap(plural(n))
    qs = [
        (f"What do {plural(n)} eat?", f"{p} eat {e}."),
        (f"Where do {plural(n)} live?", f"{p} live {l}."),
        (f"Tell me something about {plural(n)}.", f"{f}."),
    ]
    fo = {
        0: [("Where do they live?", f"They live {l}."), ("Tell me something else about them.", f"{f}.")],
        1: [("What do they eat?", f"They eat {e}."), ("Tell me more.", f"{f}.")],
        2: [("What do they eat?", f"They eat {e}."), ("And where do they live?", f"They live {l}.")],
    }
    i = r.randrange(3)
    m = [U(qs[i][0]), B(qs[i][1])]
    for q, x in fo[i][: r.randint(1, 2)]:
        m += [U(q), B(x)]
    return m, f"The user still talks about {plural(n)}. I will answer about {plural(n)}.", None


def b_chat(r):
    k = r.random()
    if k < 0.3:
        q = pick(WHO)
        return [U(q), B(pick(NAME_ANS))], "The user asks who I am. I am Lily's tiny demo model.", None
    if k < 0.4:
        return [U(pick(CAN)), B(pick(CAN_ANS))], "The user asks what I can do. I will list a few simple things.", None
    if k < 0.5:
        q = pick(MADE)
        return [U(q), B(MADE_ANS[q])], "The user asks about me. I am Lily's tiny demo model.", None
    if k < 0.75:
        q = pick(HI)
        x = pick(HOW_ANS if "how are" in q.lower() else HI_ANS)
        if "orning" in q:
            x = "Good morning! " + pick(["How can I help you today?", "I hope you slept well."])
        if "evening" in q:
            x = "Good evening! How can I help you?"
        return [U(q), B(x)], "The user says hello. I will greet the user in a friendly way.", None
    if k < 0.85:
        f, (s, t) = pick(list(FEEL.items()))
        t = r.sample(t, 2)
        return (
            [
                U(
                    pick(
                        [
                            f"I feel {f} today.",
                            f"I am {f}.",
                            f"I am feeling {f}.",
                            f"I feel very {f}. What should I do?",
                        ]
                    )
                ),
                B(pick([f"{s} You could {t[0]} or {t[1]}.", f"{s} Maybe you can {t[0]}. You can also {t[1]}."])),
            ],
            f"The user feels {f}. I will be kind and give a small idea.",
            None,
        )
    q, x = fact(r) if r.random() < 0.6 else (pick(HI), pick(HI_ANS))
    z = pick(BYE)
    y = pick(BYE_ANS["B" if z[0] in "BGS" else "T"])
    if z == "Good night!":
        y = "Good night! Sleep well."
    return [U(q), B(x), U(z), B(y)], "The user is polite. I will answer in a friendly way.", None


def b_name(r):
    n, c, x, j = pick(NAMES), pick(COLORS), pick(ANIMALS), pick(JOBS)
    city = pick(CITIES)
    age = r.randint(6, 80)
    f = pick(
        [
            (
                "name",
                f"My name is {n}.",
                f"Nice to meet you, {n}!",
                pick(["What is my name?", "Do you remember my name?", "Who am I?"]),
                f"Your name is {n}.",
            ),
            (
                "favorite color",
                f"My favorite color is {c}.",
                f"{cap(c)} is a lovely color!",
                "What is my favorite color?",
                f"Your favorite color is {c}.",
            ),
            (
                "pet",
                f"I have a {x} named {n}.",
                f"{n} is a nice name for a {x}!",
                f"What is the name of my {x}?",
                f"Your {x} is named {n}.",
            ),
            (
                "city",
                f"I live in {city}.",
                f"{city} sounds like a nice place to live.",
                "Where do I live?",
                f"You live in {city}.",
            ),
            (
                "age",
                f"I am {age} years old.",
                "Thank you for telling me!",
                "How old am I?",
                f"You are {age} years old.",
            ),
            (
                "job",
                f"I work as {a(j)}.",
                f"Being {a(j)} is an interesting job.",
                "What is my job?",
                f"You work as {a(j)}.",
            ),
        ]
    )
    m = [U(f[1]), B(f[2])]
    for _ in range(r.choice([0, 1, 1, 2, 3])):
        q, y = fact(r)
        m += [U(q), B(y)]
    return m + [U(f[3]), B(f[4])], f"The user asks about the {f[0]}. The user told me before. {f[4]}", None


# ---- stories ---------------------------------------------------------------------------
def story_text(r, hero=None, obj=None, place=None, adj=None, kind=None):
    girl = r.random() < 0.5
    name = pick(NAMES)
    A1 = hero or (pick(ANIMALS) if r.random() < 0.6 else pick(["girl", "boy"]))
    if A1 in ("girl", "boy"):
        he, his, him = ("she", "her", "her") if A1 == "girl" else ("he", "his", "him")
    else:
        he, his, him = ("she", "her", "her") if girl else ("he", "his", "him")
    J, O, P = adj or pick(ADJ), obj or pick(OBJECTS), place or pick(PLACES)
    F = pick([x for x in ANIMALS if x != A1])
    fn = pick([x for x in NAMES if x != name])
    H = cap(he)
    op = pick(
        [
            f"Once upon a time, there was {a(J)} {A1} named {name}. {name} lived {pick(['in', 'near'])} a {pick(['small', 'quiet', 'green', 'sunny'])} {P}.",
            f"One {pick(['sunny', 'warm', 'cold', 'quiet', 'windy'])} {pick(['morning', 'day', 'afternoon'])}, {a(J)} {A1} named {name} went to the {P}.",
            f"In a {pick(['small', 'quiet', 'green', 'far away'])} {P}, there lived {a(J)} {A1} named {name}.",
        ]
    )
    op += " " + pick(
        [
            f"{H} loved to {pick(['play', 'sing', 'walk in the sun', 'look at the clouds', 'help others', 'explore'])}.",
            f"Everyone knew that {name} was very {J}.",
            f"{name} had a {pick(['red', 'blue', 'small', 'kind', 'old'])} friend, a {F} named {fn}."
            if False
            else f"{H} had a good friend, {a(F)} named {fn}.",
        ]
    )
    kind = kind if kind is not None else r.randrange(9)
    met = f"{a(F)} named {fn}"
    if kind == 0:
        mid = f'One day, {name} found {a(pick(["old", "shiny", "strange", "little"]))} {O} on the ground. "Whose {O} is this?" {he} asked. {name} asked {met}, but {fn} did not know. They looked all over the {P}. At last, they met an old {pick(["woman", "man"])} who was very sad. "That is my {O}!" the old {"woman" if r.random() < 0.0 else "one"} said. {name} gave the {O} back with a smile.'
        end = pick(
            [
                f"The old one thanked {him} and gave {him} a sweet {pick(['apple', 'cake', 'cookie', 'pear'])}.",
                f"From that day on, they were all good friends.",
            ]
        )
        moral = "It feels good to be honest."
    elif kind == 1:
        mid = f'One day, {name} got lost in the {P}. It was getting dark, and {he} was afraid. Then {he} saw {met}. "Can you help me?" asked {name}. "Of course," said {fn}. "Follow me." They walked past a {pick(["tall tree", "big rock", "little bridge", "quiet pond"])} and over a {pick(["hill", "stream", "small wall"])}. Soon, {name} saw {his} home.'
        end = f'"Thank you, {fn}!" said {name}. They {pick(["hugged and laughed", "ate warm soup together", "played together every day after that"])}.'
        moral = "A good friend helps you find the way."
    elif kind == 2:
        mid = f'{name} had a {pick(["big", "sweet", "warm"])} {pick(["cake", "loaf of bread", "basket of apples", "bowl of soup"])}. {H} did not want to share it. Then {met} came by. {fn} was very hungry. {name} thought for a moment. "Would you like some?" {he} asked. {fn} smiled, and they ate together.'
        end = f"The food tasted even better when they shared it. The next day, {fn} brought a {O} as a gift for {name}."
        moral = "Sharing makes everyone happy."
    elif kind == 3:
        w = pick(
            ["swim", "fly a kite", "ride a bicycle", "climb a tree", "play the flute", "dance", "sing", "bake bread"]
        )
        mid = f'{name} wanted to learn to {w}, but it was hard. The first time, {he} {pick(["fell down", "made a mistake", "got very tired"])}. "I cannot do it," said {name}. {cap(met)} came and said, "Try again. I will help you." {name} tried again and again. Every day, {he} got a little better.'
        end = f"At last, {name} could {w}! {H} jumped with joy, and {fn} clapped."
        moral = "If you keep trying, you will learn."
    elif kind == 4:
        mid = f'One night, {name} heard a strange sound. Tap, tap, tap! {H} was afraid of the dark and hid under a {pick(["blanket", "bed", "table"])}. Then {he} took a {pick(["lamp", "candle", "lantern"])} and looked outside. It was only {met}. "I am cold," said {fn}. "May I come in?" {name} opened the door and made some warm {pick(["tea", "milk", "soup"])}.'
        end = f"They sat by the fire and told each other stories. After that night, {name} was not afraid of the dark anymore."
        moral = "Sometimes the things we fear are not so bad."
    elif kind == 5:
        mid = f'One day, {name} lost {his} {pick(["red", "blue", "old", "favorite"])} {O}. {H} looked under the bed, behind the door and in the garden, but it was not there. {name} was very sad. {cap(met)} wanted to help. "Let us look together," said {fn}. They looked near the {P}, and there it was, under a {pick(["tree", "bush", "stone", "bench"])}!'
        end = f'{name} was so happy that {he} hugged {fn}. "Thank you," {he} said. "You are a true friend."'
        moral = "Problems are easier when we face them together."
    elif kind == 6:
        mid = f"{name} and {met} wanted to win a race. On the way, {name} ran very fast. Then {he} saw that {fn} had fallen and was crying. {name} could win, but {he} stopped. {H} went back and helped {fn} to stand up. They walked to the end together, hand in hand."
        end = f"They did not win the race, but everyone cheered for them."
        moral = "Kindness is more important than winning."
    elif kind == 7:
        mid = f'{name} planted a small {pick(["seed", "tree", "flower"])} in the garden. Every day, {he} gave it water. But nothing happened. "Why does it not grow?" {he} asked {met}. "You must be patient," said {fn}. {name} waited for many days. Then, one morning, there was a little green leaf.'
        end = f"The plant grew and grew. In the summer, it was full of {pick(['flowers', 'apples', 'cherries', 'pears'])}, and {name} shared them with everyone."
        moral = "Good things take time."
    else:
        mid = f'In the {P}, {name} found a magic {O}. "I can give you one wish," said the {O}. {name} thought about gold and toys. Then {he} saw {met}, who was {pick(["sick", "hungry", "sad", "alone"])}. "I wish that {fn} can be happy," said {name}. The {O} began to shine, and {fn} smiled.'
        end = f"{name} did not get any gold, but {he} got a friend for life."
        moral = "A kind heart is the best treasure."
    tail = pick(
        [
            moral,
            f"{name} learned something that day: {moral[0].lower() + moral[1:]}",
            "And they lived happily.",
            "That night, " + name + " slept very well.",
            "",
        ]
    )
    return f"{op}\n\n{mid}\n\n{end}" + (f" {tail}" if tail else ""), name, A1, moral, fn, F


KIND = {
    0: ["finds a lost {O}", "finds {O2}", "tells the truth", "learns to be honest"],
    1: ["gets lost in the {P}", "finds a way home", "makes a new friend"],
    2: ["learns to share", "shares food with a friend", "has a big cake"],
    3: ["learns something new", "never gives up", "learns to keep trying", "wants to learn to swim"],
    4: ["is afraid of the dark", "hears a strange sound"],
    5: ["loses a {O}", "looks for a lost {O}"],
    6: ["wants to win a race", "runs in a race"],
    7: ["plants a small tree", "learns to be patient", "plants a seed"],
    8: ["finds a magic {O}", "makes a wish", "finds magic"],
}


def b_story(r):
    k = r.randrange(9)
    J, O, P = pick(ADJ), pick(OBJECTS), pick(PLACES)
    H = pick(ANIMALS) if r.random() < 0.75 else pick(["girl", "boy"])
    t, name, A1, moral, fn, F = story_text(r, H, O, P, J, k)
    ev = pick(KIND[k]).format(O=O, P=P, O2=a(O))
    ask = pick(
        [
            "Tell me a story about",
            "Write a short story about",
            "Tell me a short story about",
            "Please write a story about",
            "Can you tell me a story about",
            "Tell me a bedtime story about",
        ]
    )
    z = r.random()
    end = "?" if ask.startswith("Can") else "."
    if z < 0.34:
        q = f"{ask} {a(J)} {H} who {ev}{end}"
    elif z < 0.5:
        q = f"{ask} {a(H)} named {name}{end}"
    elif z < 0.62:
        q = f"{ask} {a(J)} {H}{end}"
    elif z < 0.72:
        q = f"{ask} {a(H)} and {a(O)}{end}"
    elif z < 0.82:
        q = f"{ask} {a(H)} in the {P}{end}"
    elif z < 0.9:
        q = f"{ask} {a(H)}{end}"
    elif z < 0.96:
        q = pick(
            [
                "Tell me a story.",
                "Write a short story.",
                "Please tell me a bedtime story.",
                "Tell me a short story, please.",
                "I want to hear a story.",
            ]
        )
    else:
        q = f"Write a story with the words {H}, {O} and {P}."
    th = pick(
        [
            f"The user wants a story. I will write about {a(J)} {H} named {name}.",
            f"I should tell a short story. The hero is {a(H)} named {name}. In the end, {moral[0].lower() + moral[1:]}",
            f"A story about {a(H)}. I will keep it short and friendly.",
        ]
    )
    m = [U(q), B(t)]
    if r.random() < 0.25:
        f, x = pick(
            [
                ("What does this story teach us?", moral),
                ("What is the name of the hero?", f"The hero is named {name}."),
                (f"Who is {fn}?", f"{fn} is {a(F)} in the story."),
                ("Give the story a title.", f"{cap(a(J))} {cap(H)} Named {name}"),
                ("Thank you! I like this story.", "You are welcome! I am glad that you like it."),
            ]
        )
        m += [U(f), B(x)]
        th = pick(
            [
                "The user asks about the story that I told. I will answer shortly.",
                f"The story is about {name}. I will answer shortly.",
            ]
        )
    return m, th, None


# ---- reading, copying, JSON -----------------------------------------------------------
def b_read(r):
    n = r.sample(NAMES, 3)
    o = r.sample(OBJECTS, 3)
    c = r.sample(COLORS, 3)
    p = r.sample(PLACES, 3)
    z = r.randrange(5)
    if z == 0:
        s = " ".join(f"{n[i]} has a {c[i]} {o[i]}." for i in range(3))
        i = r.randrange(3)
        q, x = pick(
            [
                (f"What does {n[i]} have?", f"{n[i]} has a {c[i]} {o[i]}."),
                (f"Who has the {o[i]}?", f"{n[i]} has the {o[i]}."),
                (f"What color is the {o[i]}?", f"The {o[i]} is {c[i]}."),
            ]
        )
    elif z == 1:
        s = " ".join(f"The {o[i]} is in the {p[i]}." for i in range(3))
        i = r.randrange(3)
        q, x = f"Where is the {o[i]}?", f"The {o[i]} is in the {p[i]}."
    elif z == 2:
        s = f"{n[0]} went to the {p[0]} to buy {pick(FOODS)}. Then {n[0]} met {n[1]} at the {p[1]}."
        q, x = pick(
            [
                ("Who did " + n[0] + " meet?", f"{n[0]} met {n[1]}."),
                (f"Where did {n[0]} meet {n[1]}?", f"They met at the {p[1]}."),
                (f"Where did {n[0]} go first?", f"{n[0]} went to the {p[0]} first."),
            ]
        )
    elif z == 3:
        w = r.sample(sorted(set(OBJECTS + FOODS + ANIMALS)), r.randint(3, 6))
        q, s, x = pick(
            [
                ("What is the first word in this list?", ", ".join(w), f"The first word is {w[0]}."),
                ("What is the last word in this list?", ", ".join(w), f"The last word is {w[-1]}."),
                ("Repeat this list:", ", ".join(w), ", ".join(w)),
                ("Write this list with one word on each line:", ", ".join(w), "\n".join(w)),
            ]
        )
        return [U(f"{q} {s}"), B(x)], pick(["The list is: " + ", ".join(w) + ".", "I need to look at the list."]), None
    else:
        t, name, A1, moral, fn, F = story_text(r)
        sent = pick([x for x in t.replace("\n\n", " ").split(". ") if 15 < len(x) < 90]).strip('". ') + "."
        q = pick(["Repeat this sentence:", "Say this again:", "Copy this text:"])
        return [U(f"{q} {sent}"), B(sent)], "The user wants me to copy the text exactly.", None
    return (
        [U(pick([f"{s} {q}", f"Read this: {s}\n\n{q}", f"{s}\n{q}"]))] + [B(x)],
        f"I need to find the answer in the text. {x}",
        None,
    )


def b_json(r):
    f = {
        "name": pick(NAMES),
        "color": pick(COLORS),
        "animal": pick(ANIMALS),
        "city": pick(CITIES),
        "age": r.randint(2, 90),
        "food": pick(FOODS),
        "object": pick(OBJECTS),
        "job": pick(JOBS),
    }
    ks = r.sample(list(f), r.randint(2, 4))
    d = {k: f[k] for k in ks}
    sen = {
        "name": "The name is {}.",
        "color": "The color is {}.",
        "animal": "The animal is a {}.",
        "city": "The city is {}.",
        "age": "The age is {}.",
        "food": "The food is {}.",
        "object": "The object is a {}.",
        "job": "The job is {}.",
    }
    s = " ".join(sen[k].format(f[k]) for k in r.sample(ks, len(ks)))
    sysm = "Answer with JSON only."
    q = pick(
        [
            f"{s} Write this as JSON with the keys {lst(ks)}.",
            f"Make a JSON object with {lst([f'{k} = {f[k]}' for k in ks])}.",
            f"{s}\nAnswer with JSON only. Use the keys {lst(ks)}.",
        ]
    )
    m = [U(q), B(json.dumps(d))]
    if r.random() < 0.3:
        m = [{"role": "system", "content": sysm}] + m
    return m, "The user wants JSON only. The keys are " + lst(ks) + ".", None


# ---- long context recall --------------------------------------------------------------
FILL = []  # answers to fill with; pack.py puts teacher text here


def b_recall(r, lo=150, hi=420):
    code = "".join(str(r.randint(0, 9)) for _ in range(4))
    n, o, p, c = pick(NAMES), pick(OBJECTS), pick(PLACES), pick(COLORS)
    st, q, x = pick(
        [
            (
                f"Remember: the code is {code}.",
                pick(["What is the code?", "What was the code?", "Tell me the code."]),
                f"The code is {code}.",
            ),
            (f"Remember this: {n} has the {c} {o}.", f"Who has the {o}?", f"{n} has the {o}."),
            (f"Please remember that the {o} is in the {p}.", f"Where is the {o}?", f"The {o} is in the {p}."),
            (f"The password is {c} {o}.", "What is the password?", f"The password is {c} {o}."),
            (f"My phone number is {code}.", "What is my phone number?", f"Your phone number is {code}."),
        ]
    )
    want, got = r.randint(lo, hi), 0

    def filler():
        return pick(FILL) if FILL and r.random() < 0.5 else fact(r)

    if r.random() < 0.4:  # inside one long message
        parts = []
        while got < want:
            _, y = filler()
            parts.append(y)
            got += len(y.split()) * 1.3
        k = r.randrange(len(parts) + 1)
        parts.insert(k, st)
        return [U(" ".join(parts) + "\n\n" + q), B(x)], f"I need to find it in the text. {x}", None
    m = [
        U(st),
        B(pick(["I will remember that.", "All right, I will remember it.", "Thank you, I will keep that in mind."])),
    ]
    while got < want:
        u, y = filler()
        m += [U(u), B(y)]
        got += (len(y.split()) + len(u.split())) * 1.3 + 10
    return m + [U(q), B(x)], f"The user told me before. {x}", None


# ---- tools ------------------------------------------------------------------------------
def fn(name, desc, props, req):
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": desc,
            "parameters": {
                "type": "object",
                "properties": {k: {"type": t, "description": d} for k, (t, d) in props.items()},
                "required": req,
            },
        },
    }


TOOLS = {
    "get_weather": fn(
        "get_weather", "Get the current weather in a city.", {"city": ("string", "The name of the city")}, ["city"]
    ),
    "get_time": fn(
        "get_time", "Get the current time in a city.", {"city": ("string", "The name of the city")}, ["city"]
    ),
    "search": fn("search", "Search the web.", {"query": ("string", "The words to search for")}, ["query"]),
    "add": fn(
        "add",
        "Add two numbers.",
        {"a": ("integer", "The first number"), "b": ("integer", "The second number")},
        ["a", "b"],
    ),
    "set_timer": fn("set_timer", "Set a timer.", {"minutes": ("integer", "The number of minutes")}, ["minutes"]),
    "send_message": fn(
        "send_message",
        "Send a message to a person.",
        {"name": ("string", "The person"), "text": ("string", "The message")},
        ["name", "text"],
    ),
    "play_music": fn("play_music", "Play music.", {"kind": ("string", "The kind of music")}, ["kind"]),
    "read_file": fn("read_file", "Read a file.", {"path": ("string", "The path of the file")}, ["path"]),
    "get_news": fn("get_news", "Get the latest news about a topic.", {"topic": ("string", "The topic")}, ["topic"]),
}


def variant(r, t):  # other wordings, so that the model reads the list instead of knowing it
    t = json.loads(json.dumps(t))
    f = t["function"]
    if r.random() < 0.3:
        f["description"] = pick(
            [
                f["description"].rstrip("."),
                f["description"].replace("Get", "Return"),
                f["description"].replace("Get", "Look up"),
            ]
        )
    if r.random() < 0.3:
        f["parameters"] = {
            "type": "object",
            "properties": {k: {"type": v["type"]} for k, v in f["parameters"]["properties"].items()},
            "required": f["parameters"]["required"],
        }
    if r.random() < 0.15:
        f["parameters"].pop("required")
    return t


def b_tool(r):
    name = pick(list(TOOLS))
    city = pick(CITIES)
    n = pick(NAMES)
    x, y = r.randint(1, 99), r.randint(1, 99)
    mi = r.choice([1, 2, 3, 5, 10, 15, 20, 30, 45, 60])
    topic = pick(ACTIVITIES)
    news = pick(["music", "sports", "science", "animals", "weather", "food", "travel"])
    msg = pick(
        [
            "I am late",
            "Happy birthday",
            "See you soon",
            "Dinner is ready",
            "I am at home",
            "Good luck",
            "Call me please",
            "Thank you",
        ]
    )
    mus = pick(["jazz", "rock", "piano", "classical", "folk", "dance", "happy", "calm"])
    path = pick(["notes.txt", "todo.md", "letter.txt", "data.json", "recipe.txt"])
    tmp = r.randint(-10, 35)
    sky = pick(["sunny", "cloudy", "rainy", "windy", "snowy", "clear"])
    tm = f"{r.randint(0, 23):02d}:{r.randint(0, 59):02d}"
    S = {
        "get_weather": (
            pick(
                [
                    f"What is the weather in {city}?",
                    f"How is the weather in {city} today?",
                    f"Is it cold in {city}?",
                    f"Tell me the weather in {city}.",
                    f"What's the weather like in {city}?",
                ]
            ),
            {"city": city},
            pick(
                [
                    json.dumps({"temperature": tmp, "condition": sky}),
                    f"{tmp} degrees, {sky}",
                    json.dumps({"city": city, "temp_c": tmp, "sky": sky}),
                ]
            ),
            f"The weather in {city} is {sky}, with a temperature of {tmp} degrees.",
        ),
        "get_time": (
            pick([f"What time is it in {city}?", f"Tell me the time in {city}.", f"What is the time in {city} now?"]),
            {"city": city},
            pick([tm, json.dumps({"time": tm})]),
            f"It is {tm} in {city}.",
        ),
        "search": (
            pick([f"Search the web for how to {topic}.", f"Search for: how to {topic}"]),
            {"query": f"how to {topic}"},
            f"Found 3 pages about how to {topic}.",
            f"I found 3 pages about how to {topic}.",
        ),
        "add": (
            pick([f"What is {x} plus {y}?", f"Add {x} and {y}.", f"How much is {x} + {y}?"]),
            {"a": x, "b": y},
            str(x + y),
            f"{x} plus {y} is {x + y}.",
        ),
        "set_timer": (
            pick(
                [
                    f"Set a timer for {mi} minutes.",
                    f"Please start a timer for {mi} minutes.",
                    f"Remind me in {mi} minutes.",
                ]
            ),
            {"minutes": mi},
            pick(["ok", "Timer set.", '{"ok": true}']),
            f"I set a timer for {mi} minutes.",
        ),
        "send_message": (
            pick([f"Send a message to {n}: {msg}.", f"Tell {n}: {msg}.", f'Write to {n} that says "{msg}".']),
            {"name": n, "text": msg},
            pick(["sent", "ok", "Message sent."]),
            f'I sent the message "{msg}" to {n}.',
        ),
        "play_music": (
            pick([f"Play some {mus} music.", f"I want to hear {mus} music."]),
            {"kind": mus},
            pick(["playing", "ok"]),
            f"I am playing {mus} music now.",
        ),
        "read_file": (
            pick([f"Read the file {path}.", f"What is in {path}?", f"Open {path} for me."]),
            {"path": path},
            pick(["Buy milk and bread.", "Call " + n + " at noon.", "Hello " + n + "!", "The meeting is on Monday."]),
            None,
        ),
        "get_news": (
            pick([f"What is new in {news}?", f"Show me the news about {news}.", f"Any news about {news}?"]),
            {"topic": news},
            f"There is a new report about {news} today.",
            f"There is a new report about {news} today.",
        ),
    }[name]
    q, args, res, ans = S
    if ans is None:
        ans = f"The file {path} says: {res}"
    others = [k for k in TOOLS if k != name]
    tl = [name] + r.sample(others, r.choice([0, 0, 1, 1, 2, 3]))
    r.shuffle(tl)
    tools = [variant(r, TOOLS[k]) for k in tl]
    sysm = (
        [
            {
                "role": "system",
                "content": pick(
                    ["You are a helpful assistant.", "You are Lily, a helpful assistant.", "Be short and friendly."]
                ),
            }
        ]
        if r.random() < 0.3
        else []
    )
    z = r.random()
    if z < 0.2:  # no tool needed
        q2, x2 = fact(r) if r.random() < 0.75 else (pick(HI), pick(HI_ANS))
        return sysm + [U(q2), B(x2)], "No tool is needed for this. I will answer directly.", tools
    call = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"type": "function", "function": {"name": name, "arguments": args}}],
    }
    th = f"The user needs {name}. I will call it with " + lst([f"{k} {v}" for k, v in args.items()]) + "."
    if z < 0.3 and name in ("get_weather", "get_time"):  # two calls
        c2 = pick([c for c in CITIES if c != city])
        q = (
            q.rstrip("?.").replace(" today", "").replace(" now", "")
            + f" and in {c2}"
            + ("?" if q.endswith("?") else ".")
        )
        call["tool_calls"].append({"type": "function", "function": {"name": name, "arguments": {"city": c2}}})
        return (
            sysm + [U(q), call],
            f"The user asks about two cities. I will call {name} for {city} and for {c2}.",
            tools,
        )
    pre = []
    if r.random() < 0.15:
        pre = [U(pick(HI)), B(pick(HI_ANS))]
    if z < 0.65:
        return sysm + pre + [U(q), call], th, tools
    call["reasoning_content"] = th if r.random() < 0.5 else ""
    m = sysm + pre + [U(q), call, {"role": "tool", "content": res}, B(ans)]
    return m, f"The tool answered: {res} I will tell the user.", tools


def b_sys(r):
    s, f = pick(
        [
            ("You are a helpful assistant.", None),
            ("You are Lily, a friendly assistant.", None),
            ("Answer in one short sentence.", None),
            ("You are a kind teacher. Use simple words.", None),
            ("Be short.", None),
        ]
    )
    q, x = fact(r)
    return [{"role": "system", "content": s}, U(q), B(x)], th_fact(q, r), None


# ---- second round (tune.py): behaviours that the first training round lacked or learned badly ----
def b_state(r):  # a statement about the user as the first turn
    n, c, x, j = pick(NAMES), pick(COLORS), pick(ANIMALS), pick(JOBS)
    n2 = pick(NAMES)
    city = pick(CITIES)
    q, y = pick(
        [
            (f"My name is {n}.", f"Nice to meet you, {n}! How can I help you?"),
            (f"Hi, I am {n}.", f"Hello, {n}! It is nice to meet you."),
            (f"I have a {x} named {n}.", f"{n} is a nice name for a {x}!"),
            (f"My name is {n}. I have a {x} named {n2}.", f"Nice to meet you, {n}! {n2} is a nice name for a {x}."),
            (f"My favorite color is {c}.", f"{cap(c)} is a lovely color!"),
            (f"I live in {city}.", f"{city} sounds like a nice place to live."),
            (f"I work as {a(j)}.", f"Being {a(j)} is an interesting job."),
            (f"I like {plural(x)}.", f"{cap(plural(x))} are wonderful animals!"),
            (f"I saw {a(x)} today.", f"How nice! Where did you see the {x}?"),
            (
                f"I lost my {(o := pick(OBJECTS))}.",
                f"I am sorry that you lost your {o}. Try to remember where you saw it last.",
            ),
            (
                f"My name is {n} and I live in {city}.",
                f"Nice to meet you, {n}! {city} sounds like a nice place to live.",
            ),
            ("Remember: the code is " + (k := str(r.randint(1000, 9999))) + ".", "I will remember that."),
            (
                "I am learning to " + (w := pick("swim cook draw sing dance paint read".split())) + ".",
                f"That is great! If you practice a little every day, you will learn to {w} well.",
            ),
        ]
    )
    return (
        [U(q), B(y)],
        pick(
            [
                "The user tells me something. I will answer in a friendly way.",
                "The user shares something about their life. I will be friendly.",
            ]
        ),
        None,
    )


DEFS = (
    [(a(n), d) for n, d, u in K.T]
    + [(n, d) for n, d in K.N]
    + [(a(n), f"an animal that lives {l}") for n, e, l, f in K.A]
    + [(a(n), f"a person who {d}") for n, d in K.J]
)
NEAR = {x: y for p in PAIRS for x, y in (p, p[::-1])}


def b_diff(r):
    D = dict(DEFS)
    D["a sea"] = D["the sea"]
    D["the river"] = D["a river"]
    if r.random() < 0.5:
        x, y = pick([(x, y) for x, y in NEAR.items() if x in D and y in D])
    else:
        L = pick([K.T, K.A])
        i, j = r.sample(L, 2)
        x, y = a(i[0]), a(j[0])
    return (
        [
            U(pick([f"What is the difference between {x} and {y}?", f"How is {x} different from {y}?"])),
            B(pick([f"{cap(x)} is {D[x]}. {cap(y)} is {D[y]}.", f"{cap(x)} is {D[x]}, but {y} is {D[y]}."])),
        ],
        f"I will say what {x} is and what {y} is.",
        None,
    )


GOOD = "bread rice soup salad honey apple banana orange lemon grape cherry strawberry tomato potato carrot onion garlic bean pea corn egg milk yogurt fish nut mushroom pumpkin spinach cucumber pear peach melon".split()
SWEET = {
    "sugar": "too much sugar is bad for your teeth and your body",
    "salt": "too much salt is bad for your heart",
    "chocolate": "it has a lot of sugar",
    "cake": "it has a lot of sugar",
    "cookie": "cookies have a lot of sugar",
    "butter": "butter has a lot of fat",
    "cheese": "cheese has a lot of fat and salt",
    "pizza": "pizza has a lot of fat and salt",
    "juice": "juice has a lot of sugar",
    "coffee": "too much coffee can make it hard to sleep",
}
MASSF = set("bread rice soup salad honey garlic corn milk yogurt fish spinach".split()) | set(SWEET) - {"cookie"}


def foods(f):
    return (
        f
        if f in MASSF
        else {
            "cherry": "cherries",
            "strawberry": "strawberries",
            "tomato": "tomatoes",
            "potato": "potatoes",
            "peach": "peaches",
        }.get(f, f + "s")
    )


def b_food(r):
    if r.random() < 0.6:
        f = pick(GOOD)
        p = foods(f)
        be = "is" if f in MASSF else "are"
        it = "it" if be == "is" else "they"
        return (
            [
                U(f"{cap(be)} {p} healthy?"),
                B(
                    pick(
                        [
                            f"Yes, {p} {be} healthy. {cap(it)} {'gives' if be == 'is' else 'give'} your body energy and good things that it needs.",
                            f"Yes, {p} {be} a healthy food when you do not eat too much of {'it' if be == 'is' else 'them'}.",
                        ]
                    )
                ),
            ],
            f"The user asks if {p} {be} healthy. I think so.",
            None,
        )
    f, w = pick(list(SWEET.items()))
    p = foods(f)
    be = "is" if f in MASSF else "are"
    return (
        [U(f"{cap(be)} {p} healthy?"), B(f"It is fine to have a little, but {w}.")],
        "I should give an honest and short answer.",
        None,
    )


def b_story2(r):  # the prompt forms of the teacher's set that b_story does not have
    N, c, O = pick(NAMES), pick(COLORS), pick(OBJECTS)
    H = pick(["girl", "boy", "child"]) if r.random() < 0.6 else pick(ANIMALS)
    t, name, A1, moral, fn, F = story_text(r, "girl" if H == "child" else H, O)
    if c not in t:
        t = t.replace(f" {O}", f" {c} {O}", 1) if f" {O}" in t else t
    q = pick(
        [
            f"Write a short story about {name} and {a(c)} {O}.",
            f"Tell me a story about {name} and {a(O)}.",
            f"Tell me a story about a {H} named {name}."
            if H in ("girl", "boy")
            else f"Tell me a story about {a(H)} named {name}.",
            f"Write a short story about {name}.",
            f"Tell me a bedtime story about {name}.",
        ]
    )
    return (
        [U(q), B(t)],
        pick(
            [
                f"The user wants a story. I will write about {name}.",
                f"I should tell a short story about {name}. In the end, {moral[0].lower() + moral[1:]}",
            ]
        ),
        None,
    )


TUNE = [
    (b_story, 900),
    (b_story2, 800),
    (b_state, 700),
    (b_diff, 500),
    (b_food, 250),
    (b_chat, 250),
    (b_fact, 300),
    (b_name, 200),
    (b_read, 100),
    (b_json, 80),
    (b_recall, 30),
    (b_tool, 60),
]
MIX = [
    (b_fact, 32000),
    (b_fact2, 9000),
    (b_chat, 16000),
    (b_name, 12000),
    (b_story, 44000),
    (b_read, 18000),
    (b_json, 9000),
    (b_recall, 9000),
    (b_tool, 18000),
    (b_sys, 5000),
]
if __name__ == "__main__":
    r = random.Random(3)
    setr(r)
    for b, _ in MIX:
        for _ in range(2):
            m, t, tl = b(r)
            print(b.__name__, "|", json.dumps(m)[:900], "| THINK", t)
