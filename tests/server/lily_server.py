"""Starts `lily serve` on the demo model for the tests, on a free loopback port, and ends it by its process id."""

import json
import pathlib
import re
import signal
import socket
import subprocess
import threading
import time

import httpx

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEMO = ROOT / "models" / "demo"


class Server:
    def __init__(self, lily, *options, ready=True):
        self.process = subprocess.Popen(
            [str(lily), "serve", "--port", "0", "--model", str(DEMO), "--threads", "2", *map(str, options)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.log = []
        self._port = threading.Event()
        self._ready = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if not self._port.wait(60) or (ready and not self._ready.wait(60)):
            self.kill()
            raise RuntimeError("the server did not start: " + "".join(self.log))

    def _read(self):
        for line in self.process.stdout:
            self.log.append(line)
            if found := re.search(r"listening on http://.*:(\d+)", line):
                self.port = int(found.group(1))
                self._port.set()
            if "ready" in line:
                self._ready.set()
        self._port.set()
        self._ready.set()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def stop(self, seconds=10):
        """SIGTERM; the seconds until it had ended, which it has to do well and without a sanitizer's report."""
        begin = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(seconds)
        finally:
            self.kill()
        seconds = time.monotonic() - begin
        self._reader.join()
        log = "".join(self.log)
        assert self.process.returncode == 0 and "Sanitizer" not in log, log
        return seconds

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.stop()

    def post(self, path, body, **more):
        return httpx.post(self.url + path, json=body, timeout=120, **more)

    def chat(self, messages, **fields):
        """The body of a chat completion that has to succeed. A text is one user message."""
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        body = {"model": "lily", "messages": messages, "temperature": 0, "max_tokens": 48, "reasoning_effort": "none"}
        answer = self.post("/v1/chat/completions", body | fields)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def stream(self, path, body):
        """The events of a stream, parsed: (event name or None, JSON or "[DONE]"); comments are (":", text)."""
        with httpx.stream("POST", self.url + path, json=body | {"stream": True}, timeout=120) as answer:
            assert answer.status_code == 200, answer.read()
            assert answer.headers["content-type"].startswith("text/event-stream")
            yield from parse_events(answer.iter_lines())

    def metrics(self):
        text = httpx.get(self.url + "/metrics", timeout=30).text
        return {name: float(value) for name, value in re.findall(r"^lily_(\w+) (\S+)$", text, re.M)}

    def peak_mib(self):
        """The most memory that the process has had."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) >> 10

    def wait_for(self, condition, seconds=60):
        """Until condition(metrics) holds; the metrics."""
        end = time.monotonic() + seconds
        while True:
            metrics = self.metrics()
            if condition(metrics):
                return metrics
            assert time.monotonic() < end, metrics
            time.sleep(0.05)

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def raw_post(self, path, body, headers=""):
        """An open socket on which the request was sent."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection = self.connect()
        connection.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{headers}"
                           f"Content-Length: {len(data)}\r\n\r\n".encode() + data)
        return connection

    def exchange(self, data):
        """What comes back for raw bytes, until the server closes or is silent for two seconds."""
        with self.connect() as connection:
            connection.settimeout(2)
            answer = b""
            try:
                connection.sendall(data)
                while part := connection.recv(65536):
                    answer += part
            except (TimeoutError, ConnectionError):
                pass
            return answer


def until_closed(connection, drip=None, seconds=20):
    """What the server says until it closes, while `drip` is sent ten times a second; the seconds that took."""
    begin, answer = time.monotonic(), b""
    connection.settimeout(0.1)
    while time.monotonic() < begin + seconds:
        try:
            if drip:
                connection.sendall(drip)
            if part := connection.recv(65536):
                answer += part
            else:
                break
        except TimeoutError:
            pass
        except ConnectionError:
            break
    return answer, time.monotonic() - begin


def parse_events(lines):
    name = None
    for line in lines:
        if line.startswith(":"):
            yield ":", line[1:].strip()
        elif line.startswith("event: "):
            name = line[7:]
        elif line.startswith("data: "):
            data = line[6:]
            yield name, data if data == "[DONE]" else json.loads(data)
            name = None
        else:
            assert line == "", line


def weather_tool(name="get_weather", parameters=None):
    schema = {"type": "object", "properties": parameters or {"city": {"type": "string"}}, "required": ["city"]}
    return {"type": "function", "function": {"name": name, "description": "The weather in a city.", "parameters": schema}}


# Enough text to be worth reusing, and long enough for a prefill in several chunks.
def long_text(words=600, seed=0):
    names = ["fox", "river", "stone", "apple", "night", "garden", "music", "winter", "bridge", "letter"]
    return " ".join(f"The {names[(i * 7 + seed) % 10]} number {i + seed} is here." for i in range(words // 6))
