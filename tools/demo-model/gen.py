"""Teacher sampling on one GPU: SmolLM2-135M-Instruct with a slot-refill decode loop.

Every slot feeds one token a step.  Prompt tokens are forced through the same step (no
separate prefill), a slot that ends takes the next prompt at once, and an optional second
user turn is forced in after the first answer.  The step (30 layers + sampling + slot
bookkeeping) is one CUDA graph; attention is a small Triton kernel that reads only the
cache that is in use.  Runs until --seconds have passed, then filters on the CPUs and
writes xz shards of JSON lines: [[user, answer, (user, answer)], truncated]."""

import argparse, json, lzma, os, re, sys, time
import multiprocessing as mp
import numpy as np
import torch
import torch.nn.functional as F
import triton
import triton.language as tl
import teacher_gguf as TG

SYSTEM = "You are a friendly assistant. Answer in simple words and short sentences."
DEV = os.environ.get("DEV", "cuda")
ap = argparse.ArgumentParser()
ap.add_argument("--gguf")
ap.add_argument("--prompts")
ap.add_argument("--out")
ap.add_argument("--seconds", type=float, default=120)
ap.add_argument("--batch", type=int, default=4096)
ap.add_argument("--len", type=int, default=352)
ap.add_argument("--temp", type=float, default=0.7)
ap.add_argument("--minp", type=float, default=0.08)
ap.add_argument("--max-log", type=int, default=40000)
ap.add_argument("--seed", type=int, default=1)
ap.add_argument("--shards", type=int, default=4)
ap.add_argument("--cap-mb", type=float, default=15.9)
ap.add_argument("--check", action="store_true")


@triton.jit
def attn_kernel(Q, KN, VN, K, V, POS, O, S: tl.constexpr, BLK: tl.constexpr):
    b = tl.program_id(0)
    h = tl.program_id(1)
    pos = tl.load(POS + b)
    d = tl.arange(0, 64)
    base = (b * 3 + h).to(tl.int64) * S
    kn = tl.load(KN + (b * 3 + h) * 64 + d)
    vn = tl.load(VN + (b * 3 + h) * 64 + d)
    tl.store(K + (base + pos) * 64 + d, kn)
    tl.store(V + (base + pos) * 64 + d, vn)
    kn = kn.to(tl.float32)
    vn = vn.to(tl.float32)
    qb = Q + (b * 9 + h * 3) * 64 + d
    q0 = tl.load(qb).to(tl.float32) * 0.125
    q1 = tl.load(qb + 64).to(tl.float32) * 0.125
    q2 = tl.load(qb + 128).to(tl.float32) * 0.125
    m0 = tl.sum(q0 * kn, 0)
    m1 = tl.sum(q1 * kn, 0)
    m2 = tl.sum(q2 * kn, 0)
    l0 = 1.0
    l1 = 1.0
    l2 = 1.0
    a0 = vn
    a1 = vn
    a2 = vn
    for s in range(0, pos, BLK):
        idx = s + tl.arange(0, BLK)
        ok = idx < pos
        off = (base + idx)[:, None] * 64 + d[None, :]
        k = tl.load(K + off, mask=ok[:, None], other=0.0).to(tl.float32)
        v = tl.load(V + off, mask=ok[:, None], other=0.0).to(tl.float32)
        s0 = tl.where(ok, tl.sum(k * q0[None, :], 1), -1e30)
        s1 = tl.where(ok, tl.sum(k * q1[None, :], 1), -1e30)
        s2 = tl.where(ok, tl.sum(k * q2[None, :], 1), -1e30)
        n0 = tl.maximum(m0, tl.max(s0, 0))
        n1 = tl.maximum(m1, tl.max(s1, 0))
        n2 = tl.maximum(m2, tl.max(s2, 0))
        p0 = tl.exp(s0 - n0)
        p1 = tl.exp(s1 - n1)
        p2 = tl.exp(s2 - n2)
        c0 = tl.exp(m0 - n0)
        c1 = tl.exp(m1 - n1)
        c2 = tl.exp(m2 - n2)
        l0 = l0 * c0 + tl.sum(p0, 0)
        l1 = l1 * c1 + tl.sum(p1, 0)
        l2 = l2 * c2 + tl.sum(p2, 0)
        a0 = a0 * c0 + tl.sum(p0[:, None] * v, 0)
        a1 = a1 * c1 + tl.sum(p1[:, None] * v, 0)
        a2 = a2 * c2 + tl.sum(p2[:, None] * v, 0)
        m0 = n0
        m1 = n1
        m2 = n2
    ob = O + (b * 9 + h * 3) * 64 + d
    tl.store(ob, (a0 / l0).to(O.dtype.element_ty))
    tl.store(ob + 64, (a1 / l1).to(O.dtype.element_ty))
    tl.store(ob + 128, (a2 / l2).to(O.dtype.element_ty))


