"""Weight average of two checkpoints: python merge.py CKPT_A CKPT_B weight_of_B OUT_DIR"""

import glob, os, sys
from safetensors.torch import load, save_file

A, B, w, out = sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4]
rd = lambda d: load(b"".join(open(f, "rb").read() for f in sorted(glob.glob(d + "/ckpt.part*"))))
a, b = rd(A), rd(B)
os.makedirs(out, exist_ok=True)
save_file({k: (a[k].float() * (1 - w) + b[k].float() * w).to(a[k].dtype) for k in a}, out + "/ckpt.part0")
