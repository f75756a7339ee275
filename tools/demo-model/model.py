"""Compact training implementation of the Qwen3.5/3.6-MoE text model (HF `qwen3_5_moe`).

All token-wise work runs on flat [N = B*T] tensors so that one compiled graph serves every
sequence length; only the chunk scan of Gated DeltaNet and softmax attention see [B, T].
Packed documents never see each other: convolution taps, attention and the GDN state are
cut at document starts (decay exp(-60) at a start token).  Parameter names and layouts are
those of the HF checkpoint (`model.language_model.` + name), experts fused."""

import math, os
import torch
import torch.nn.functional as F

CFG = dict(
    vocab=8192,
    hid=256,
    layers=8,
    interval=4,
    nh=8,
    nkv=1,
    hd=256,
    rot=64,
    theta=1e7,
    eps=1e-6,
    nk=2,
    nv=4,
    dk=128,
    dv=128,
    conv=4,
    experts=32,
    topk=8,
    inter=64,
    shared=64,
)
CH = 64  # GDN chunk


def is_attn(c, i):
    return (i + 1) % c["interval"] == 0


def init_params(c, seed=0):
    g = torch.Generator().manual_seed(seed)
    n = lambda *s, std: torch.randn(*s, generator=g) * std
    H, p = c["hid"], {}
    lin = lambda o, i, k=0.6: n(o, i, std=k / math.sqrt(i))
    p["embed_tokens.weight"] = n(c["vocab"], H, std=0.1)
    for l in range(c["layers"]):
        q = f"layers.{l}."
        p[q + "input_layernorm.weight"] = torch.zeros(H)
        p[q + "post_attention_layernorm.weight"] = torch.zeros(H)
        if is_attn(c, l):
            a = q + "self_attn."
            p[a + "q_proj.weight"] = lin(c["nh"] * c["hd"] * 2, H)
            p[a + "k_proj.weight"] = lin(c["nkv"] * c["hd"], H)
            p[a + "v_proj.weight"] = lin(c["nkv"] * c["hd"], H)
            p[a + "o_proj.weight"] = lin(H, c["nh"] * c["hd"], 0.2)
            p[a + "q_norm.weight"] = torch.zeros(c["hd"])
            p[a + "k_norm.weight"] = torch.zeros(c["hd"])
        else:
            a = q + "linear_attn."
            kd, vd = c["nk"] * c["dk"], c["nv"] * c["dv"]
            p[a + "in_proj_qkv.weight"] = lin(2 * kd + vd, H)
            p[a + "in_proj_z.weight"] = lin(vd, H)
            p[a + "in_proj_b.weight"] = lin(c["nv"], H)
            p[a + "in_proj_a.weight"] = lin(c["nv"], H)
            p[a + "conv1d.weight"] = n(2 * kd + vd, 1, c["conv"], std=0.3)
            p[a + "A_log"] = torch.log(torch.empty(c["nv"]).uniform_(1, 16, generator=g))
            dt = torch.exp(torch.empty(c["nv"]).uniform_(math.log(1e-3), math.log(0.1), generator=g))
            p[a + "dt_bias"] = dt + torch.log(-torch.expm1(-dt))
            p[a + "norm.weight"] = torch.ones(c["dv"])
            p[a + "out_proj.weight"] = lin(H, vd, 0.2)
        m, I, S, E = q + "mlp.", c["inter"], c["shared"], c["experts"]
        p[m + "gate.weight"] = n(E, H, std=0.02)
        p[m + "experts.gate_up_proj"] = n(E, 2 * I, H, std=0.6 / math.sqrt(H))
        p[m + "experts.down_proj"] = n(E, H, I, std=0.3 / math.sqrt(I))
        p[m + "shared_expert.gate_proj.weight"] = lin(S, H)
        p[m + "shared_expert.up_proj.weight"] = lin(S, H)
        p[m + "shared_expert.down_proj.weight"] = lin(H, S, 0.3)
        p[m + "shared_expert_gate.weight"] = lin(1, H, 0.1)
    p["norm.weight"] = torch.zeros(H)
    p["lm_head.weight"] = n(c["vocab"], H, std=0.02)
    return p


# ---- pieces (each compiled once on the GPU) --------------------------------------------
def rms1(x, w, eps):  # HF: (1 + w), in float32
    f = x.float()
    return (f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + eps) * (1 + w.float())).to(x.dtype)


def _mm(a, b):
    return torch.matmul(a, b)


