"""Trains the demo model on one GPU for a fixed wall time.

  python train.py --data DIR --seconds 540 --out DIR      (DIR: rows512*.npy, rows2048*.npy, val512.npy from pack.py)
  python train.py --data TUNE --init CKPT --tokens 4096 --lr 0.002 --alr 3e-4 --warm 5 --qat 0 --seconds 600   (short tune, CPU is enough)
  python train.py --smoke 20 --seconds 40                  (random tokens: throughput and memory only)

Rows are uint16: bits 0-13 token, bit 14 document start, bit 15 low loss weight (prompt text).
Muon for the matrices, Adam for the rest; bf16 weights in the graph, float32 masters; learning
rate follows elapsed time.  From --qat on, the graph sees the weights as MLX's 4-bit group-64
quantisation will store them (straight-through: gradients go to the masters)."""

import argparse, glob, math, os, time
import numpy as np
import torch
import model as M

ap = argparse.ArgumentParser()
ap.add_argument("--data", default="")
ap.add_argument("--seconds", type=float, default=60)
ap.add_argument("--out", required=True)
ap.add_argument("--smoke", type=int, default=0)
ap.add_argument("--tokens", type=int, default=131072)
ap.add_argument("--qat", type=float, default=0.65)
ap.add_argument("--lr", type=float, default=0.02)
ap.add_argument("--alr", type=float, default=3e-3)
ap.add_argument("--wd", type=float, default=0.05)
ap.add_argument("--aux", type=float, default=0.01)
ap.add_argument("--low", type=float, default=0.1)
ap.add_argument("--frac", type=float, default=1.0)
ap.add_argument("--init", default="", help="start from the ckpt.part* files of this folder")
ap.add_argument("--warm", type=int, default=60)
a = ap.parse_args()
DEV = "cuda" if torch.cuda.is_available() else "cpu"
torch.set_float32_matmul_precision("high")
torch.manual_seed(0)
rng = np.random.default_rng(0)
t0 = time.time()
say = lambda *x: print(f"[{time.time() - t0:6.1f}]", *x, flush=True)

# ---- weights: q4 tensors first, one flat float32 master and one flat live buffer -----------
c = M.CFG
init = M.init_params(c)
if a.init:
    from safetensors.torch import load

    ck = load(b"".join(open(f, "rb").read() for f in sorted(glob.glob(a.init + "/ckpt.part*"))))
    init = {k: ck[k].float() for k in init}
names = sorted(init, key=lambda k: (not M.is_q4(k), k))
sizes = [init[k].numel() for k in names]
NQ = sum(s for k, s in zip(names, sizes) if M.is_q4(k))
master = torch.cat([init[k].reshape(-1) for k in names]).to(DEV)
live = master.to(torch.bfloat16 if DEV == "cuda" else torch.float32)
P, mst, off = {}, {}, 0
for k, n in zip(names, sizes):
    mst[k] = master[off : off + n].view(init[k].shape)
    P[k] = (
        (live[off : off + n].view(init[k].shape) if not k.endswith("A_log") else mst[k].clone())
        .detach()
        .requires_grad_()
    )
    off += n
say(f"parameters {master.numel() / 1e6:.2f}M, quantised {NQ / 1e6:.2f}M")
comp = torch.compile if DEV == "cuda" else (lambda f: f)
fq = comp(lambda w: M.fake_quant(w.bfloat16()).to(live.dtype))


@torch.no_grad()
def publish(qat):
    live.copy_(master)
    if qat:
        live[:NQ].copy_(fq(master[:NQ]))
    for k in P:
        if k.endswith("A_log"):
            P[k].data.copy_(mst[k])


# ---- optimiser ---------------------------------------------------------------------------
def blocks(k, t):  # matrices that Muon orthogonalises on their own
    if "gate_up_proj" in k:
        return t.view(64, 64, t.shape[-1])
    if t.dim() == 3:
        return t
    if "q_proj" in k:
        return t.view(-1, 256, t.shape[-1])
    if "in_proj_qkv" in k or "in_proj_z" in k:
        return t.view(-1, 128, t.shape[-1])
    return t[None]