def rms(x, w):
    f = x.float()
    return (f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + TG.EPS)).to(x.dtype) * w


def pre(x, cos, sin, n1, wqkv):
    qkv = rms(x, n1) @ wqkv.t()
    qk = qkv[:, :768].view(-1, 12, 64)
    x1, x2 = qk[..., :32].float(), qk[..., 32:].float()
    qk = torch.cat([x1 * cos - x2 * sin, x2 * cos + x1 * sin], -1).to(x.dtype)
    return qk[:, :9].contiguous(), qk[:, 9:].contiguous(), qkv[:, 768:].contiguous()


def post(x, o, wo, n2, wgu, wd):
    x = x + o @ wo.t()
    g, u = (rms(x, n2) @ wgu.t()).chunk(2, -1)
    return x + (F.silu(g) * u) @ wd.t()


def pick(logits, noise, inv_t, logminp):
    f = logits.float()
    keep = f >= f.amax(-1, keepdim=True) + logminp
    return torch.where(keep, f * inv_t - noise.log(), float("-inf")).argmax(-1)


class Engine:
    def __init__(s, a, sd, dt):
        s.a, B, S = a, a.batch, a.len
        g = lambda n: sd[n].to(DEV, dt)
        s.emb, s.nf = g("model.embed_tokens.weight"), g("model.norm.weight")
        s.L = []
        for i in range(TG.N_LAYER):
            p = f"model.layers.{i}."
            s.L.append(
                dict(
                    n1=g(p + "input_layernorm.weight"),
                    n2=g(p + "post_attention_layernorm.weight"),
                    wqkv=torch.cat([g(p + f"self_attn.{c}_proj.weight") for c in "qkv"]),
                    wo=g(p + "self_attn.o_proj.weight"),
                    wgu=torch.cat([g(p + "mlp.gate_proj.weight"), g(p + "mlp.up_proj.weight")]),
                    wd=g(p + "mlp.down_proj.weight"),
                    K=torch.zeros(B, 3, S, 64, device=DEV, dtype=dt),
                    V=torch.zeros(B, 3, S, 64, device=DEV, dtype=dt),
                )
            )
        inv = 1.0 / TG.ROPE ** (torch.arange(0, 64, 2, device=DEV).float() / 64)
        f = torch.arange(S, device=DEV).float()[:, None] * inv
        s.cos, s.sin = f.cos(), f.sin()
        c = torch.compile if DEV == "cuda" else (lambda f: f)
        s.pre, s.post, s.pick = c(pre), c(post), c(pick)
        z = lambda: torch.zeros(B, dtype=torch.int32, device=DEV)
        s.tok, s.pos, s.fptr, s.fend, s.turn, s.pid = z(), z(), z(), z(), z(), z()
        s.noise = torch.ones(B, s.emb.shape[0], device=DEV)

    def logits(s):
        x = s.emb[s.tok.long()]
        cos, sin = s.cos[s.pos.long()][:, None], s.sin[s.pos.long()][:, None]
        for l in s.L:
            q, k, v = s.pre(x, cos, sin, l["n1"], l["wqkv"])
            o = torch.empty_like(x)
            attn_kernel[(s.a.batch, 3)](q, k, v, l["K"], l["V"], s.pos, o, S=s.a.len, BLK=64)
            x = s.post(x, o, l["wo"], l["n2"], l["wgu"], l["wd"])
        return rms(x, s.nf) @ s.emb.t()

    def setup(s, prefix, prompts, follows):
        flat, ps, pl, fs, fl = [], [], [], [], []
        for p, f in zip(prompts, follows):
            ps.append(len(flat))
            pl.append(len(p))
            flat += p
            fs.append(len(flat))
            fl.append(len(f))
            flat += f
        t = lambda x: torch.tensor(x, dtype=torch.int32, device=DEV)
        s.pool, s.ps, s.pl, s.fs, s.fl = t(flat + [0]), t(ps), t(pl), t(fs), t(fl)
        s.np, s.pfx = len(ps), len(prefix)
        for i, tk in enumerate(prefix):  # the shared system prompt: same positions in every slot
            s.tok.fill_(tk)
            s.pos.fill_(i)
            s.logits()
        s.ctr = torch.tensor(s.a.batch, dtype=torch.int64, device=DEV)
        s.pid.copy_(torch.arange(s.a.batch, device=DEV) % s.np)
        s.pos.fill_(s.pfx)
        s.tok.copy_(s.pool[s.ps[s.pid.long()].long()])
        s.fptr.copy_(s.ps[s.pid.long()] + 1)
        s.fend.copy_(s.ps[s.pid.long()] + s.pl[s.pid.long()])
        s.out = torch.zeros(s.a.batch, dtype=torch.int32, device=DEV)
        s.mark = torch.full((s.a.batch,), 65535, dtype=torch.int32, device=DEV)

    def step(s):
        lg = s.logits()
        s.noise.exponential_()
        smp = s.pick(lg, s.noise, 1 / s.a.temp, float(np.log(s.a.minp))).int()
        s.out.copy_(torch.where(s.mark > 0, s.mark, s.tok))  # what this step fed (or a start mark)
        forced = s.fptr < s.fend
        nxt = torch.where(forced, s.pool[s.fptr.clamp(max=s.pool.numel() - 1).long()], smp)
        pos1 = s.pos + 1
        full = pos1 >= s.a.len - 1
        eos = (~forced) & (smp == 2)
        pid = s.pid.long()
        more = eos & (s.turn == 0) & (s.fl[pid] > 0) & (pos1 < s.a.len - 120)
        fin = (eos & ~more) | full
        fptr = torch.where(forced, s.fptr + 1, s.fptr)
        fptr = torch.where(more, s.fs[pid], fptr)
        fend = torch.where(more, s.fs[pid] + s.fl[pid], s.fend)
        turn = torch.where(more, torch.ones_like(s.turn), s.turn)
        new = (s.ctr + fin.long().cumsum(0) - 1) % s.np
        s.ctr += fin.long().sum()
        npid = torch.where(fin, new, pid)
        s.pid.copy_(npid)
        s.tok.copy_(torch.where(fin, s.pool[s.ps[npid].long()], nxt))
        s.pos.copy_(torch.where(fin, torch.full_like(s.pos, s.pfx), pos1))
        s.fptr.copy_(torch.where(fin, s.ps[npid] + 1, fptr))
        s.fend.copy_(torch.where(fin, s.ps[npid] + s.pl[npid], fend))
        s.turn.copy_(torch.where(fin, torch.zeros_like(turn), turn))
        s.mark.copy_(torch.where(fin, torch.where(eos, 65535, 65534).int(), torch.zeros_like(s.mark)))


