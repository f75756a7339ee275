"""Sample chats from an MLX checkpoint on the CPU: python chat_samples.py MODEL_DIR [temperature]"""

import sys, time
import mlx.core as mx

mx.set_default_device(mx.cpu)
from mlx_lm import load, generate
from mlx_lm.sample_utils import make_sampler
import synth

model, tok = load(sys.argv[1])
temp = float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
mx.random.seed(1)
W = [synth.TOOLS["get_weather"], synth.TOOLS["set_timer"]]
S = [
    ([("user", "Who are you?")], None, True),
    ([("user", "Hello! How are you?")], None, False),
    ([("user", "Tell me a story about a brave rabbit who finds a lost key.")], None, False),
    ([("user", "Write a short story about Anna and a red balloon.")], None, True),
    ([("user", "What is the difference between a lake and a sea?")], None, False),
    ([("user", "Why do we need rain?")], None, False),
    ([("user", "How do I make pancakes?")], None, False),
    ([("user", "Give me three tips for sleeping well.")], None, True),
    ([("user", "My name is Viktor. I have a dog named Rex.")], None, False),
    (
        [
            ("user", "What do owls eat?"),
            ("assistant", "Owls eat mice and small animals."),
            ("user", "Where do they live?"),
        ],
        None,
        False,
    ),
    (
        [
            ("user", "Remember: the code is 7315."),
            ("assistant", "I will remember that."),
            ("user", "What is a bridge?"),
            ("assistant", "A bridge is a structure over a river or a road."),
            ("user", "What is the code?"),
        ],
        None,
        True,
    ),
    ([("user", "What is the weather in Vienna?")], W, False),
    ([("user", "Set a timer for 25 minutes.")], W, True),
    ([("user", "Make a JSON object with name = Zoe, city = Rome and age = 31.")], None, False),
    ([("user", "I feel nervous today.")], None, False),
    ([("user", "What is a computer?")], None, False),
    ([("user", "Is honey healthy?")], None, False),
]
for m, tools, think in S:
    p = tok.apply_chat_template(
        [{"role": a, "content": b} for a, b in m],
        tools=tools,
        add_generation_prompt=True,
        enable_thinking=think,
        tokenize=False,
    )
    t = time.time()
    o = generate(model, tok, p, max_tokens=320, sampler=make_sampler(temp))
    print(
        f"## {m[-1][1]}   [thinking {'on' if think else 'off'}{', tools' if tools else ''}]\n{o}\n   ({time.time() - t:.1f}s)",
        flush=True,
    )
