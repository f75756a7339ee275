"""Compares lily's tokenizer with Hugging Face's tokenizers.

usage: tokenizer_oracle.py DRIVER TOKENIZER_DIRECTORY        (tests/text/tokenizer_driver.cpp; models/demo)

Texts are generated with a fixed seed from all scripts and from what tokenizers trip over; each is encoded with control
tokens by both, and as ordinary text by lily and by a tokenizer from which the added tokens were taken. Random ids,
which make broken UTF-8, are decoded by both. The same is done for made-up vocabularies with random merges, written
with merges as pairs and as strings, and with ignore_merges.
"""

import json
import random
import subprocess
import sys
import tempfile
import unicodedata
from pathlib import Path

from tokenizers import Tokenizer

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
MARKS = [chr(c) for c in CODE_POINTS if unicodedata.category(chr(c))[0] == "M"]
COMPOSED = [chr(c) for c in CODE_POINTS if unicodedata.normalize("NFD", chr(c)) != chr(c)]
SPACES = " \t\n\r\x0b\x0c\x85\u00a0\u1680\u2000\u2003\u2028\u2029\u202f\u205f\u3000"
POOLS = {
    "latin": "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ     ",
    "accents": "éèêëàâäöüßñçøåæœÉÅΩÅK" + "e\u0301a\u0308o\u0302\u0323u\u0308\u0304",
    "greek": "αβγδεζηθικλμνξοπρσςτυφχψω ἀἁἂᾳῶ\u0345\u0314",
    "cyrillic": "абвгдежзийклмнопрстуфхцчшщъыьэюя \u0301ЙЁ",
    "hebrew": "אבגדהוזחטיכלמנסעפצקרשת\u05b0\u05b4\u05bc\u05c1 ",
    "arabic": "ابتثجحخدذرزسشصضطظعغفقكلمنهوي\u064b\u064e\u0651\u0655٠١٢٣ ",
    "devanagari": "कखगघचछजझटठडढतथदधनपफबभमयरलवशषसह\u093e\u093f\u094d\u093c०१२ ",
    "thai": "กขคงจฉชซญดตถทนบปผฝพฟมยรลวศสหอ\u0e31\u0e34\u0e48\u0e49๑๒",
    "tamil": "அஆஇஈகஙசஞடணதநபமயரல\u0bbe\u0bbf\u0bcd\u0bca",
    "tibetan": "ཀཁགངཅཆཇཉཏཐ\u0f71\u0f72\u0f73\u0f74\u0f75\u0f39",
    "hangul": "가각간힣한글\u1100\u1101\u1112\u1161\u1162\u1175\u11a8\u11ab\u11c2 ",
    "cjk": "日本語中文字漢字かなカナがぎ\u3099\u309a、。「」 豈更車\U0002f800\U00020000",
    "emoji": "👨👩👧👦❤🏽🏿🇩🇪🇫🇷\u200d\ufe0f😀🎉1\u20e3",
    "digits": "0123456789²½Ⅷ٣५௧𝟘𝟙",
    "marks": "a\u0300\u0316\u0301\u0317\u0334\u0345\u0338\u0323\u093c\u3099\u05b0",
    "symbols": "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~§±×÷€™…–—‘’“”«»",
    "contractions": "'''sStTrReEvVmMlLdDſKaxy ",
    "space": SPACES + "  \n\r\n",
    "space and words": SPACES + "ab!1 \n",
    "control": "\x00\x01\x07\x08\x1b\x7f\x80\x9f\u200b\u200e\u2060\ufeff\ufffd\uffff\U0010ffff a",
}


