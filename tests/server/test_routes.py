"""Routes and access: fields, paths, models, metrics, the queue, hosts, origins, keys, and starts that fail."""

import json
import re
import subprocess

import httpx
import pytest

from lily_server import Server, until_closed, weather_tool

CHAT = "/v1/chat/completions"
USER = [{"role": "user", "content": "Hi"}]


def nested(levels):
    return b'{"messages":[{"role":"user","content":"Hi"}],"metadata":' + b"[" * levels + b"]" * levels + b"}"


BAD_FIELDS = [
    ({"messages": None}, "messages"), ({"messages": "Hi"}, "messages"), ({"messages": []}, "messages"),
    ({"messages": [3]}, "messages"), ({"messages": [{"role": "robot", "content": "x"}]}, "messages"),
    ({"messages": [{"content": "x"}]}, "messages"), ({"messages": [{"role": "user", "content": 5}]}, "messages"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:x"}}]}]}, None),
    ({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "messages"),
    ({"messages": [{"role": "assistant", "content": "", "tool_calls": 3}]}, "messages"),
    ({"n": 2}, "n"), ({"n": 0}, "n"), ({"temperature": "hot"}, "temperature"), ({"temperature": -1}, "temperature"),
    ({"top_p": 2}, "top_p"), ({"top_k": 1.5}, "top_k"), ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": -5}, "max_tokens"), ({"max_tokens": 1e30}, "max_tokens"), ({"max_tokens": "many"}, "max_tokens"),
    ({"max_completion_tokens": True}, "max_completion_tokens"), ({"seed": "x"}, "seed"),
    ({"seed": 18446744073709551616}, "seed"), ({"seed": 9223372036854775808}, "seed"), ({"stream": "yes"}, "stream"),
    ({"stop": 5}, "stop"), ({"stop": ["a", 5]}, "stop"), ({"stop": ["x"] * 100}, "stop"), ({"logprobs": 3}, "logprobs"),
    ({"top_logprobs": 3}, "top_logprobs"), ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"stream_options": {"include_usage": True}}, "stream_options"), ({"tools": 3}, "tools"), ({"tools": [3]}, "tools"),
    ({"tools": [{"type": "web_search"}]}, "tools"), ({"tool_choice": "required"}, "tool_choice"),
    ({"tool_choice": "sometimes"}, "tool_choice"), ({"tool_choice": {"type": "function"}}, "tool_choice"),
    ({"tool_choice": {"type": "function", "function": {"name": "f"}}, "tools": [weather_tool()]}, "tool_choice"),
    ({"response_format": "json"}, "response_format"), ({"response_format": {"type": "yaml"}}, "response_format.type"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
    ({"logit_bias": {"x": 1}}, "logit_bias"), ({"logit_bias": {"1": "x"}}, "logit_bias"),
    ({"reasoning_effort": "enormous"}, "reasoning_effort"), ({"functions": []}, "functions"),
    ({"tools": [weather_tool("a>\n")]}, "tools"), ({"tools": [weather_tool("a b")]}, "tools"),
    ({"modalities": ["audio"]}, "modalities"), ({"audio": {}}, "audio"), ({"model": 7}, "model"),
    ({"chat_template_kwargs": {"enable_thinking": "no"}}, "chat_template_kwargs.enable_thinking"),
]


@pytest.mark.parametrize("fields,param", BAD_FIELDS, ids=lambda v: json.dumps(v)[:50])
def test_bad_fields_are_named(server, fields, param):
    answer = server.post(CHAT, {"messages": USER, "max_tokens": 1} | fields)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error" and error["message"] and set(error) == {"message", "type", "param", "code"}
    if param:
        assert error["param"] == param


@pytest.mark.parametrize("body", [b"", b"{", b"null", b"[]", b'"x"', b"{\"messages\":[{\"role\":\"user\",\"content\":\"\xff\"}]}",
                                  b'{"messages":"\\ud800"}', b"\xef\xbb\xbf{}", b"{}garbage", nested(200), nested(100000),
                                  b'{"a":' * 50000, b'{"temperature":1e999,"messages":[]}'])
def test_bad_bodies(server, body):
    for path in (CHAT, "/v1/completions", "/v1/messages", "/v1/responses", "/tokenize"):
        answer = httpx.post(server.url + path, content=body, timeout=60)
        assert answer.status_code == 400, (path, answer.text)
        assert answer.json()["error"]["message"]


def test_unknown_fields_are_ignored(server):
    server.chat("Hi", max_tokens=1, metadata={"a": [1]}, user="me", store=False, service_tier="auto", whatever=None)


def test_too_long_prompts(server):
    words = "river stone " * 4000
    for path, body in ((CHAT, {"messages": [{"role": "user", "content": words}]}),
                       ("/v1/completions", {"prompt": words})):
        answer = server.post(path, body)
        error = answer.json()["error"]
        assert answer.status_code == 400 and error["code"] == "context_length_exceeded", answer.text
        assert error["param"] in ("messages", "prompt") and "4096" in error["message"]
    answer = server.post("/v1/messages", {"messages": [{"role": "user", "content": words}], "max_tokens": 4})
    assert answer.status_code == 400 and "prompt is too long" in answer.json()["error"]["message"]


def test_errors_quote_no_megabytes(server):
    for body in ({"model": "x" * 1000000, "messages": USER}, {"messages": [{"role": "\u00e4" * 1000000, "content": "x"}]}):
        answer = server.post(CHAT, body)
        assert answer.status_code in (400, 404) and len(answer.content) < 4000


def test_zeros_do_not_cut_messages(server):
    assert "'a\\0b' here" in httpx.get(server.url + "/v1/models/a%00b").json()["error"]["message"]
    user = {"role": "user", "content": "x"}
    def asked(schema):
        return {"messages": [user], "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}}
    for body, said in (({"messages": [{"role": "a\0b", "content": "x"}]}, "'a\\0b', expected"),
                       ({"messages": [{"role": "user", "content": [{"type": "a\0b"}]}]}, "'a\\0b' without"),
                       (asked({"type": "object", "properties": {"a\0b": {"not": {}}}}), "/a\\0b/not is")):
        assert said in server.post(CHAT, body).json()["error"]["message"], server.post(CHAT, body).text
    assert "/a\\0b is not served here" in httpx.get(server.url + "/a%00b").json()["error"]["message"]


def test_unknown_model_path_and_method(server):
    error = server.post(CHAT, {"model": "gpt-9", "messages": USER})
    assert error.status_code == 404 and error.json()["error"]["code"] == "model_not_found"
    assert httpx.get(server.url + "/v1/models/gpt-9").status_code == 404
    assert httpx.get(server.url + "/v1/nothing").json()["error"]["type"] == "invalid_request_error"
    wrong = httpx.get(server.url + CHAT)
    assert wrong.status_code == 405 and wrong.headers["allow"] == "POST"
    for path in ("/../../etc/passwd", "/..%2f..%2fetc/passwd", "/%00", "//etc/passwd"):
        assert server.exchange(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()).split()[1] in (
            b"404", b"400")


def test_what_is_not_served_is_refused_at_once(server):
    for begin, lines, status, closes in (
            ("PUT /health", "", b"405", False), ("PATCH /health", "", b"405", False), ("DELETE /health", "", b"405", False),
            ("PUT /tokenize", "", b"405", False), ("PUT /nope", "", b"404", False), ("PRI *", "", b"404", False),
            ("POST /health", "", b"405", True), ("POST /nope", "", b"404", True), ("POST /tokenize", "", b"411", True),
            ("POST /nope", "Content-Length: 0\r\n", b"404", False), ("POST /nope", "Content-Length: 300000000\r\n", b"404", True),
            ("PUT /tokenize", "Content-Length: 9\r\nExpect: 100-continue\r\n", b"405", True)):
        with server.connect() as connection:
            connection.settimeout(5)
            connection.sendall(f"{begin} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n".encode())
            answer = b""
            while not answer.endswith(b"}}"):
                answer += connection.recv(65536)
            head = answer.split(b"\r\n\r\n")[0]
            assert head.split()[1] == status and (b"Allow: " in head) == (status == b"405"), (begin, lines, answer)
            assert (b"Connection: close" in head) == closes, (begin, lines, answer)
            if closes:
                assert until_closed(connection)[1] < 5, (begin, lines)
            else:
                connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert connection.recv(65536).startswith(b"HTTP/1.1 200 OK"), (begin, lines)


def test_other_names_are_served_everywhere(lily):
    with Server(lily, "--name", "mine", "--alias", "gpt-4o") as server:
        for name, status in (("mine", 200), ("gpt-4o", 200), ("lily", 404)):
            assert httpx.get(f"{server.url}/v1/models/{name}").status_code == status
            assert server.post(CHAT, {"model": name, "messages": USER, "max_tokens": 1}).status_code == status


def test_models_and_health(server):
    models = httpx.get(server.url + "/v1/models").json()
    assert [m["id"] for m in models["data"]] == ["lily"] and models["data"][0]["context_length"] == 4096
    assert httpx.get(server.url + "/v1/models/lily").json()["object"] == "model"
    assert httpx.get(server.url + "/health").json() == {"status": "ok"}


def test_not_ready_while_loading(lily):
    server = Server(lily, ready=False)
    try:
        statuses = set()
        while not server._ready.is_set():
            statuses.add(httpx.get(server.url + "/health", timeout=30).status_code)
        assert statuses <= {200, 503}
    finally:
        server.stop()


def test_metrics_move_while_a_reply_is_made(server):
    before = server.metrics()
    connection = server.raw_post(CHAT, {"messages": USER, "ignore_eos": True, "max_tokens": 4000, "stream": True})
    first = server.wait_for(lambda m: m["generated_tokens_total"] > before["generated_tokens_total"])
    second = server.wait_for(lambda m: m["generated_tokens_total"] > first["generated_tokens_total"])
    connection.close()
    assert second["requests_total"] == before["requests_total"]  # it was still at it
    assert second["decode_seconds_total"] > before["decode_seconds_total"]
    assert second["prompt_tokens_total"] > before["prompt_tokens_total"]
    server.wait_for(lambda m: m["requests_running"] == 0)


def test_a_full_queue_says_when_to_come_back(lily):
    with Server(lily, "--parallel", 1, "--queue", 1) as server:
        long = {"messages": USER, "ignore_eos": True, "max_tokens": 20000, "stream": True}
        running = [server.raw_post(CHAT, long)]
        server.wait_for(lambda m: m["requests_running"] == 1)
        running.append(server.raw_post(CHAT, long))
        server.wait_for(lambda m: m["requests_waiting"] == 1)
        answer = server.post(CHAT, {"messages": USER})
        assert answer.status_code == 503 and int(answer.headers["retry-after"]) >= 1
        assert answer.json()["error"]["code"] == "overloaded"
        answer = server.post("/v1/messages", {"messages": USER, "max_tokens": 1})
        assert answer.status_code == 503 and answer.json()["error"]["type"] == "overloaded_error"
        for connection in running:
            connection.close()
        server.wait_for(lambda m: m["requests_running"] + m["requests_waiting"] == 0)
        assert server.chat("Hi", max_tokens=1)


def test_header_values_are_not_decoded(lily):
    with Server(lily, "--api-key", "a%41+b", "--cors-origin", "*") as server:
        def ask(key, host="localhost", method="GET", more=""):
            return server.exchange(f"{method} /v1/models HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\n{more}"
                                   "Connection: close\r\n\r\n".encode())
        assert b"200 OK" in ask("a%41+b") and b" 401 " in ask("aA+b") and b" 401 " in ask("a%2541+b")
        assert b"200 OK" in ask("a%41+b", "LOCALHOST") and b" 403 " in ask("a%41+b", "local%68ost")
        echoed = ask("", method="OPTIONS", more="Access-Control-Request-Headers: a%0d%0aX: y\r\nOrigin: http://a%41\r\n")
        assert b"Access-Control-Allow-Headers: a%0d%0aX: y\r\n" in echoed
        assert b"Access-Control-Allow-Origin: http://a%41\r\n" in echoed


def test_targets_may_name_the_host(server):
    def ask(target, host="localhost"):
        return server.exchange(f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    here = f"http://127.0.0.1:{server.port}"
    assert b'"id":"lily"' in ask(here + "/v1/models") and b"200 OK" in ask(here) and b"200 OK" in ask("HTTP://localhost/health")
    assert b"200 OK" in ask(here + "/health", "evil.example")  # the target's host is the one that counts
    assert b" 403 " in ask("http://evil.example/health") and b" 400 " in ask("http://me@127.0.0.1/health")
    for target in ("http://[::1/", "http://[::1]x/", "http://a:b/", "http://[evil]/"):
        assert b" 400 " in ask(target), target
    without = server.exchange(f"GET {here}/health HTTP/1.1\r\nConnection: close\r\n\r\n".encode())
    assert b"200 OK" in without, without
    assert b" 403 " in server.exchange(b"GET http://evil.example/health HTTP/1.1\r\nConnection: close\r\n\r\n")
    assert b" 403 " in ask("/health", "[::1") and b" 403 " in ask("/health", "127.0.0.1:evil.example")
    assert b" 404 " in ask(here + "/nothing") and b" 400 " in ask("http:///health")


def test_hosts_and_origins(server):
    def status(**headers):
        names = {"Host": f"127.0.0.1:{server.port}"} | {k.replace("_", "-"): v for k, v in headers.items()}
        return httpx.get(server.url + "/v1/models", headers=names).status_code
    assert status() == 200 and status(Host="localhost:1") == 200 and status(Host="[::1]:8080") == 200
    assert status(Host="evil.example") == 403 and status(Host="127.0.0.1.evil.example") == 403 and status(Host="") == 403
    assert status(Origin="http://evil.example") == 403 and status(Origin="null") == 403
    assert status(Origin=f"http://127.0.0.1:{server.port}") == 200
    assert "access-control-allow-origin" not in httpx.get(server.url + "/health").headers


def test_what_is_no_host_gets_no_advice_to_allow_it(lily):
    with Server(lily, "--allow-host", "*") as server:
        ask = lambda host: httpx.get(server.url + "/health", headers={"Host": host})
        assert ask("any.example").status_code == 200
        for host in ("", "[::1", "a:b", "a b"):
            answer = ask(host)
            message = answer.json()["error"]["message"]
            assert answer.status_code == 403 and f"'{host}' is not the name" in message and "--allow-host" not in message, message


def test_any_origin_is_named_and_none_is_not(lily):
    with Server(lily, "--cors-origin", "*") as server:
        for path in ("/", "/health", "/v1/models"):
            for origin in ("http://app.example", "null"):
                assert httpx.get(server.url + path, headers={"Origin": origin}).headers["access-control-allow-origin"] == origin
            for headers in ({}, {"Origin": ""}):
                answer = httpx.get(server.url + path, headers=headers)
                assert answer.status_code == 200 and "access-control-allow-origin" not in answer.headers, answer.headers
                assert answer.headers["vary"] == "Origin"  # so that no cache gives it to a page


def test_api_key_and_cors(lily):
    with Server(lily, "--api-key", "right", "--api-key", "other", "--cors-origin", "http://app.example", "--allow-host",
                "box.example") as server:
        ask = lambda **headers: httpx.get(server.url + "/v1/models", headers={k.replace("_", "-"): v for k, v in headers.items()})
        assert ask().status_code == 401 and ask(Authorization="Bearer wrong").status_code == 401
        assert ask(Authorization="Bearer righ").status_code == 401 and ask(Authorization="right").status_code == 401
        assert ask().json()["error"]["code"] == "invalid_api_key"
        assert ask(Authorization="Bearer right").status_code == 200 and ask(X_Api_Key="other").status_code == 200
        assert ask(Host="box.example", X_Api_Key="other").status_code == 200
        assert httpx.get(server.url + "/health").status_code == 200
        with httpx.Client() as one:  # a refused request must not spoil its connection
            assert one.post(server.url + CHAT, json={"messages": USER}).status_code == 401
            assert one.post(server.url + CHAT, json={"messages": USER, "max_tokens": 1},
                            headers={"Authorization": "Bearer right"}).status_code == 200
        preflight = httpx.options(server.url + CHAT, headers={
            "Origin": "http://app.example", "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,content-type,x-stainless-os"})
        assert preflight.status_code == 204
        assert preflight.headers["access-control-allow-origin"] == "http://app.example"
        assert "x-stainless-os" in preflight.headers["access-control-allow-headers"]
        answer = ask(Authorization="Bearer right", Origin="http://app.example")
        assert answer.headers["access-control-allow-origin"] == "http://app.example"
        assert httpx.options(server.url + CHAT, headers={"Origin": "http://evil.example"}).status_code == 403
        assert ask().headers["vary"] == "Origin" and "access-control-allow-origin" not in ask().headers
        assert "right" not in "".join(server.log)


def test_an_empty_key_is_an_error(lily, tmp_path):
    for options in (["--api-key", ""], ["--api-key-file", str(tmp_path / "keys")]):
        (tmp_path / "keys").write_text("# none yet\n  \n")
        ended = subprocess.run([lily, "serve", "--port", "0", *options], capture_output=True, text=True, timeout=60)
        assert ended.returncode == 1 and "API key" in ended.stderr, ended


def test_a_taken_port_is_an_error_that_helps(server, lily):
    ended = subprocess.run([lily, "serve", "--port", str(server.port)], capture_output=True, text=True, timeout=60)
    assert ended.returncode != 0 and "--port" in ended.stderr + ended.stdout


WRONG_STARTS = [(("--threads", "1000000"), "threads are more than"), (("--threads", "-1"), "number of threads"),
                (("--threads", "9999999999"), "number of threads"), (("--model", "/nowhere"), "/nowhere"),
                (("--ctx", "32769"), "--ctx 32768"), (("--cache-gib", "nan"), "--cache-gib"), (("--cache-disk-gib", "inf"), "--cache-disk-gib")]


@pytest.mark.parametrize("options,said", WRONG_STARTS)
def test_wrong_starts_end_before_anybody_can_come(lily, options, said):
    ended = subprocess.run([lily, "serve", "--port", "0", *options], capture_output=True, text=True, timeout=60)
    assert ended.returncode > 0 and said in ended.stderr and "listening" not in ended.stdout, ended


def test_a_seed_beyond_64_bits_is_an_error(lily):
    for command in (["run", "Hi"], ["synth", "--layers", "4", "/nowhere/model"]):
        ended = subprocess.run([lily, *command, "--seed", "18446744073709551616"], capture_output=True, text=True, timeout=60)
        assert ended.returncode > 0 and "64 bits" in ended.stderr, ended


def test_more_threads_than_cores_are_an_error_or_work(lily):
    def run(threads):
        return subprocess.run([lily, "run", "Hi", "--max-tokens", "4", "--threads", threads], capture_output=True, text=True, timeout=60)
    refused = run("1000000")
    most, cores = re.search(r"more than (\d+), 8 for each of the (\d+) cores .* give 0", refused.stderr).groups()
    assert refused.returncode > 0 and int(most) == 8 * int(cores), refused
    assert run(most).returncode == 0 and run("0").returncode == 0
    assert run(str(int(most) + 1)).stderr.count("threads are more than " + most) == 1
