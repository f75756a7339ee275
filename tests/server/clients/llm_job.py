"""llm_job.py LILY: Simon Willison's llm: a prompt, and a conversation that goes on."""

import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from lily_server import Server  # noqa: E402

with Server(sys.argv[1], "--ctx", 4096) as server, tempfile.TemporaryDirectory() as folder:
    pathlib.Path(folder, "extra-openai-models.yaml").write_text(
        f"- model_id: lily\n  model_name: lily\n  api_base: {server.url}/v1\n  api_key_name: none\n")
    run = lambda *arguments: subprocess.run([sys.executable, "-m", "llm", *arguments], env=os.environ | {"LLM_USER_PATH": folder, "OPENAI_API_KEY": "x"},
                                            capture_output=True, text=True, timeout=120)
    first = run("-m", "lily", "-o", "max_tokens", "200", "Why do we need rain?")
    assert first.returncode == 0 and first.stdout.strip(), first.stderr
    second = run("-c", "-o", "max_tokens", "200", "And snow?")
    assert second.returncode == 0 and second.stdout.strip(), second.stderr
    assert server.metrics()["cached_tokens_total"] > 0
print("llm: ok")
