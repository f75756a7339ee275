"""Runs `lily tokenize` and compares it with Hugging Face's tokenizers.

usage: tokenize_command.py LILY TOKENIZER_DIRECTORY        (the binary; models/demo)
"""

import json
import subprocess
import sys
from pathlib import Path

from tokenizers import Tokenizer

TEXTS = ["Hello, world!", "", "two\n\nlines \u00e9e\u0301 \u65e5\u672c", "a<|im_end|>b", "\"quoted\" \\ \x1b[0m", "- --json"]


def main():
    lily, directory = sys.argv[1:]
    tokenizer = Tokenizer.from_file(str(Path(directory) / "tokenizer.json"))
    failures = 0

    def run(*arguments, text=""):
        command = [lily, "tokenize", "--model", directory, *arguments]
        return subprocess.run(command, input=text.encode(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def expect(what, found, expected):
        nonlocal failures
        if found != expected:
            failures += 1
            print(f"{what}: {found!r}, expected {expected!r}")

    for text in TEXTS:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        answer = json.loads(run("--control", "--json", "--", text).stdout)
        expect(f"ids of {text!r}", answer["ids"], ids)
        pieces = [tokenizer.decode([i], skip_special_tokens=False) for i in ids]
        expect(f"pieces of {text!r}", answer["pieces"], pieces)
        expect(f"{text!r} from standard input", json.loads(run("--control", "--json", text=text).stdout), answer)
        lines = run("--control", "--", text).stdout.decode().splitlines()
        expect(f"lines of {text!r}", [int(line.split()[0]) for line in lines], ids)
        decoded = tokenizer.decode(ids, skip_special_tokens=False)
        if ids:
            expect(f"back from {ids}", run("--decode", *map(str, ids)).stdout.decode(), decoded)
        expect(f"back from {ids} in JSON", json.loads(run("--decode", "--json", text=str(ids)).stdout)["text"], decoded)
        ordinary = json.loads(run("--json", "--", text).stdout)["ids"]
        expect("control token from text", tokenizer.token_to_id("<|im_end|>") in ordinary, False)
    for arguments in [["--decode", "8192"], ["--decode", "-1"], ["--decode", "1x"], ["--decode", "99999999999"]]:
        result = run(*arguments[:-1], "--", arguments[-1])
        expect(f"{arguments}: exit status", result.returncode, 1)
        expect(f"{arguments}: says what", b"is not a token id" in result.stderr, True)
    print(f"{failures} differences")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
