#!/usr/bin/env python3
"""server_load.py LILY [--model DIR]: load on a server of its own, on loopback, and what it takes.

Runs against the demo model: many streams at the same time; many short requests through fewer connections, twice; streams
of which a third is left midway and a third is read slowly. Prints, for each, requests, errors, seconds, time to the first
token and to the end (p50 and p99), tokens per second, and the server's resident memory before and after. At the end no
request may be left and no descriptor more be open than at the beginning. Standard library only. Exits 1 if one failed.
"""

import argparse
import http.client
import json
import os
import re
import subprocess
import sys
import threading
import time

QUESTIONS = ["Who are you?", "Why do we need rain?", "What is a computer?", "Is honey healthy?", "I feel nervous today."]


class Server:
    def __init__(self, lily, options):
        self.process = subprocess.Popen([lily, "serve", "--port", "0", *options], stdout=subprocess.PIPE, text=True)
        for line in self.process.stdout:
            if found := re.search(r"listening on http://.*:(\d+)", line):
                self.port = int(found.group(1))
            if "ready" in line:
                break
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def metrics(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", "/metrics", headers={"Connection": "close"})
        text = connection.getresponse().read().decode()
        connection.close()
        return {name: float(value) for name, value in re.findall(r"^lily_(\w+) (\S+)$", text, re.M)}

    def descriptors(self):
        folder = f"/proc/{self.process.pid}/fd"
        return len(os.listdir(folder)) if os.path.isdir(folder) else 0

    def resident_mib(self):
        out = subprocess.run(["ps", "-o", "rss=", "-p", str(self.process.pid)], capture_output=True, text=True).stdout
        return int(out) / 1024

    def stop(self):
        self.process.terminate()
        self.process.wait(20)


def ask(connection, number, tokens, manner="read"):
    """One streamed reply: (seconds to the first token, seconds, tokens); nothing for one that was left midway."""
    body = {"messages": [{"role": "user", "content": f"{QUESTIONS[number % len(QUESTIONS)]} ({number})"}],
            "max_tokens": tokens, "ignore_eos": True, "stream": True, "stream_options": {"include_usage": True},
            "reasoning_effort": "none"}
    begin = time.monotonic()
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    if answer.status != 200:
        raise RuntimeError(f"status {answer.status}: {answer.read()[:200]}")
    first, count, done = None, 0, False
    while line := answer.readline():
        if line.startswith(b"data: [DONE]"):
            done = True
        elif line.startswith(b"data: "):
            chunk = json.loads(line[6:])
            if "error" in chunk:
                raise RuntimeError(chunk["error"]["message"])
            if chunk["choices"] and chunk["choices"][0]["delta"].get("content") and first is None:
                first = time.monotonic() - begin
                if manner == "leave":
                    return None
            if manner == "slow":
                time.sleep(0.02)
            if chunk.get("usage"):
                count = chunk["usage"]["completion_tokens"]
    if not done or count != tokens:
        raise RuntimeError(f"the stream ended after {count} tokens")
    return first or 0.0, time.monotonic() - begin, count


def percentile(values, percent):
    return sorted(values)[min(len(values) - 1, int(len(values) * percent / 100))]


def load(server, requests, clients, tokens, manners=("read",)):
    results, errors, numbers, lock = [], [], iter(range(requests)), threading.Lock()

    def client():
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return connection.close()
            try:
                if (result := ask(connection, number, tokens, manners[number % len(manners)])) is not None:
                    results.append(result)
                else:
                    connection.close()
            except Exception as error:  # every kind counts
                errors.append(f"{type(error).__name__}: {error}")
                connection.close()

    before, begin = server.resident_mib(), time.monotonic()
    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - begin
    first, whole = [r[0] for r in results] or [0], [r[1] for r in results] or [0]
    print(f"| {requests}{' mixed' if len(manners) > 1 else ''} | {clients} | {tokens} | {len(errors)} | {seconds:.1f} | {percentile(first, 50):.2f} / "
          f"{percentile(first, 99):.2f} | {percentile(whole, 50):.2f} / {percentile(whole, 99):.2f} | "
          f"{sum(r[2] for r in results) / seconds:.0f} | {before:.0f} -> {server.resident_mib():.0f} |", flush=True)
    for error in sorted(set(errors))[:5]:
        print("error:", error, file=sys.stderr)
    return len(errors)


def leftovers(server, descriptors):
    """What is left when every client is gone; connections may take a moment to be noticed."""
    for _ in range(100):
        metrics, more = server.metrics(), server.descriptors() - descriptors
        left = metrics["requests_running"] + metrics["requests_waiting"]
        if left == 0 and more <= 0:
            break
        time.sleep(0.2)
    print(f"cancelled: {metrics['requests_cancelled_total']:.0f}, failed: {metrics['requests_failed_total']:.0f}, left: "
          f"{left:.0f} requests and {more} descriptors")
    return left + metrics["requests_failed_total"] + max(more, 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("lily")
    parser.add_argument("--model", default="demo")
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--parallel", default="16")
    options = parser.parse_args()
    server = Server(options.lily, ["--model", options.model, "--ctx", "2048", "--parallel", options.parallel, "--queue", "512",
                                   "--cache-gib", "0.5"])
    print(f"load of the machine (1 min): {os.getloadavg()[0]:.1f}, cores: {os.cpu_count()}")
    print("| requests | at a time | tokens each | errors | s | first token p50 / p99, s | end p50 / p99, s | tokens/s | RSS, MiB |")
    print("|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    try:
        descriptors = server.descriptors()
        failed = load(server, options.streams, options.streams, 32)
        failed += load(server, options.requests, 32, 4)
        failed += load(server, options.requests, 32, 4)  # does memory still grow?
        failed += load(server, options.streams, options.streams, 128, ("read", "leave", "slow"))
        failed += leftovers(server, descriptors)
    finally:
        server.stop()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
