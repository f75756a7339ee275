"""ckpt.part* from train.py -> HF checkpoint folder with the names and layout of Qwen3.6-35B-A3B.
python export.py CKPT_DIR PACKED_DIR OUT_DIR"""

import glob, json, os, shutil, sys
import torch
from safetensors.torch import load, save_file
import model as M

ck, packed, out = sys.argv[1:4]
os.makedirs(out, exist_ok=True)
sd = load(b"".join(open(f, "rb").read() for f in sorted(glob.glob(ck + "/ckpt.part*"))))
c = M.CFG
w = {(k if k.startswith("lm_head") else "model.language_model." + k): v.contiguous() for k, v in sd.items()}
save_file(w, out + "/model.safetensors", metadata={"format": "pt"})
tj = json.load(open(packed + "/tokenizer.json"))
ids = {t["content"]: t["id"] for t in tj["added_tokens"]}
text = dict(
    model_type="qwen3_5_moe_text",
    vocab_size=c["vocab"],
    hidden_size=c["hid"],
    num_hidden_layers=c["layers"],
    num_attention_heads=c["nh"],
    num_key_value_heads=c["nkv"],
    head_dim=c["hd"],
    attention_bias=False,
    attention_dropout=0.0,
    attn_output_gate=True,
    hidden_act="silu",
    full_attention_interval=c["interval"],
    layer_types=["full_attention" if M.is_attn(c, i) else "linear_attention" for i in range(c["layers"])],
    linear_conv_kernel_dim=c["conv"],
    linear_key_head_dim=c["dk"],
    linear_num_key_heads=c["nk"],
    linear_value_head_dim=c["dv"],
    linear_num_value_heads=c["nv"],
    mamba_ssm_dtype="float32",
    num_experts=c["experts"],
    num_experts_per_tok=c["topk"],
    moe_intermediate_size=c["inter"],
    shared_expert_intermediate_size=c["shared"],
    router_aux_loss_coef=0.001,
    output_router_logits=False,
    mlp_only_layers=[],
    rms_norm_eps=c["eps"],
    max_position_embeddings=32768,
    initializer_range=0.02,
    tie_word_embeddings=False,
    use_cache=True,
    dtype="bfloat16",
    eos_token_id=ids["<|endoftext|>"],
    mtp_num_hidden_layers=0,
    rope_parameters=dict(
        rope_type="default",
        rope_theta=c["theta"],
        partial_rotary_factor=c["rot"] / c["hd"],
        mrope_interleaved=True,
        mrope_section=[11, 11, 10],
    ),
)
cfg = dict(
    architectures=["Qwen3_5MoeForConditionalGeneration"],
    model_type="qwen3_5_moe",
    tie_word_embeddings=False,
    text_config=text,
    image_token_id=ids["<|image_pad|>"],
    video_token_id=ids["<|video_pad|>"],
    vision_start_token_id=ids["<|vision_start|>"],
    vision_end_token_id=ids["<|vision_end|>"],
)
json.dump(cfg, open(out + "/config.json", "w"), indent=2)
json.dump(
    dict(
        bos_token_id=ids["<|endoftext|>"],
        eos_token_id=[ids["<|im_end|>"], ids["<|endoftext|>"]],
        pad_token_id=ids["<|endoftext|>"],
        do_sample=True,
        temperature=0.6,
        top_k=20,
        top_p=0.95,
    ),
    open(out + "/generation_config.json", "w"),
    indent=2,
)
shutil.copy(packed + "/tokenizer.json", out)
here = os.path.dirname(os.path.abspath(__file__))
tpl = open(here + "/chat_template.jinja").read()
open(out + "/chat_template.jinja", "w").write(tpl)
json.dump(
    dict(
        add_bos_token=False,
        add_prefix_space=False,
        added_tokens_decoder={
            str(t["id"]): {k: t[k] for k in ("content", "lstrip", "normalized", "rstrip", "single_word", "special")}
            for t in tj["added_tokens"]
        },
        additional_special_tokens=[
            t["content"] for t in tj["added_tokens"] if t["special"] and t["content"] not in ("<|endoftext|>",)
        ],
        bos_token=None,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        unk_token=None,
        clean_up_tokenization_spaces=False,
        errors="replace",
        split_special_tokens=False,
        model_max_length=32768,
        tokenizer_class="Qwen2Tokenizer",
        chat_template=tpl,
    ),
    open(out + "/tokenizer_config.json", "w"),
    indent=2,
    ensure_ascii=False,
)
print(
    len(w),
    "tensors",
    sum(v.numel() for v in w.values()) / 1e6,
    "M parameters",
    os.path.getsize(out + "/model.safetensors"),
    "bytes",
)
for k in sorted(w):
    if "layers." not in k or ".layers.0." in k or ".layers.3.self" in k:
        print(k, tuple(w[k].shape), w[k].dtype)
