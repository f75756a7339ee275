"""What `lily bench` prints and writes for programs, and what it refuses.

usage: bench_output.py LILY MODEL
"""

import csv
import json
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

LILY, MODEL = sys.argv[1], sys.argv[2]


def bench(*options):
    return subprocess.run([LILY, "bench", "--model", MODEL, "--device", "cpu", *map(str, options)], capture_output=True,
                          text=True, timeout=240)


SHORT = ("-p", "16,48", "-n", "4", "-r", "1")


class Bench(unittest.TestCase):
    def test_the_profile_is_in_the_json(self):
        ended = bench(*SHORT, "--profile", "--json")
        self.assertEqual(ended.returncode, 0, ended.stderr)
        results = json.loads(ended.stdout)["results"]
        self.assertEqual([result["length"] for result in results], [16, 48])
        for result in results:
            profile = result["profile"]
            ops = {op["op"]: op for op in profile["ops"]}
            self.assertEqual(len(ops), len(profile["ops"]))
            self.assertGreaterEqual(len(ops), 7)
            self.assertAlmostEqual(sum(op["ms"] for op in ops.values()) + profile["other_ms"], profile["wall_ms"], 6)
            for op in ops.values():
                self.assertEqual(set(op), {"op", "ms", "calls", "bytes", "operations"})
                self.assertGreater(op["ms"], 0)
                self.assertGreaterEqual(op["calls"], 4)
            self.assertEqual(ops["lm_head"]["calls"], 4)
            self.assertGreater(ops["experts down"]["operations"], 1e6)
            self.assertGreater(ops["lm_head"]["bytes"], 1e6)
        work = [sum(op["operations"] for op in result["profile"]["ops"]) for result in results]
        self.assertGreater(work[1], 1.5 * work[0])  # each length has its own

    def test_the_profile_is_a_table_without_json(self):
        ended = bench(*SHORT, "--profile")
        self.assertEqual(ended.returncode, 0, ended.stderr)
        for length in (16, 48):
            self.assertIn(f"prompt of {length} and 4 tokens of reply, by op:\n", ended.stdout)
        self.assertEqual(ended.stdout.count("\nwall "), 2)
        self.assertNotIn("profile", bench(*SHORT, "--json").stdout)

    def test_counted_launches_are_written_too(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "trace.csv"
            ended = bench("--trace", "--json", "--csv", file)
            self.assertEqual(ended.returncode, 0, ended.stderr)
            lines = list(csv.DictReader(file.read_text().splitlines()))
            counted = json.loads(ended.stdout)
            self.assertEqual(len(lines), 2 * len(counted["paths"]))
            for path in counted["paths"]:
                token, chunk = (line for line in lines if line["path"] == path["path"])
                self.assertEqual((token["of"], token["tokens"], chunk["of"], chunk["tokens"]),
                                 ("token", "1", "chunk", str(counted["tokens_per_chunk"])))
                for line in (token, chunk):
                    for column, field in (("launches", "dispatches"), ("stages", "stages"), ("weight_bytes", "weight_bytes")):
                        self.assertEqual(int(line[column]), path[f"{field}_per_{line['of']}"])

    def test_what_measures_does_not_go_with_what_counts(self):
        for option in (["--plot", "charts"], ["--against", "true"], ["--profile"], ["--machine"]):
            ended = bench("--trace", *option)
            self.assertEqual(ended.returncode, 1, ended)
            self.assertIn(f"{option[0]} measures, and --trace without a GPU only counts", ended.stderr)
            self.assertFalse(Path("charts").exists())

    def test_more_tokens_than_the_model_has_positions_are_refused(self):
        result = bench("-p", 40000, "-n", 4)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("more than the model's 32768 positions", result.stderr)

    def test_an_empty_instruction_set_is_the_best_one(self):
        for target, status in (("", 0), ("none", 2)):
            ended = bench("-p", "16", "-n", "2", "-r", "1", "--cpu-target", target)
            self.assertEqual(ended.returncode, status, ended.stderr)
        self.assertIn("--cpu-target", ended.stderr)

    def test_another_engine_that_hangs_is_ended(self):
        begin = time.monotonic()
        ended = bench(*SHORT, "--against", "sleep 200 | cat", "--against-limit", 1)
        self.assertEqual(ended.returncode, 1, ended)
        self.assertIn("was still running after 1 s", ended.stderr)
        self.assertIn("--against-limit", ended.stderr)
        self.assertLess(time.monotonic() - begin, 100)
        ended = bench(*SHORT, "--against-limit", 1)
        self.assertIn("--against", ended.stderr)
        self.assertNotEqual(ended.returncode, 0)

    def test_another_engine_has_its_time(self):
        peer = "sleep 1; echo '\"n_gen\": 0, \"avg_ts\": {length}'"
        ended = bench("-p", "16", "-n", "4", "-r", "1", "--against", peer, "--against-limit", 0, "--json")
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertEqual(json.loads(ended.stdout)["results"][0]["peer_prefill_tokens_per_second"]["median"], 16)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
