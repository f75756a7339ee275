"""Builds tokenizer, packed training rows and held-out sets from the teacher's shards and synth.py.
python pack.py DATA_DIR PROMPTS.jsonl OUT_DIR"""

import glob, hashlib, json, lzma, os, random, re, sys, time
from collections import Counter, defaultdict
import jinja2
import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
import synth
from rows import LOW, START, pack, render

data, prompts, out = sys.argv[1:4]
os.makedirs(out, exist_ok=True)
r = random.Random(11)
synth.setr(r)
t0 = time.time()
say = lambda *x: print(f"[{time.time() - t0:5.0f}]", *x, flush=True)
VOCAB = 8192
hash_ = lambda t: int.from_bytes(hashlib.blake2b(t.encode(), digest_size=4).digest(), "little")
SPECIAL = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
]
PLAIN = [
    "<tool_call>",
    "</tool_call>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
]  # special=False in Qwen's tokenizer
RX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"

# ---- teacher data --------------------------------------------------------------------------
cat = {}
for l in open(prompts):
    d = json.loads(l)
    cat.setdefault(d["u"], d["c"])
D = [json.loads(l) for f in sorted(glob.glob(data + "/gen*.xz")) for l in lzma.open(f, "rt")]
qa, story = defaultdict(list), []
for t, trunc in D:
    c, u, x = cat.get(t[0]), t[0], t[1]
    if c == "qa" and not trunc and len(x) < 700 and x[0].isalnum():
        qa[u].append(x)
    elif c == "story" and not trunc and 200 < len(x) < 1300 and x[-1] in '.!"?':
        story.append((u, x))
    elif c == "story" and trunc and x.rfind("\n\n") > 450 and hash_(u + x) % 10 < 4:
        story.append((u, x[: x.rfind("\n\n")]))  # cut at a paragraph
# several answers to one question: keep those that agree most with the others (word overlap)
W = lambda x: set(re.findall(r"[a-z]{3,}", x.lower()))
df = Counter(w for v in qa.values() for x in v for w in W(x))
nd = sum(df.values())
idf = lambda w: 1.0 / (1 + df[w]) ** 0.5
kept = []
for u, v in qa.items():
    if len(v) < 4:
        kept += [(u, x) for x in v]
        continue
    S = [W(x) for x in v]
    c = Counter(w for s in S for w in s)
    sc = [sum(idf(w) * (c[w] - 1) for w in s) / (1e-9 + sum(idf(w) for w in s)) for s in S]
    o = sorted(range(len(v)), key=lambda i: -sc[i])[: max(2, int(len(v) * 0.5))]
    kept += [(u, v[i]) for i in o]
say("teacher: answers", sum(map(len, qa.values())), "->", len(kept), "; stories", len(story))


def thought(u, c):
    if c == "story":
        return r.choice(
            [
                f"The user wants a story. I will write it now. {u}",
                "The user asks for a story. I will keep it short and friendly.",
                "I should write a short story in simple words.",
            ]
        )
    return synth.th_fact(u, r)


convs = []  # (messages, thought, tools, group)
for c, L in (("qa", kept), ("story", story)):
    for u, x in L:
        convs.append(([synth.U(u), synth.B(x)], thought(u, c), None, "teacher"))
synth.FILL += [(u, x) for u, x in kept if len(x) < 260]
for b, n in synth.MIX:
    for i in range(n):
        m, t, tl = b(r, 480, 1250) if b is synth.b_recall and i % 3 == 0 else b(r)
        convs.append((m, t, tl, b.__name__))
r.shuffle(convs)
say("conversations", len(convs), Counter(c[3] for c in convs))

# ---- rendering, checked against the official template ---------------------------------------
env = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
env.filters["tojson"] = lambda x, **k: json.dumps(x, ensure_ascii=False)
tpl = env.from_string(open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "chat_template.jinja")).read())
docs = []
for n, (m, t, tl, g) in enumerate(convs):
    th = t if r.random() < 0.5 else ""
    P = render(m, tl, th)
    if n < 3000:
        mm = [dict(x) for x in m]
        mm[-1]["reasoning_content"] = th
        assert "".join(p for p, _ in P) == tpl.render(messages=mm, tools=tl, raise_exception=None), (
            P,
            tpl.render(messages=mm, tools=tl),
        )
    docs.append((P, g))
say("rendered")

# ---- tokenizer ---------------------------------------------------------------------------
tok = Tokenizer(models.BPE())
tok.normalizer = normalizers.NFC()
tok.pre_tokenizer = pre_tokenizers.Sequence(
    [pre_tokenizers.Split(Regex(RX), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
)
tok.decoder = decoders.ByteLevel(add_prefix_space=False, use_regex=False)
strip = re.compile(r"<\|im_\w+\|>|</?think>|</?tool_\w+>")


def texts():
    for P, g in docs[::3]:
        for p, _ in P:
            if not p.startswith("<|im_start|>system\n# Tools") or r.random() < 0.05:
                yield strip.sub("\n", p)


tok.train_from_iterator(
    texts(),
    trainers.BpeTrainer(
        vocab_size=VOCAB - len(SPECIAL) - len(PLAIN),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
        min_frequency=2,
    ),
)
tok.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in SPECIAL])
tok.add_tokens([AddedToken(s, special=False, normalized=False) for s in PLAIN])
say("vocab", tok.get_vocab_size())
assert tok.get_vocab_size() <= VOCAB
tok.save(out + "/tokenizer.json")

# ---- tokens, held-out split, rows ----------------------------------------------------------
eot = tok.token_to_id("<|endoftext|>")
enc, B = [], 4096
for i in range(0, len(docs), B):
    ch = docs[i : i + B]
    flat = tok.encode_batch([p for P, _ in ch for p, _ in P])
    j = 0
    for P, g in ch:
        x = []
        for _, ans in P:
            ids = flat[j].ids
            j += 1
            x += ids if ans else [t | LOW for t in ids]
        x[0] |= START
        enc.append((np.array(x, np.uint16), g))
say(
    "tokens",
    sum(len(x) for x, _ in enc) / 1e6,
    "M; by group",
    {k: round(v / 1e6, 2) for k, v in sorted(Counter({g: 0 for _, g in enc}).items())}
    and {g: round(sum(len(x) for x, h in enc if h == g) / 1e6, 2) for g in sorted({g for _, g in enc})},
)
nval = 1200
val, trn = enc[:nval], enc[nval:]
json.dump(
    [
        {"group": g, "ids": (x & 0x3FFF).tolist(), "answer": ((x >> 15) == 0).astype(int).tolist()}
        for x, g in val
        if len(x) <= 2048
    ],
    open(out + "/val.json", "w"),
)


long_ = [x for x, _ in trn if 512 < len(x) <= 2048]
short = [x for x, _ in trn if len(x) <= 512]
mixin = short[: int(len(short) * 0.08)]
mix = long_ + mixin
r.shuffle(mix)
A = pack(short[len(mixin) :], 512, eot)
C = pack(mix, 2048, eot)
V = pack([x for x, _ in val if len(x) <= 512], 512, eot)
for n, x in (("rows512", A), ("rows2048", C), ("val512", V)):
    np.save(f"{out}/{n}.npy", x)
    say(
        n,
        x.shape,
        "fill",
        round(float(((x & 0x3FFF) != eot).mean()), 3),
        "answer tokens M",
        round(float((x < LOW).sum() / 1e6), 2),
    )
say("done", sum(1 for x, _ in enc if len(x) > 2048), "too long")