class Texts:
    """An endless mixed corpus."""

    def __init__(self, seed, added):
        self.random = random.Random(seed)
        self.added = added
        self.kinds = [
            (6, self.one_pool), (4, self.mixed), (3, self.random_code_points), (3, self.marks), (3, self.spellings),
            (2, self.contractions), (2, self.words), (1, self.run),
        ]  # fmt: skip

    def length(self):
        return int(self.random.paretovariate(0.9)) % 200

    def of(self, choose):
        return "".join(choose() for _ in range(self.length()))

    def one_pool(self):
        pool = self.random.choice(list(POOLS.values()))
        return self.of(lambda: self.random.choice(pool))

    def mixed(self):
        return self.of(lambda: self.random.choice(self.random.choice(list(POOLS.values()))))

    def random_code_points(self):
        return self.of(lambda: chr(self.random.choice(CODE_POINTS)))

    def marks(self):
        base = ["a", "e", "가", "\u1100\u1161", "\u0928", " ", "1", "!"]
        return self.of(lambda: self.random.choice(self.random.choice([base, MARKS, MARKS, COMPOSED])))

    def spellings(self):
        """Control tokens, whole, cut, joined and between other text."""
        parts = []
        for _ in range(self.random.randrange(1, 8)):
            token = self.random.choice(self.added)
            cut = self.random.randrange(len(token) + 1)
            other = [token[:cut], token[cut:], token.upper(), self.mixed()[:9], " ", "\n"]
            parts.append(self.random.choice([token, token, *other]))
        return "".join(parts)

    def contractions(self):
        endings = "'s 'S 'ſ 't 'RE 'rE 'Ve 'm 'LL 'l 'lL 'd ' ''s ’s 'ß 'x '\u0301s".split()
        return self.of(lambda: self.random.choice(["it", "I", " ", "1", "!", "é", "\n"]) + self.random.choice(endings))

    def words(self):
        vowels, consonants = "aeiou", "bcdfghklmnprstvw"
        syllable = lambda: self.random.choice(consonants) + self.random.choice(vowels)
        word = lambda: "".join(syllable() for _ in range(self.random.randrange(1, 5)))
        return self.of(lambda: word() + self.random.choice([" ", " ", " ", ", ", ". ", "\n", "  ", "-", "'s "]))

    def run(self):
        units = ["a", "ab", " ", "\n", "\r\n", "=", "0", "\u0301", "가", "日", "👍", "e\u0301", " \n", "\x00"]
        run = self.random.choice(units) * self.random.randrange(1, 3000)
        return self.random.choice(["", "x", " ", "!"]) + run + self.random.choice(["", "x", "\n"])

    def next(self):
        weights = [weight for weight, _ in self.kinds]
        return self.random.choices([kind for _, kind in self.kinds], weights)[0]()


def fixed_texts():
    """Code points between things that they may join or part, and long runs of one character."""
    uniform = [(0x3400, 0xA000), (0xAC00, 0xD7A4), (0xE000, 0xF900), (0x18D09, 0x1AFF0), (0x1FC00, 0x110000)]
    every = [c for c in CODE_POINTS if c % 29 == 0 or not any(begin <= c < end for begin, end in uniform)]
    for first in range(0, len(every), 61):
        some = [chr(c) for c in every[first : first + 61]]
        yield "".join(f"a{c}b {c}1{c}  {c}'{c}s\n{c}" for c in some)
        yield "\u1100".join(f"e{c}\u0301\u0323{c}\u0334" for c in some)
    for unit in ["a", "z", " ", "\n", "=", "7", "\u00e9", "\u0301", "\u0323\u0301", "日", "\u1161"]:
        yield unit * 100_000
    yield " " * 50_000 + "x" + "\n" * 50_000 + "y"
    yield "".join(chr(c) for c in range(0x300))


