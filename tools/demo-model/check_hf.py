"""CPU check: the training model vs transformers' Qwen3_5MoeForCausalLM, same random weights, float32;
and gradients of the hand-written GDN pieces vs autograd through HF."""

import sys, torch
from transformers.models.qwen3_5_moe import Qwen3_5MoeTextConfig, Qwen3_5MoeForCausalLM
import model as M

torch.manual_seed(0)
torch.set_num_threads(2)


def hf_config(c):
    return Qwen3_5MoeTextConfig(
        vocab_size=c["vocab"],
        hidden_size=c["hid"],
        num_hidden_layers=c["layers"],
        num_attention_heads=c["nh"],
        num_key_value_heads=c["nkv"],
        head_dim=c["hd"],
        linear_num_key_heads=c["nk"],
        linear_num_value_heads=c["nv"],
        linear_key_head_dim=c["dk"],
        linear_value_head_dim=c["dv"],
        linear_conv_kernel_dim=c["conv"],
        num_experts=c["experts"],
        num_experts_per_tok=c["topk"],
        moe_intermediate_size=c["inter"],
        shared_expert_intermediate_size=c["shared"],
        rms_norm_eps=c["eps"],
        max_position_embeddings=32768,
        full_attention_interval=c["interval"],
        rope_parameters=dict(
            rope_type="default",
            rope_theta=c["theta"],
            partial_rotary_factor=0.25,
            mrope_section=[11, 11, 10],
            mrope_interleaved=True,
        ),
    )


if __name__ == "__main__":
    c = dict(M.CFG, layers=4, vocab=512)
    p = {k: v.requires_grad_() for k, v in M.init_params(c).items()}
    for k, v in p.items():
        if "norm.weight" in k:
            v.data += torch.randn_like(v) * 0.1
    hf = Qwen3_5MoeForCausalLM(hf_config(c)).float()
    sd = {(k if k.startswith("lm_head") else "model." + k): v.data for k, v in p.items()}
    miss = hf.load_state_dict(sd, strict=True)
    print(miss)
    ids = torch.randint(0, 512, (2, 192))
    start = torch.zeros(2, 192, dtype=torch.bool)
    start[:, 0] = True
    net = M.Net(c)
    a = net.logits(p, ids, start)
    b = hf(input_ids=ids, use_cache=False).logits
    print("logits max |diff|", (a - b).abs().max().item(), "scale", b.abs().max().item())
    r = torch.randn_like(a)
    (a * r).sum().backward()
    (b * r).sum().backward()
    hg = dict(hf.named_parameters())
    worst = 0
    for k, v in p.items():
        g = hg[k if k.startswith("lm_head") else "model." + k].grad
        e = ((v.grad - g).norm() / (g.norm() + 1e-9)).item()
        worst = max(worst, e)
        if e > 1e-3:
            print("grad", k, e)
    print("worst relative gradient error", worst)
    # two packed documents == the same documents alone
    s2 = start.clone()
    s2[0, 77] = True
    z = torch.zeros(1, 64 - (192 - 77) % 64, dtype=torch.long)
    c1 = net.logits(p, ids[:1], s2[:1])[0, 77:]
    c2 = net.logits(
        p,
        torch.cat([ids[:1, 77:], z], 1),
        torch.nn.functional.pad(torch.ones(1, 1, dtype=torch.bool), (0, 192 - 77 + z.shape[1] - 1)),
    )[0, : 192 - 77]
    print("packing max |diff|", (c1 - c2).abs().max().item())
