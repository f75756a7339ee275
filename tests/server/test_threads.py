"""Everything at once on one server, then a shutdown in the middle of it. Small enough for a server under ThreadSanitizer, whose
reports fail the test (Server.stop)."""

import concurrent.futures
import threading
import time

import httpx

from lily_server import Server, long_text, parse_events, weather_tool

SYSTEM = {"role": "system", "content": long_text(60)}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": {
    "type": "object", "properties": {"sure": {"type": "boolean"}, "n": {"enum": [1, 2]}}, "required": ["sure", "n"],
    "additionalProperties": False}}}
OPTIONS = ("--ctx", 2048, "--parallel", 3, "--queue", 32, "--keep-alive-seconds", 1, "--client-timeout-seconds", 60)


def chat(server, question, **fields):
    return server.chat([SYSTEM, {"role": "user", "content": question}], **{"max_tokens": 6} | fields)["choices"][0]["message"]


def streamed(server, path, body):
    return [event for event in server.stream(path, body) if event[0] != ":"]


def text_of(events):
    return "".join(e["choices"][0]["delta"].get("content") or "" for _, e in events if e != "[DONE]" and e["choices"])


JOBS = {
    "whole": lambda s: chat(s, "One?")["content"],
    "drawn": lambda s: chat(s, "Two?", temperature=1, seed=7, logprobs=True, top_logprobs=2)["content"],
    "schema": lambda s: chat(s, "Three?", response_format=SCHEMA, max_tokens=40)["content"],
    "tool": lambda s: chat(s, "Weather?", tools=[weather_tool()], tool_choice="required", max_tokens=24).get("content"),
    "stream": lambda s: text_of(streamed(s, "/v1/chat/completions", {
        "messages": [SYSTEM, {"role": "user", "content": "Four?"}], "max_tokens": 6, "temperature": 0})),
    "text": lambda s: s.post("/v1/completions", {"prompt": "Once upon a", "max_tokens": 6, "temperature": 0}).json()["choices"],
    "responses": lambda s: len(streamed(s, "/v1/responses", {"input": "Five?", "max_output_tokens": 6, "temperature": 0})),
    "messages": lambda s: s.post("/v1/messages", {"messages": [{"role": "user", "content": "Six?"}], "max_tokens": 6,
                                                  "temperature": 0}).json()["content"],
}


class Watcher:
    """Asks all the time for what changes under a running engine."""

    def __init__(self, server):
        self.server, self.ended, self.rounds = server, threading.Event(), 0
        self.thread = threading.Thread(target=self._run)

    def _run(self):
        with httpx.Client(timeout=60) as client:
            while not self.ended.wait(0.05):
                for path in ("/metrics", "/health", "/v1/models"):
                    assert client.get(self.server.url + path).status_code == 200
                assert client.post(self.server.url + "/tokenize", json={"content": "a b"}).status_code == 200
                self.rounds += 1

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()


def leave_midway(server, events):
    """A stream that is left after so many of its events; 0: after its headers were sent, perhaps in the queue."""
    body = {"messages": [SYSTEM, {"role": "user", "content": f"Leave {events}?"}], "ignore_eos": True, "max_tokens": 500, "stream": True}
    with httpx.stream("POST", server.url + "/v1/chat/completions", json=body, timeout=120) as answer:
        lines = parse_events(answer.iter_lines())
        for _ in range(events):
            next(lines)


def test_everything_at_once(lily, tmp_path):
    options = (*OPTIONS, "--cache-dir", tmp_path)
    with Server(lily, *options) as server, concurrent.futures.ThreadPoolExecutor(12) as pool:
        with Watcher(server) as watcher:
            first = {name: pool.submit(job, server) for name, job in JOBS.items()}
            left = [pool.submit(leave_midway, server, events) for events in (0, 1, 2, 3)]
            first = {name: job.result() for name, job in first.items()}
            for one in left:
                one.result()
            again = {name: pool.submit(job, server) for name, job in JOBS.items()}
            assert {name: job.result() for name, job in again.items()} == first
            storm = [pool.submit(leave_midway, server, i % 3) for i in range(24)]
            assert chat(server, "One?")["content"] == first["whole"]
            for one in storm:
                one.result()
        assert watcher.rounds > 0
        metrics = server.wait_for(lambda m: m["requests_running"] + m["requests_waiting"] == 0)
        assert metrics["requests_cancelled_total"] == 28 and metrics["requests_failed_total"] == 0
        assert metrics["cached_tokens_total"] > 0
        server.wait_for(lambda m: m["prefix_cache_disk_bytes"] > 0)
    with Server(lily, *options) as server:  # from disk, and then an end with requests in every state
        for _ in range(2):  # a slow disk may not have been given the first one
            assert chat(server, "One?")["content"] == first["whole"]
        assert server.metrics()["cached_tokens_total"] > 0
        body = {"messages": [{"role": "user", "content": "Hi"}], "ignore_eos": True, "max_tokens": 1500}
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            open_ones = [pool.submit(server.raw_post, "/v1/chat/completions", body | {"stream": i % 2 == 0}) for i in range(5)]
            server.wait_for(lambda m: m["requests_running"] == 3 and m["requests_waiting"] == 2)
            polled = [pool.submit(httpx.get, server.url + "/metrics", timeout=30) for _ in range(3)]
            begin = time.monotonic()
            server.stop(60)
            assert time.monotonic() - begin < 30
            for one in open_ones:
                one.result().close()
            concurrent.futures.wait(polled)
