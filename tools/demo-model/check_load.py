"""Loads the HF checkpoint with transformers (both classes) and compares with the training model and with MLX-LM (unquantised):
python check_load.py HF_DIR CKPT_DIR      (torch environment)"""

import glob, sys, torch
from safetensors.torch import load
from transformers import AutoModelForCausalLM, AutoTokenizer, AutoConfig
import model as M

hf, ck = sys.argv[1:3]
torch.set_num_threads(2)
tok = AutoTokenizer.from_pretrained(hf)
ids = tok.apply_chat_template(
    [{"role": "user", "content": "What is a river? Caf\u00e9 123!"}],
    add_generation_prompt=True,
    enable_thinking=False,
    return_dict=False,
)
print(type(tok).__name__, ids, repr(tok.decode(ids)))
m, info = AutoModelForCausalLM.from_pretrained(hf, dtype=torch.float32, output_loading_info=True)
print(type(m).__name__, {k: (list(v)[:4], len(v)) for k, v in info.items() if v})
sd = load(b"".join(open(f, "rb").read() for f in sorted(glob.glob(ck + "/ckpt.part*"))))
p = {k: v.float() for k, v in sd.items()}
n = -len(ids) % 64
x = torch.tensor([ids + [0] * n])
s = torch.zeros_like(x, dtype=torch.bool)
s[:, 0] = True
with torch.no_grad():
    a = M.Net(M.CFG).logits(p, x, s)[0, : len(ids)]
    b = m(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
print("transformers vs training model: max |diff|", (a - b).abs().max().item(), "scale", b.abs().max().item())
from transformers import Qwen3_5MoeForConditionalGeneration

c = AutoConfig.from_pretrained(hf)
c.vision_config.depth = 1
c.vision_config.hidden_size = 64
c.vision_config.num_heads = 1
c.vision_config.intermediate_size = 64
c.vision_config.out_hidden_size = c.text_config.hidden_size
m, info = Qwen3_5MoeForConditionalGeneration.from_pretrained(
    hf, config=c, dtype=torch.float32, output_loading_info=True
)
print(type(m).__name__, {k: (sorted(v)[:3], len(v)) for k, v in info.items() if v})
with torch.no_grad():
    b2 = m(input_ids=torch.tensor([ids])).logits[0]
print("ConditionalGeneration (tiny random vision tower) vs CausalLM:", (b2 - b).abs().max().item())
