"""Texts to compare models on: conversations in Qwen3.6's chat format and text of other kinds, all made here from a seed.

The demo model knows the conversations' kind well and the rest hardly, so both sharp and flat distributions are met.
"""

import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "demo-model"))
import rows  # noqa: E402
import synth  # noqa: E402


def conversations(rng):
    """One of each kind that tools/demo-model/synth.py makes, in an endless round: facts, talk, stories, reading, JSON,
    recall, tool calls, system prompts; half of them with a thinking block."""
    synth.setr(rng)
    builders = [builder for builder, _ in synth.MIX]
    while True:
        for builder in builders:
            # Recall over up to about a thousand tokens, so that long contexts are compared too.
            messages, thought, tools = builder(rng, 480, 900) if builder is synth.b_recall else builder(rng)
            text = "".join(piece for piece, _ in rows.render(messages, tools, thought if rng.random() < 0.5 else ""))
            yield builder.__name__.removeprefix("b_"), text


def report(rng):
    city, count = rng.choice(["Oslo", "Quito", "Hanoi", "Perth"]), rng.randint(3, 9)
    lines = [
        f"# Weather in {city}",
        "",
        f"The station measured for {count} days.",
        "",
        "| day | degrees | rain |",
        "|---|---|---|",
    ]
    lines += [
        f"| {day + 1} | {rng.uniform(-5, 35):.1f} | {rng.choice(['none', 'light', 'heavy'])} |" for day in range(count)
    ]
    return (
        "\n".join(lines)
        + f"\n\nThe warmest day was day {rng.randint(1, count)}, which surprised nobody who lives there.\n"
    )


def program(rng):
    name, step = rng.choice(["total", "weight", "distance"]), rng.randint(2, 9)
    return (
        f"def {name}(values, limit={step * 10}):\n    result = 0\n    for i, value in enumerate(values):\n"
        f"        if value > limit or i % {step} == 0:\n            continue\n        result += value * {rng.random():.3f}\n"
        f"    return result\n\n\nprint({name}([{', '.join(str(rng.randint(0, 99)) for _ in range(8))}]))\n"
    )


def languages(rng):
    lines = [
        "Der Zug nach Norden fährt erst um halb neun, sagte die Frau am Schalter.",
        "La lluvia cayó toda la noche y por la mañana el río había subido dos metros.",
        "Le petit café au coin de la rue ferme à dix-huit heures précises.",
        "今日は空が青くて、山がとても近くに見えます。",
        "Поезд опоздал на двадцать минут, и никто не удивился.",
        "Kahvi on valmista, mutta maito loppui eilen.",
        "Η θάλασσα ήταν ήρεμη και το φως έπεφτε πάνω στα βράχια.",
    ]
    rng.shuffle(lines)
    return "\n".join(lines[:2]) + "\n"


def letter(rng):
    who, what = rng.choice(["Ms. Arden", "Dr. Sole", "the committee"]), rng.choice(["bridge", "archive", "greenhouse"])
    return (
        f"Dear {who},\n\nthank you for your letter about the {what}. We have looked at the figures again: the costs rose by "
        f"{rng.randint(2, 40)} percent since {rng.randint(1990, 2024)}, mostly because timber became scarce. If the council agrees, work "
        f"could begin before autumn; otherwise we would have to wait for the thaw. In either case, somebody should tell the neighbours.\n\n"
        f"Yours sincerely,\n{rng.choice(['I. Marlow', 'T. Okafor', 'the board'])}\n"
    )


def others(rng):
    while True:
        for maker in (report, program, languages, letter):
            yield maker.__name__, maker(rng)


def texts(seed):
    """(kind, text) without end: four conversations, then one text of another kind, and so on."""
    chats, rest = conversations(random.Random(seed)), others(random.Random(seed + 1))
    while True:
        for _ in range(4):
            yield next(chats)
        yield next(rest)
