"""lm_eval_job.py LILY: lm-eval's log-likelihoods over /v1/completions and its generations over chat completions, on two
small tasks of its own. It needs no torch."""

import json
import math
import os
import pathlib
import sys
import tempfile

home = tempfile.TemporaryDirectory()
os.environ |= {"HF_HOME": home.name, "HF_HUB_OFFLINE": "1"}  # nothing is fetched, and nothing is left behind

import lm_eval  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from lily_server import DEMO, Server  # noqa: E402

CHOICES = """task: lily_choices
dataset_path: json
dataset_kwargs: {data_files: {test: %s}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: "{{choices}}"
doc_to_target: "{{answer}}"
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
"""
GENERATE = """task: lily_generate
dataset_path: json
dataset_kwargs: {data_files: {test: %s}}
test_split: test
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{choices[answer]}}"
generation_kwargs: {until: ["\\n\\n"], max_gen_toks: 24, temperature: 0}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
"""
ITEMS = [("The sun is hot and the ice is", [" cold", " xylophone"], 0), ("Once upon a", [" purple", " time"], 1),
         ("The fox went to the", [" river", " of of of"], 0), ("I am happy to", [" help", " zq"], 0)]

with Server(sys.argv[1], "--ctx", 4096) as server, tempfile.TemporaryDirectory() as folder:
    data = pathlib.Path(folder, "items.jsonl")
    data.write_text("".join(json.dumps({"question": q, "choices": c, "answer": a}) + "\n" for q, c, a in ITEMS))
    pathlib.Path(folder, "choices.yaml").write_text(CHOICES % data)
    pathlib.Path(folder, "generate.yaml").write_text(GENERATE % data)
    tasks = TaskManager(include_path=folder, include_defaults=False)
    scored = lm_eval.simple_evaluate(
        "local-completions", tasks=["lily_choices"], task_manager=tasks, bootstrap_iters=0, log_samples=True,
        model_args=f"model=lily,base_url={server.url}/v1/completions,tokenizer={DEMO},tokenized_requests=True,max_length=2048")
    assert scored["results"]["lily_choices"]["acc,none"] == 1, scored["results"]
    for sample in scored["samples"]["lily_choices"]:
        assert all(math.isfinite(float(r[0])) and float(r[0]) < 0 for r in sample["filtered_resps"])
    said = lm_eval.simple_evaluate(
        "local-chat-completions", tasks=["lily_generate"], task_manager=tasks, bootstrap_iters=0, log_samples=True,
        apply_chat_template=True, model_args=f"model=lily,base_url={server.url}/v1/chat/completions,num_concurrent=2")
    assert all(isinstance(s["filtered_resps"][0], str) for s in said["samples"]["lily_generate"])
print("lm-eval: ok")