mu = [
    k
    for k in names
    if M.is_q4(k) and not k.endswith(("embed_tokens.weight", "lm_head.weight", "in_proj_a.weight", "in_proj_b.weight"))
]
ad = [k for k in names if k not in mu]
mom = {k: torch.zeros_like(mst[k]) for k in mu}
groups = {}
for k in mu:
    groups.setdefault(tuple(blocks(k, mst[k]).shape[1:]), []).append(k)
m1 = [torch.zeros_like(mst[k]) for k in ad]
m2 = [torch.zeros_like(mst[k]) for k in ad]


def ns5(G):
    X = G.to(live.dtype)
    tr = X.shape[-2] > X.shape[-1]
    if tr:
        X = X.transpose(-1, -2)
    X = X / (X.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        A = X @ X.transpose(-1, -2)
        X = 3.4445 * X + (-4.7750 * A + 2.0315 * (A @ A)) @ X
    return X.transpose(-1, -2) if tr else X


@torch.no_grad()
def opt_step(lr, t):
    gm = [P[k].grad.float() for k in mu]
    bufs = [mom[k] for k in mu]
    torch._foreach_lerp_(bufs, gm, 0.05)
    torch._foreach_lerp_(gm, bufs, 0.95)  # Nesterov
    upd = dict(zip(mu, gm))
    torch._foreach_mul_([mst[k] for k in mu], 1 - a.lr * lr * a.wd)
    for (r, q), ks in groups.items():
        bl = [blocks(k, upd[k]) for k in ks]
        O = ns5(torch.cat(bl)).float().split([b.shape[0] for b in bl])
        sc = max(1, r / q) ** 0.5
        torch._foreach_add_([blocks(k, mst[k]) for k in ks], list(O), alpha=-a.lr * lr * sc)
    ga = [P[k].grad.float() for k in ad]
    b1, b2 = 0.9, 0.95
    torch._foreach_lerp_(m1, ga, 1 - b1)
    torch._foreach_mul_(m2, b2)
    torch._foreach_addcmul_(m2, ga, ga, 1 - b2)
    den = torch._foreach_div(m2, 1 - b2**t)
    torch._foreach_sqrt_(den)
    torch._foreach_add_(den, 1e-10)
    st = torch._foreach_div(m1, den)
    torch._foreach_add_([mst[k] for k in ad], st, alpha=-a.alr * lr / (1 - b1**t))
    for k in P:
        P[k].grad = None


# ---- data --------------------------------------------------------------------------------
def rows(pat):
    fs = sorted(glob.glob(f"{a.data}/{pat}"))
    return torch.from_numpy(np.concatenate([np.load(f) for f in fs]).astype(np.int32)).to(DEV)


if a.smoke:
    sets = {}
    for T, n in ((512, 2048), (2048, 256)):
        x = torch.randint(0, c["vocab"], (n, T), device=DEV, dtype=torch.int32)
        x[:, ::128] |= 1 << 14
        sets[T] = x
    val = sets[512][:256]
else:
    sets = {T: rows(f"rows{T}*.npy") for T in (512, 2048) if glob.glob(f"{a.data}/rows{T}*.npy")}
    val = rows("val512.npy")
for T in sets:
    say(T, tuple(sets[T].shape))


def unpack(x):
    tok, start, low = x & 0x3FFF, (x >> 14) & 1, (x >> 15) & 1
    start = start.bool()
    start = start.clone()
    start[:, 0] = True
    nx = lambda t: torch.cat([t[:, 1:], t[:, :1]], 1)
    wt = torch.where(nx(low) > 0, a.low, 1.0) * (~nx(start)).float()
    wt[:, -1] = 0
    return tok.long(), start, nx(tok).long(), wt


def batches():
    while True:
        lst = []
        for T, x in sets.items():
            bs = a.tokens // T
            pm = torch.from_numpy(rng.permutation(x.shape[0])).to(DEV)
            lst += [(T, pm[i : i + bs]) for i in range(0, len(pm) - bs + 1, bs)]
        for i in rng.permutation(len(lst)):
            yield lst[i]
        say("epoch end")


net = M.Net(c, compile=DEV == "cuda")


@torch.no_grad()
def evaluate():
    tot = n = 0
    bs = a.tokens // 512
    for i in range(0, len(val) - bs + 1, bs):
        tok, st, tg, wt = unpack(val[i : i + bs])
        wt = (wt == 1).float()  # answers only
        ls, _ = net.loss(P, tok, st, tg, wt)
        tot += float(ls) * float(wt.sum())
        n += float(wt.sum())
    return tot / max(n, 1)


def save():
    from safetensors.torch import save_file

    os.makedirs(a.out, exist_ok=True)
    f = f"{a.out}/ck.tmp"
    save_file({k: (v.clone() if k.endswith("A_log") else v.bfloat16().clone()).cpu() for k, v in mst.items()}, f)
    b = open(f, "rb").read()
    os.remove(f)
    n = 15 << 20
    for i in range(0, len(b), n):
        open(f"{a.out}/ckpt.part{i // n}", "wb").write(b[i : i + n])
    say("saved", len(b))


# compile on both shapes before the clock of the schedule starts
it = batches()
for T in sets:
    x = sets[T][: a.tokens // T]
    for _ in range(2):
        tok, st, tg, wt = unpack(x)
        ls, aux = net.loss(P, tok, st, tg, wt)
        (ls + a.aux * aux).backward()
        for k in P:
            P[k].grad = None
    if DEV == "cuda":
        torch.cuda.synchronize()
    say("compiled", T)
publish(True)
publish(False)
if DEV == "cuda":
    torch.cuda.synchronize()
say("start", f"{torch.cuda.max_memory_allocated() / 2**30:.1f} GiB" if DEV == "cuda" else "")
ts, step, toks, qat, acc, saved = time.time(), 0, 0, False, [], False
stat = {}
while True:
    fr = (time.time() - ts) / a.seconds
    if fr >= a.frac or (a.smoke and step >= a.smoke):
        break
    lr = min(1.0, (step + 1) / a.warm) * (1.0 if fr < 0.35 else max(0.02, 1 - (fr - 0.35) / 0.65))
    if fr >= a.qat and not qat:
        say("val before QAT", f"{evaluate():.4f}")
        publish(True)
        say("val first QAT", f"{evaluate():.4f}")
        qat = True
    T, ix = next(it)
    tok, st, tg, wt = unpack(sets[T][ix])
    ls, aux = net.loss(P, tok, st, tg, wt)
    (ls + a.aux * aux).backward()
    step += 1
    toks += tok.numel()
    opt_step(lr, step)
    publish(qat)
    acc.append(torch.stack([ls.detach(), aux.detach()]))
    if step % 20 == 0 and DEV == "cuda":
        torch.cuda.synchronize()
    if step % (100 if DEV == "cuda" else 10) == 0:
        m = torch.stack(acc).mean(0).tolist()
        acc = []
        say(
            f"step {step} loss {m[0]:.4f} aux {m[1]:.3f} lr {lr:.3f} {toks / (time.time() - ts) / 1e3:.0f}k tok/s"
            + (f" val {evaluate():.4f}" if step % 500 == 0 else "")
        )
    if fr > 0.85 and not saved and not a.smoke:
        save()
        saved = True
if DEV == "cuda":
    torch.cuda.synchronize()
say(
    f"{step} steps, {toks / 1e6:.1f}M tokens, {toks / (time.time() - ts) / 1e3:.0f}k tok/s; mean loss of the rest",
    [round(float(x[0]), 3) for x in acc[-5:]],
)
if not a.smoke:
    publish(True)
    say("val 4-bit ", f"{evaluate():.4f}")
    publish(False)
    say("val bf16  ", f"{evaluate():.4f}")
    save()
