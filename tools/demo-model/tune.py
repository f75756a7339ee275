"""Rows for the short second round: python tune.py PACKED_DIR OUT_DIR   (tokenizer and replayed rows come from PACKED_DIR)"""

import os, random, sys
import numpy as np
from tokenizers import Tokenizer
import synth
from rows import LOW, START, pack, render

packed, out = sys.argv[1:3]
tok = Tokenizer.from_file(packed + "/tokenizer.json")
r = random.Random(77)
synth.setr(r)
os.makedirs(out, exist_ok=True)
seqs = []
for b, n in synth.TUNE:
    for _ in range(n):
        m, t, tl = b(r)
        x = []
        for p, ans in render(m, tl, t if r.random() < 0.5 else ""):
            ids = tok.encode(p).ids
            x += ids if ans else [i | LOW for i in ids]
        x[0] |= START
        if len(x) <= 512:
            seqs.append(np.array(x, np.uint16))
# replay: first-round documents other than stories
rows = np.load(packed + "/rows512.npy")[:1500].reshape(-1)
cuts = np.flatnonzero(rows & START)
k = 0
for x in np.split(rows, cuts)[1:]:
    if 12 < len(x) < 200 and "story" not in tok.decode((x & 0x3FFF).tolist()).lower() and r.random() < 0.3:
        seqs.append(x)
        k += 1
        if k == 900:
            break
print("replayed", k)
r.shuffle(seqs)
R = pack(seqs, 512, tok.token_to_id("<|endoftext|>"))
np.save(out + "/rows512.npy", R)
np.save(out + "/val512.npy", np.load(packed + "/val512.npy")[:8])
print(len(seqs), "docs", R.shape, "rows", sum(map(len, seqs)), "tokens; answer tokens", int((R < LOW).sum()))