# ---- filtering (CPU) -----------------------------------------------------------------
FIX = str.maketrans(
    {"\u2019": "'", "\u2018": "'", "\u201c": '"', "\u201d": '"', "\u2013": "-", "\u2014": " - ", "\u2026": "..."}
)
BAD = re.compile(
    r"SmolLM|Hugging ?Face|AI assistant|language model|```|https?:|www\.|\bdef |import |\[[A-Z]|<|\bNLP\b|\$|\\|\{|I'm sorry, but|I cannot|I can't (help|assist|provide)|As an AI",
    re.I,
)


def clean(x):
    x = x.translate(FIX).replace("**", "").strip()
    return re.sub(r"[ \t]+\n", "\n", re.sub(r"\n{3,}", "\n\n", x))


def good(ans, keys):
    if not ans.isascii() or BAD.search(ans):
        return False
    w = ans.lower().split()
    if len(w) < 3:
        return False
    if len(w) > 12:
        g4 = [tuple(w[i : i + 4]) for i in range(len(w) - 3)]
        if len(set(g4)) < 0.86 * len(g4):
            return False
        if len(set(w)) < 0.34 * len(w):
            return False
    sents = [x.strip() for x in re.split(r"[.!?\n]", ans.lower()) if len(x.strip()) > 8]
    if len(set(sents)) < len(sents):
        return False
    low = ans.lower()
    return all(k.lower() in low for k in keys)


def work(args):
    log, tk, meta = args
    out, st = [], [0, 0, 0, 0]
    for c in range(log.shape[1]):
        col = log[:, c]
        b = np.flatnonzero(col >= 65534)
        for i in range(len(b) - 1):
            st[0] += 1
            d = [1] + col[b[i] + 1 : b[i + 1]].tolist()
            trunc = int(col[b[i + 1]] == 65534)
            turns, cur = [], []
            for t in d:
                if t == 1:
                    cur = []
                elif t == 2:
                    turns.append(cur)
                    cur = []
                else:
                    cur.append(t)
            turns.append(cur)
            tx = [x.split("\n", 1)[-1] for x in tk.decode_batch(turns, skip_special_tokens=False)]
            if len(tx) < 2:
                st[1] += 1
                continue
            m = meta.get(tx[0])
            if m is None:
                st[1] += 1
                continue
            if trunc:
                cut = max(tx[-1].rfind(p) for p in (". ", "! ", ".\n", "!\n", '." ', '."\n'))
                if m["c"] != "story" or cut < 300 or len(tx) != 2:
                    st[2] += 1
                    continue
                tx[-1] = tx[-1][: cut + 1] + ('"' if tx[-1][cut + 1 : cut + 2] == '"' else "")
            tx = [clean(t) for t in tx]
            if len(tx) % 2 or not good(tx[1], m["k"]):
                st[3] += 1
                continue
            if len(tx) == 4 and not good(tx[3], []):
                tx = tx[:2]
            out.append((tx, trunc))
    return out, st