def random_bytes(generator):
    """Noise, or broken and whole characters in a row."""
    length = generator.randrange(1, 60)
    if generator.random() < 0.5:
        return bytes(generator.randrange(256) for _ in range(length))
    broken = [b"\xe2\x82", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\xff", b"\xef\xbf\xbd"]
    whole = "é€😀".encode()
    return b"".join(generator.choice([*broken, b"a", b" ", whole[: generator.randrange(9)]]) for _ in range(length))


def run_driver(driver, directory, questions):
    lines = "\n".join(questions) + "\n"
    answers = subprocess.run([driver, directory], input=lines, stdout=subprocess.PIPE, text=True, check=True).stdout
    return answers.split("\n")[:-1]


def without_added_tokens(path):
    """The same tokenizer for ordinary text."""
    data = json.loads(Path(path).read_text(encoding="utf-8"))
    data["added_tokens"] = []
    return Tokenizer.from_str(json.dumps(data))


def compare(driver, directory, texts, byte_strings, sequences):
    """Prints what differs; returns how many answers did."""
    path = Path(directory) / "tokenizer.json"
    whole, plain = Tokenizer.from_file(str(path)), without_added_tokens(path)
    ids = lambda tokenizer, text: " ".join(map(str, tokenizer.encode(text, add_special_tokens=False).ids))
    cases = []
    for text in texts:
        data = text.encode()
        cases.append((f"control {data.hex()}", lambda t=text: ids(whole, t)))
        cases.append((f"text {data.hex()}", lambda t=text: ids(plain, t)))
    for data in byte_strings:
        cases.append((f"text {data.hex()}", lambda d=data: ids(plain, d.decode(errors="replace"))))
    for sequence in sequences:
        text = " ".join(map(str, sequence))
        decoded = lambda s=sequence: whole.decode(s, skip_special_tokens=False).encode().hex()
        cases += [(f"decode {text}", decoded), (f"stream {text}", decoded)]
    answers = run_driver(driver, str(directory), [question for question, _ in cases])
    if len(answers) != len(cases):
        print(f"{len(cases)} questions, {len(answers)} answers")
        return 1
    differing = 0
    for (question, expected), answer in zip(cases, answers):
        if answer != expected():
            differing += 1
            if differing <= 5:
                print(f"{directory}: {question[:300]}\n  lily      {answer[:300]}\n  expected  {expected()[:300]}")
    print(f"{directory}: {len(cases)} answers, {differing} differ")
    return differing


def made_up(demo, generator, spelling, ignore_merges):
    """A vocabulary of random merges: long chains, equal results in several ways, merges of everything with anything."""
    data = json.loads(json.dumps(demo))
    model = data["model"]
    alphabet = sorted(piece for piece in model["vocab"] if len(piece) == 1)
    assert len(alphabet) == 256
    pieces, merges, frequent = list(alphabet), [], [*"abcdeĠĊ'=0"]
    seen_pairs, seen_pieces = set(), set(pieces)
    while len(pieces) < 1500:
        pool = frequent if generator.random() < 0.9 else pieces
        pair = (generator.choice(pool), generator.choice(pool))
        if pair in seen_pairs or len("".join(pair)) > 12:
            continue
        seen_pairs.add(pair)
        merges.append(pair)
        if "".join(pair) not in seen_pieces:
            seen_pieces.add("".join(pair))
            pieces.append("".join(pair))
            frequent.append("".join(pair))
    generator.shuffle(merges)
    generator.shuffle(pieces)
    model["vocab"] = {piece: i for i, piece in enumerate(pieces)}
    model["merges"] = [" ".join(pair) if spelling == "strings" else list(pair) for pair in merges]
    model["ignore_merges"] = ignore_merges
    for i, token in enumerate(data["added_tokens"]):
        token["id"] = len(pieces) + i
    prefix = dict(data["added_tokens"][0], id=len(pieces) + len(data["added_tokens"]), content="<|im_end")
    data["added_tokens"].append(prefix)  # the beginning of another one: the longer one counts
    return data


def main():
    driver, directory = sys.argv[1:]
    demo = json.loads((Path(directory) / "tokenizer.json").read_text(encoding="utf-8"))
    added = [token["content"] for token in demo["added_tokens"]]
    generator = random.Random(20)
    corpus = Texts(21, added)
    texts = list(fixed_texts()) + [corpus.next() for _ in range(20_000)]
    size = len(demo["model"]["vocab"]) + len(added)
    sequences = [[generator.randrange(size) for _ in range(generator.randrange(1, 40))] for _ in range(3000)]
    sequences += [[generator.randrange(100, 256) for _ in range(generator.randrange(1, 40))] for _ in range(3000)]
    differing = compare(driver, directory, texts, [random_bytes(generator) for _ in range(5000)], sequences)
    for spelling, ignore_merges in [("pairs", False), ("strings", False), ("pairs", True)]:
        with tempfile.TemporaryDirectory() as folder:
            data = made_up(demo, generator, spelling, ignore_merges)
            text = json.dumps(data, ensure_ascii=spelling == "strings")
            (Path(folder) / "tokenizer.json").write_text(text, encoding="utf-8")
            texts = [corpus.next() for _ in range(2000)]
            texts += ["".join(generator.choices("abcde '=0\n", k=300)) for _ in range(1000)]
            few = [[i % 1500 for i in sequence] for sequence in sequences[:500]]
            differing += compare(driver, folder, texts, [random_bytes(generator) for _ in range(500)], few)
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