class TriInv(torch.autograd.Function):
    """(I + A)^-1 for strictly lower triangular 64x64 A: 16x16 diagonal blocks by doubling
    (nilpotent), then two block-merge levels.  Backward: dA = -tril(X^T G X^T, -1)."""

    @staticmethod
    def forward(ctx, A):
        s = A.shape[:-2]
        blk = A.view(*s, 4, 16, 4, 16)
        N = -torch.stack([blk[..., i, :, i, :] for i in range(4)], -3)
        X = N + torch.eye(16, device=A.device, dtype=A.dtype)
        P = N
        for _ in range(3):
            P = P @ P
            X = X + X @ P
        for w, k in ((16, 4), (32, 2)):
            bl = A.view(*s, k, w, k, w)
            C = torch.stack([bl[..., 2 * i + 1, :, 2 * i, :] for i in range(k // 2)], -3)
            a, b = X[..., 0::2, :, :], X[..., 1::2, :, :]
            L = -(b @ C @ a)
            X = torch.cat([torch.cat([a, torch.zeros_like(a)], -1), torch.cat([L, b], -1)], -2)
        X = X.squeeze(-3)
        ctx.save_for_backward(X)
        return X

    @staticmethod
    def backward(ctx, G):
        (X,) = ctx.saved_tensors
        Xt = X.transpose(-1, -2)
        return -(Xt @ G @ Xt).tril(-1)


def gdn_pre(x, m1, m2, m3, st, n1, wqkv, conv, wb, wa, A_log, dt_bias, eps, nk, nv, dk, dv):
    h = rms1(x, n1, eps)
    y = (h @ wqkv.t()).float()
    w = conv.float()[:, 0, :]
    sh = lambda j: F.pad(y, (0, 0, j, 0))[: y.shape[0]]
    y = y * w[:, 3] + sh(1) * m1[:, None] * w[:, 2] + sh(2) * m2[:, None] * w[:, 1] + sh(3) * m3[:, None] * w[:, 0]
    y = F.silu(y).to(x.dtype).float()
    kd = nk * dk
    nc, r = y.shape[0] // CH, nv // nk
    qk = y[:, : 2 * kd].view(-1, 2 * nk, dk)
    qk = qk * torch.rsqrt(qk.pow(2).sum(-1, keepdim=True) + 1e-6)
    q, k = qk[:, :nk] * dk**-0.5, qk[:, nk:]
    q, k = [t.view(nc, CH, nk, dk).transpose(1, 2).repeat_interleave(r, 1) for t in (q, k)]
    v = y[:, 2 * kd :].view(nc, CH, nv, dv).transpose(1, 2)
    beta = torch.sigmoid((h @ wb.t()).float()).view(nc, CH, nv).transpose(1, 2)
    g = -A_log.float().exp() * F.softplus((h @ wa.t()).float() + dt_bias.float())
    g = torch.where(st[:, None], torch.full_like(g, -60.0), g).view(nc, CH, nv).transpose(1, 2)
    cum = g.cumsum(-1)
    up = torch.ones(CH, CH, dtype=torch.bool, device=x.device).triu(1)
    dec = (cum[..., :, None] - cum[..., None, :]).masked_fill(up, float("-inf")).exp()
    kb = k * beta[..., None]
    kt = k.transpose(-1, -2)
    X = TriInv.apply(((kb @ kt) * dec).tril(-1))
    attn = (q @ kt) * dec
    u = X @ (v * beta[..., None])
    wt = X @ (kb * cum.exp()[..., None])
    qd = q * cum.exp()[..., None]
    kk = k * (cum[..., -1:] - cum).exp()[..., None]
    return h, qd, kk, u, wt, attn, cum[..., -1].exp()


class Scan(torch.autograd.Function):
    """S_{i+1} = d_i S_i + K_i^T V_i with V_i = U_i - W_i S_i; inputs [B, n, H, 64, *]."""

    @staticmethod
    def forward(ctx, K, U, W, d):
        B, n, H, _, dk = K.shape
        S = torch.zeros(n, B * H, dk, U.shape[-1], device=K.device, dtype=K.dtype)
        K_, U_, W_ = [t.transpose(0, 1).reshape(n, B * H, CH, -1).contiguous() for t in (K, U, W)]
        d_ = d.transpose(0, 1).reshape(n, B * H, 1, 1)
        V = torch.empty_like(U_)
        for i in range(n):
            torch.baddbmm(U_[i], W_[i], S[i], alpha=-1, out=V[i])
            if i + 1 < n:
                torch.baddbmm(S[i] * d_[i], K_[i].transpose(1, 2), V[i], out=S[i + 1])
        ctx.save_for_backward(K_, W_, d_, S, V)
        ctx.dims = (B, H)
        back = lambda t: t.view(n, B, H, t.shape[-2], t.shape[-1]).transpose(0, 1)
        return back(S), back(V)

    @staticmethod
    def backward(ctx, dS, dV):
        K_, W_, d_, S, V = ctx.saved_tensors
        B, H = ctx.dims
        n = K_.shape[0]
        dS = dS.transpose(0, 1).reshape(S.shape)
        dV = dV.transpose(0, 1).reshape(V.shape)
        G = torch.zeros_like(S)  # G[i]: gradient of S_{i+1}
        Q = torch.empty_like(V)  # total gradient of V_i
        for i in range(n - 1, -1, -1):
            torch.baddbmm(dV[i], K_[i], G[i], out=Q[i])
            if i:
                torch.baddbmm(torch.addcmul(dS[i], G[i], d_[i]), W_[i].transpose(1, 2), Q[i], alpha=-1, out=G[i - 1])
        dK = V @ G.transpose(-1, -2)
        dW = -(Q @ S.transpose(-1, -2))
        dd = (G * S).sum((-1, -2))
        back = lambda t: t.view(n, B, H, *t.shape[2:]).transpose(0, 1)
        return back(dK), back(Q), back(dW), back(dd)


def gdn_post(x, h, qd, S, attn, V, wz, gn, wo, eps, nv, dv):
    o = (qd @ S + attn @ V).transpose(1, 2).reshape(-1, nv, dv).to(x.dtype)
    z = (h @ wz.t()).view(-1, nv, dv)
    f = o.float()
    f = f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + eps)
    f = (gn.float() * f.to(x.dtype).float()) * F.silu(z.float())
    return x + f.to(x.dtype).reshape(-1, nv * dv) @ wo.t()


def attn_pre(x, cos, sin, n1, wq, wk, wv, qn, kn, eps, nh, nkv, hd, rot):
    h = rms1(x, n1, eps)
    q, gate = (h @ wq.t()).view(-1, nh, 2 * hd).chunk(2, -1)
    q = rms1(q, qn, eps)
    k = rms1((h @ wk.t()).view(-1, nkv, hd), kn, eps)
    v = (h @ wv.t()).view(-1, nkv, hd)

    def rope(t):
        a, b = t[..., : rot // 2].float(), t[..., rot // 2 : rot].float()
        return torch.cat([a * cos - b * sin, b * cos + a * sin, t[..., rot:].float()], -1).to(t.dtype)

    return rope(q), rope(k), v, gate.reshape(-1, nh * hd)


def attn_post(x, o, gate, wo):
    return x + (o * torch.sigmoid(gate)) @ wo.t()


def moe(x, n2, wr, wgu, wd, sg, su, sd, sgate, eps, topk):
    h = rms1(x, n2, eps)
    E, I2, H = wgu.shape
    pr = torch.softmax((h @ wr.t()).float(), -1)
    v, ix = pr.topk(topk, -1)
    v = v / v.sum(-1, keepdim=True)
    w = torch.zeros_like(pr).scatter(1, ix, v)
    gu = (h @ wgu.reshape(-1, H).t()).view(-1, E, 2, I2 // 2)
    act = F.silu(gu[:, :, 0]) * gu[:, :, 1] * w[:, :, None].to(x.dtype)
    y = act.reshape(x.shape[0], -1) @ wd.permute(0, 2, 1).reshape(-1, H)
    s = (F.silu(h @ sg.t()) * (h @ su.t())) @ sd.t()
    y = y + torch.sigmoid(h @ sgate.t()) * s
    frac = (w > 0).float().mean(0) / topk
    aux = E * (frac.detach() * pr.mean(0)).sum()
    return x + y, aux


def head_loss(x, nf, wl, tgt, wt, eps):
    lg = (rms1(x, nf, eps) @ wl.t()).float()
    return (F.cross_entropy(lg, tgt, reduction="none") * wt).sum()


class Net:
    def __init__(s, c, compile=False):
        s.c = c
        f = (lambda g: torch.compile(g, dynamic=False)) if compile else (lambda g: g)
        s.gdn_pre, s.gdn_post, s.attn_pre, s.attn_post, s.moe, s.head_loss = map(
            f, (gdn_pre, gdn_post, attn_pre, attn_post, moe, head_loss)
        )

    def hidden(s, p, ids, start):
        """ids, start(bool): [B, T], T % 64 == 0, start[:, 0] true.  Returns flat hidden, aux."""
        c, (B, T) = s.c, ids.shape
        dev, eps = ids.device, c["eps"]
        st = start.reshape(-1)
        doc = st.long().cumsum(0)
        same = lambda j: F.pad(doc, (j, 0))[: doc.numel()] == doc
        m1, m2, m3 = [same(j).float() for j in (1, 2, 3)]
        db = doc.view(B, T)
        mask = (db[:, :, None] == db[:, None, :]).tril()[:, None]
        inv = 1.0 / c["theta"] ** (torch.arange(0, c["rot"], 2, device=dev).float() / c["rot"])
        ang = torch.arange(T, device=dev).float().repeat(B)[:, None, None] * inv
        cos, sin = ang.cos(), ang.sin()
        x = p["embed_tokens.weight"][ids.reshape(-1)]
        aux = 0.0
        n = T // CH
        for l in range(c["layers"]):
            q = f"layers.{l}."
            if is_attn(c, l):
                w = lambda k: p[q + "self_attn." + k + ".weight"]
                Q, K, V, g = s.attn_pre(
                    x,
                    cos,
                    sin,
                    p[q + "input_layernorm.weight"],
                    w("q_proj"),
                    w("k_proj"),
                    w("v_proj"),
                    w("q_norm"),
                    w("k_norm"),
                    eps,
                    c["nh"],
                    c["nkv"],
                    c["hd"],
                    c["rot"],
                )
                sh = lambda t: t.view(B, T, -1, c["hd"]).transpose(1, 2)
                K, V = [sh(t).expand(B, c["nh"], T, c["hd"]) for t in (K, V)]  # nkv == 1
                o = F.scaled_dot_product_attention(sh(Q), K, V, attn_mask=mask)
                x = s.attn_post(x, o.transpose(1, 2).reshape(B * T, -1), g, w("o_proj"))
            else:
                w = lambda k: p[q + "linear_attn." + k]
                h, qd, kk, u, wt, at, d = s.gdn_pre(
                    x,
                    m1,
                    m2,
                    m3,
                    st,
                    p[q + "input_layernorm.weight"],
                    w("in_proj_qkv.weight"),
                    w("conv1d.weight"),
                    w("in_proj_b.weight"),
                    w("in_proj_a.weight"),
                    w("A_log"),
                    w("dt_bias"),
                    eps,
                    c["nk"],
                    c["nv"],
                    c["dk"],
                    c["dv"],
                )
                r = lambda t: t.view(B, n, *t.shape[1:])
                S, V = Scan.apply(r(kk), r(u), r(wt), r(d))
                fl = lambda t: t.reshape(B * n, *t.shape[2:])
                x = s.gdn_post(
                    x,
                    h,
                    qd,
                    fl(S),
                    at,
                    fl(V),
                    w("in_proj_z.weight"),
                    w("norm.weight"),
                    w("out_proj.weight"),
                    eps,
                    c["nv"],
                    c["dv"],
                )
            m = lambda k: p[q + "mlp." + k]
            x, a = s.moe(
                x,
                p[q + "post_attention_layernorm.weight"],
                m("gate.weight"),
                m("experts.gate_up_proj"),
                m("experts.down_proj"),
                m("shared_expert.gate_proj.weight"),
                m("shared_expert.up_proj.weight"),
                m("shared_expert.down_proj.weight"),
                m("shared_expert_gate.weight"),
                eps,
                c["topk"],
            )
            aux = aux + a
        return x, aux / c["layers"]

    def logits(s, p, ids, start):
        x, _ = s.hidden(p, ids, start)
        return (rms1(x, p["norm.weight"], s.c["eps"]) @ p["lm_head.weight"].t()).view(*ids.shape, -1)

    def loss(s, p, ids, start, tgt, wt, parts=4):
        x, aux = s.hidden(p, ids, start)
        ls = [
            s.head_loss(a, p["norm.weight"], p["lm_head.weight"], b, w, s.c["eps"])
            for a, b, w in zip(x.chunk(parts), tgt.reshape(-1).chunk(parts), wt.reshape(-1).chunk(parts))
        ]
        return sum(ls) / wt.sum(), aux


# ---- MLX affine quantisation (group 64), as mx.quantize computes it ----------------------
def fake_quant(w, bits=4, group=64):
    s, top = w.shape, 2**bits - 1
    f = w.float().reshape(-1, group)
    lo, hi = f.amin(-1, keepdim=True), f.amax(-1, keepdim=True)
    side = lo.abs() > hi.abs()
    sc = ((hi - lo) / top).clamp(min=1e-7)
    sc = torch.where(side, sc, -sc)
    edge = torch.where(side, lo, hi)
    q0 = torch.round(edge / sc)
    sc = torch.where(q0 != 0, edge / torch.where(q0 != 0, q0, torch.ones_like(q0)), sc)
    b = torch.where(q0 != 0, edge, torch.zeros_like(edge))
    q = torch.round((f - b) / sc).clamp(0, top)
    return (q * sc.bfloat16().float() + b.bfloat16().float()).reshape(s)


def is_q4(name):
    if name.endswith("mlp.gate.weight") or name.endswith("shared_expert_gate.weight"):
        return False  # 8-bit in MLX
    return name.endswith(
        (
            "proj.weight",
            "gate_up_proj",
            "down_proj",
            "embed_tokens.weight",
            "lm_head.weight",
            "in_proj_qkv.weight",
            "in_proj_z.weight",
            "in_proj_b.weight",
            "in_proj_a.weight",
        )
    )