def main():
    a = ap.parse_args()
    t0 = time.time()
    sd, tk = TG.load(a.gguf)
    rows = [json.loads(l) for l in open(a.prompts)]
    enc = lambda xs: [e.ids for e in tk.encode_batch(xs)]
    prefix = tk.encode(f"<|im_start|>system\n{SYSTEM}<|im_end|>\n").ids
    prompts = enc([f"<|im_start|>user\n{r['u']}<|im_end|>\n<|im_start|>assistant\n" for r in rows])
    fol = enc([f"\n<|im_start|>user\n{r['f']}<|im_end|>\n<|im_start|>assistant\n" if r["f"] else "" for r in rows])
    e = Engine(a, sd, torch.bfloat16 if DEV == "cuda" else torch.float32)
    torch.manual_seed(a.seed)
    e.setup(prefix, prompts, fol)
    print(f"setup {time.time() - t0:.1f}s prefix {len(prefix)}", flush=True)
    if DEV == "cuda":
        st = torch.cuda.Stream()
        with torch.cuda.stream(st):
            for _ in range(3):
                e.step()
        torch.cuda.synchronize()
        e.setup(prefix, prompts, fol)
        gr = torch.cuda.CUDAGraph()
        with torch.cuda.graph(gr):
            e.step()
        step = gr.replay
        torch.cuda.synchronize()
    else:
        step = e.step
    print(f"ready {time.time() - t0:.1f}s", flush=True)
    CH = 2000
    logs, buf, t1, n = [], torch.zeros(CH, a.batch, dtype=torch.int32, device=DEV), time.time(), 0
    while n < a.max_log:
        step()
        buf[n % CH].copy_(e.out)
        n += 1
        if n % CH == 0:
            logs.append(buf.to(torch.int32).cpu().numpy().astype(np.uint16))
        if n % 100 == 0:
            if DEV == "cuda":
                torch.cuda.synchronize()
            if time.time() - t1 > a.seconds:
                break
    if n % CH:
        logs.append(buf[: n % CH].cpu().numpy().astype(np.uint16))
    dt = time.time() - t1
    log = np.concatenate(logs)
    print(
        f"{n} steps x {a.batch} in {dt:.1f}s = {n * a.batch / dt / 1e3:.0f}k tok/s; prompts used {int(e.ctr)}",
        flush=True,
    )
    del e
    sd = None
    if DEV == "cuda":
        torch.cuda.empty_cache()
    t2 = time.time()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    meta = {}
    for r in rows:
        meta.setdefault(r["u"], r)
    W = min(16, os.cpu_count())
    with mp.get_context("fork").Pool(W) as p:
        res = p.map(work, [(np.ascontiguousarray(log[:, i :: W * 2]), tk, meta) for i in range(W * 2)], chunksize=1)
    docs = [d for r, _ in res for d in r]
    st = np.sum([s for _, s in res], 0)
    print(
        f"docs {len(docs)}; seen/odd/trunc-dropped/filtered {st.tolist()}; filter {time.time() - t2:.1f}s", flush=True
    )
    docs = list({json.dumps(d) for d in docs})
    print("unique", len(docs), "MB", sum(map(len, docs)) / 1e6, flush=True)
    rng = np.random.default_rng(0)
    rng.shuffle(docs)
    for d in docs[:30]:
        print(d)
    os.makedirs(a.out, exist_ok=True)
    with mp.get_context("fork").Pool(W) as p:
        sh = p.map(pack, [(docs[i :: a.shards], a.cap_mb) for i in range(a.shards)], chunksize=1)
    for i, (s, k) in enumerate(sh):
        open(f"{a.out}/gen{i}.xz", "wb").write(s)
        print("shard", i, len(s) / 1e6, "MB", k, "docs", flush=True)
    print(f"all done {time.time() - t0:.1f}s")


def pack(args):
    docs, cap = args
    keep = len(docs)
    docs = sorted(docs)
    x = lzma.compress("\n".join(docs).encode(), preset=4)
    if len(x) > cap * 1e6:  # too big to bring back: drop a random part
        keep = int(len(docs) * cap * 1e6 / len(x) * 0.98)
        idx = sorted(np.random.default_rng(1).permutation(len(docs))[:keep])
        x = lzma.compress("\n".join(docs[i] for i in idx).encode(), preset=4)
    return x, keep


if __name__ == "__main__":
    main()
