"""Connections and what comes over them: framing, bodies and their encodings, limits, clients that wait or leave, shutdown."""

import gzip
import http.client
import json
import socket
import struct
import threading
import time
import zlib

import httpx
import pytest

from lily_server import Server, long_text, parse_events, until_closed

CHAT = "/v1/chat/completions"
USER = [{"role": "user", "content": "Hi"}]


def test_bodies_have_a_limit_however_they_come(server):
    big = b'{"messages":"' + b"x" * (33 << 20) + b'"}'
    assert httpx.post(server.url + CHAT, content=big, timeout=60).status_code == 413
    chunked = httpx.post(server.url + CHAT, content=(big[i:i + 65536] for i in range(0, len(big), 65536)), timeout=60)
    assert chunked.status_code == 413, chunked.text
    bomb = gzip.compress(b'{"messages":"' + b" " * (100 << 20) + b'"}')
    answer = httpx.post(server.url + CHAT, content=bomb, headers={"Content-Encoding": "gzip"}, timeout=60)
    assert answer.status_code in (413, 415, 400), answer.text
    form = httpx.post(server.url + CHAT, files={"x": b"y"}, timeout=60)
    assert form.status_code == 415, form.text
    # What curl -d sends without a content type is JSON all the same, however long.
    long = json.dumps({"messages": [{"role": "user", "content": "a " * 300}], "max_tokens": 1, "metadata": "x" * 20000})
    answer = httpx.post(server.url + CHAT, content=long, timeout=60,
                        headers={"Content-Type": "application/x-www-form-urlencoded"})
    assert answer.status_code == 200, answer.text


BROTLI = b'\x8b\x07\x80{"content": "a"}\x03'  # {"content": "a"}, stored


def test_bodies_that_are_not_encoded_as_they_say_are_named(server):
    body = json.dumps({"content": "a"}).encode()
    for encoding, content, status, said in (
            ("odd", body, 415, "'odd'"), ("GZIP, br", body, 415, "'GZIP, br'"), ("gzip", body, 400, "'gzip'"),
            ("br", b"\xff" * 64, 400, "'br'"), ("gzip", gzip.compress(body) + b"more", 400, "'gzip'"),
            ("deflate", b"", 400, "'deflate'"), ("GZip", b"", 400, "'GZip'"),
            ("x-gzip", body, 400, "'x-gzip'"), ("x-deflate", body, 415, "'x-deflate'"),
            ("gzip", gzip.compress(body), 200, ""), ("x-gzip", gzip.compress(body), 200, ""), ("X-GZip", gzip.compress(body), 200, ""), ("GZIP", gzip.compress(body), 200, ""), ("Identity", body, 200, ""),
            ("Deflate", zlib.compress(body), 200, ""), ("", body, 200, ""), ("BR", BROTLI, 200, ""),
            ("gzip", gzip.compress(body[:7]) + gzip.compress(body[7:]), 200, "")):
        answer = httpx.post(server.url + "/tokenize", content=content, headers={"Content-Encoding": encoding})
        assert answer.status_code == status, (encoding, answer.text)
        if said:
            message = answer.json()["error"]["message"]
            assert "Content-Encoding " + said in message and "identity, gzip, deflate" in message, message
            assert answer.headers["connection"] == "close"


def test_answers_are_encoded_as_clients_want_them(server):
    for wanted, encoding in ((["gzip"], "gzip"), (["GZip"], "gzip"), (["x-gzip"], "gzip"), (["gzip;q=0"], None), (["gzip; Q=0.0"], None),
                             (["gzip;q=0.001"], "gzip"), (["identity, gzip ; q=1.0"], "gzip"), (["br;q=0, gzip"], "gzip"), ([""], None),
                             (["gzip;q=0, br;q=0"], None), (["identity", "gzip"], "gzip"), (["identity;q=0.5", "gzip;q=0"], None),
                             ([",,;,"], None), (["gzip;q=x"], None), (["*;q=0"], None)):
        answer = httpx.get(server.url + "/", headers=[("Accept-Encoding", value) for value in wanted])
        assert answer.headers.get("content-encoding") == encoding, (wanted, answer.headers)
        assert answer.text.startswith("<!doctype html>"), (wanted, answer.text[:50])


def test_encoded_bodies_that_are_cut_short_are_refused(server):
    body = json.dumps({"content": "a b c " * 50}).encode()
    for encoding, whole in (("gzip", gzip.compress(body)), ("deflate", zlib.compress(body)), ("br", BROTLI)):
        for content in (whole[:-1], whole[:len(whole) - 8], whole[:1]):
            answer = httpx.post(server.url + "/tokenize", content=content, headers={"Content-Encoding": encoding})
            message = answer.json()["error"]["message"]
            assert answer.status_code == 400 and "cut short" in message and encoding in message, (content, message)
        assert httpx.post(server.url + "/tokenize", content=whole, headers={"Content-Encoding": encoding}).status_code == 200
    large = gzip.compress(json.dumps({"content": "a" * 300000, "x": list(range(30000))}).encode())  # in many pieces
    for content, status in ((large, 200), (large[:-2], 400)):
        chunks = (content[i:i + 1000] for i in range(0, len(content), 1000))
        answer = httpx.post(server.url + "/tokenize", content=chunks, headers={"Content-Encoding": "gzip"}, timeout=60)
        assert answer.status_code == status, answer.text


def test_bodies_that_are_cut_short_are_refused(server):
    post = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\n"
    for request in (b"Content-Length: 30\r\n\r\n{", b"Transfer-Encoding: chunked\r\n\r\n5\r\n{", b"Transfer-Encoding: chunked\r\n\r\n"):
        with server.connect() as connection:
            connection.sendall(post + request)
            connection.shutdown(socket.SHUT_WR)
            answer, _ = until_closed(connection)
        assert answer.startswith(b"HTTP/1.1 400 ") and b"cut short" in answer, answer


def test_a_response_that_says_close_is_followed_by_it(server):
    post = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 15\r\n"
    body = b'{"content":"a"}'
    for request in (post + b"Content-Encoding: gzip\r\n\r\n" + body, post + b"Content-Encoding: odd\r\n\r\n" + body,
                    post + b"Content-Type: multipart/form-data; boundary=x\r\n\r\n" + body,
                    b"GET /" + b"x" * 8200 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"):
        with server.connect() as connection:
            connection.sendall(request)
            answer, seconds = until_closed(connection)
        head = answer.lower().split(b"\r\n\r\n")[0]
        assert b"http/1.1 4" in head and head.count(b"connection: close") == 1 and b"keep-alive" not in head, answer
        assert seconds < 1, (answer, seconds)


def test_a_client_may_ask_before_it_sends_its_body(server):
    for expect, asked in ((b"100-continue", True), (b"100-Continue", True), (b"100-CONTINUE", True), (b"101-continue", False)):
        with server.connect() as connection:
            connection.settimeout(5)
            connection.sendall(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 15\r\nExpect: " + expect + b"\r\n\r\n")
            if asked:
                assert connection.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n", expect
            connection.sendall(b'{"content":"a"}')
            assert connection.recv(65536).startswith(b"HTTP/1.1 200 OK"), expect
    old = b"POST /tokenize HTTP/1.0\r\nHost: localhost\r\nContent-Length: 15\r\nExpect: 100-continue\r\n\r\n"
    assert server.exchange(old + b'{"content":"a"}').startswith(b"HTTP/1.1 200 OK")  # it does not know that answer


FRAMES = [(b"", b"411"), (b"Content-Length: abc\r\n", b"400"), (b"Content-Length: -5\r\n", b"400"),
          (b"Content-Length: 2\r\nContent-Length: 20\r\n", b"400"),
          (b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n", b"400"), (b"Transfer-Encoding: odd\r\n", b"501"),
          (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", b"400"),
          (b"Content-Length: 18446744073709551615\r\n", b"413"), (b"Content-Length: 99999999999999999999999\r\n", b"413"),
          (b"Content-Encoding: odd\r\nContent-Length: 2\r\n", b"415")]


@pytest.mark.parametrize("headers,status", FRAMES)
def test_odd_framing_ends_the_connection_at_once(server, headers, status):
    """What follows is not taken for a second request."""
    with server.connect() as connection:
        smuggled = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
        connection.sendall(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\n" + headers + b"\r\n{}" + smuggled)
        answer = b""
        while part := connection.recv(65536):  # until the server closes
            answer += part
    assert answer.split()[1] == status and answer.count(b"HTTP/1.1") == 1 and b'{"error":{"message":' in answer, answer
    assert answer.lower().count(b"connection: close") == 1


def test_requests_may_be_sent_before_the_last_is_answered(server):
    ask = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 15\r\n\r\n" + b'{"content":"a"}'
    get = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
    answer = server.exchange(ask + ask + get + b"\r\n" + get + b"Connection: close\r\n\r\n" + get)
    assert answer.count(b"HTTP/1.1 200 OK") == 4, answer
    # What comes with a GET, or in a chunked body that is broken, is no request.
    for begin in (get + b"Content-Length: %d\r\n\r\n" % len(ask), get + b"Transfer-Encoding: chunked\r\n\r\n",
                  b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"):
        answer = server.exchange(begin + ask)
        assert answer.count(b"HTTP/1.1") == 1 and answer.lower().count(b"connection: close") <= 1, answer


def test_what_is_not_made_of_chunks_is_no_body(server):
    begin = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    body = b'{"content":"a"}'
    for chunks in (b"f\r\n" + body + b"XX\r\n0\r\n\r\n", b"0xf\r\n" + body + b"\r\n0\r\n\r\n", b"+f\r\n" + body + b"\r\n0\r\n\r\n",
                   b"-1\r\n" + body + b"\r\n0\r\n\r\n", b"f\r\n" + body + b"\n0\r\n\r\n",
                   b"f zz\r\n" + body + b"\r\n0\r\n\r\n", b"f\r\n" + body + b"\r\n0\r\nno trailer\r\n\r\n"):
        answer = server.exchange(begin + chunks)
        assert answer.startswith(b"HTTP/1.1 400 ") and b"not made of chunks" in answer, (chunks, answer)


def test_chunks_are_read_however_they_are_announced(server):
    begin = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: Chunked\r\n\r\n"
    for size, end in ((b"f;a=b", b"\r\n"), (b"f", b"X-A: b\r\n\r\n"), (b"F \t", b"X-A: b\r\nX-B:\r\n\r\n")):
        answer = server.exchange(begin + size + b"\r\n" + b'{"content":"a"}' + b"\r\n0\r\n" + end)
        assert answer.startswith(b"HTTP/1.1 200 OK") and answer.count(b"HTTP/1.1") == 1, (size, end, answer)


def test_bodies_that_nobody_reads_take_no_memory(lily):
    def send(begin, piece):
        with server.connect() as connection:
            connection.sendall(begin + b"\r\nHost: localhost\r\n" + (b"Transfer-Encoding: chunked\r\n\r\n" if piece else b"\r\n"))
            try:
                for _ in range(100):
                    connection.sendall(piece or b"x" * (1 << 20))
                connection.sendall(b"0\r\n\r\n")
            except ConnectionError:
                pass  # closed
            return until_closed(connection)[0]
    chunk = b"100000\r\n" + b"x" * (1 << 20) + b"\r\n"
    with Server(lily, "--api-key", "a") as server:
        before = server.peak_mib()
        for begin, piece in ((b"PUT /x HTTP/1.1", b""), (b"POST /nope HTTP/1.1", chunk), (b"PUT /health HTTP/1.1", chunk),
                             (b"PRI * HTTP/1.1", chunk), (b"PATCH /tokenize HTTP/1.1", chunk), (b"DELETE / HTTP/1.1", chunk)):
            answer = send(begin, piece)
            assert not answer or answer.split()[1] in (b"400", b"404", b"405"), (begin, answer)
            assert server.peak_mib() - before < 30, (begin, before, server.peak_mib())


def test_arrays_of_very_many_values_are_refused_before_they_take_memory(lily):
    with Server(lily) as server:
        before = server.peak_mib()
        for text in (b"0,", b'"",', b"{},"):
            body = gzip.compress(b'{"tokens":[' + text * ((30 << 20) // len(text)) + b"0]}", 1)
            answer = httpx.post(server.url + "/detokenize", content=body, headers={"Content-Encoding": "gzip"}, timeout=60)
            assert answer.status_code == 413 and "JSON values" in answer.json()["error"]["message"], answer.text
        assert server.peak_mib() - before < 200, (before, server.peak_mib())
        # What is beyond what a client sends is served: a million ids.
        assert server.post("/detokenize", {"tokens": [5] * 1000000}).status_code == 200


def test_objects_of_very_many_fields_are_refused_quickly(server):
    body = {"messages": USER, "logit_bias": {str(i): -1 for i in range(200000)}}
    assert "too many fields" in server.post(CHAT, body).json()["error"]["message"]


def test_headers_have_limits(server):
    assert b"HTTP/1.1 4" in server.exchange(b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
    answer = server.exchange(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 100000 + b"\r\n\r\n")
    assert b"200 OK" not in answer
    assert b"HTTP/1.1 4" in server.exchange(b"\x16\x03\x01garbage\r\n\r\n")
    assert httpx.get(server.url + "/health").status_code == 200


def test_headers_that_drip_and_header_lines_have_limits(lily):
    with Server(lily, "--client-timeout-seconds", 2) as server:
        for drip in (b"a", b"X: y\r\n"):
            with server.connect() as connection:
                connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: ")
                answer, seconds = until_closed(connection, drip)
            assert answer.startswith(b"HTTP/1.1 408 ") and b'"error":{' in answer and 1.5 < seconds < 8, (answer, seconds)
        with server.connect() as connection:  # a chunk's size that drips
            connection.sendall(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
            answer, seconds = until_closed(connection, b"0")
        assert answer.startswith(b"HTTP/1.1 4") and 1.5 < seconds < 8, (answer, seconds)
        for lines, status in ((b"X: y\r\n" * 90, b"200"), (b"X: y\r\n" * 101, b"431"), (b"X: " + b"y" * 33000 + b"\r\n", b"431"),
                              (b"X: " + b"y" * 8187 + b"\r\n", b"200"), (b"X: " + b"y" * 8188 + b"\r\n", b"431"),
                              (b"Host: localhost\r\n", b"400"), (b"A: b\n", b"400"), (b" folded\r\n", b"400")):
            answer = server.exchange(b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + lines + b"Connection: close\r\n\r\n")
            assert answer.split()[1] == status and answer.count(b"HTTP/1.1") == 1, (lines[:20], answer)
        assert httpx.get(server.url + "/health").status_code == 200


def test_slow_clients_are_dropped(lily):
    with Server(lily, "--client-timeout-seconds", 1, "--ctx", 32768) as server:
        with server.connect() as drips:  # the body comes, but byte by byte
            drips.sendall(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000\r\n\r\n")
            answer, _ = until_closed(drips, b" ")
        assert answer.startswith(b"HTTP/1.1 408"), answer
        with server.connect() as half:  # nothing comes any more
            half.sendall(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000\r\n\r\n{")
            half.settimeout(20)
            assert half.recv(65536).startswith(b"HTTP/1.1 408")
        # One that reads nothing of a long stream: its reply ends as soon as no more fits between the two.
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.connect(("127.0.0.1", server.port))
            body = json.dumps({"prompt": "a", "ignore_eos": True, "max_tokens": 60000, "stream": True, "logprobs": 20})
            deaf.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                         + f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
            server.wait_for(lambda m: m["requests_running"] == 1)
            metrics = server.wait_for(lambda m: m["requests_running"] == 0, seconds=120)
        assert metrics["requests_cancelled_total"] == 1 and metrics["generated_tokens_total"] < 60000


def test_a_client_may_ask_for_the_end_of_its_connection(server):
    get = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
    for lines in (b"Connection: Close\r\n", b"Connection: close, TE\r\n", b"connection: keep-alive, close\r\n",
                  b"Connection: keep-alive\r\nConnection: close\r\n"):
        with server.connect() as connection:
            connection.sendall(get + lines + b"\r\n")
            answer, seconds = until_closed(connection)
        assert b"Connection: close\r\n" in answer and b"Keep-Alive" not in answer and seconds < 4, (lines, answer, seconds)
    for lines in (b"Connection: clos%65\r\n", b"Connection: closed\r\n", b"Connection: TE\r\n"):
        answer = server.exchange((get + lines + b"\r\n") * 2)
        assert answer.count(b"HTTP/1.1 200 OK") == 2 and b"Connection: close" not in answer, (lines, answer)
    old = get.replace(b"1.1", b"1.0")
    answer = server.exchange((old + b"Connection: keep-alive\r\n\r\n") * 2)
    assert answer.count(b"200 OK") == answer.lower().count(b"\r\nconnection: keep-alive\r\n") == 2, answer
    answer = server.exchange((old + b"\r\n") * 2)
    assert answer.count(b"200 OK") == answer.count(b"\r\nConnection: close\r\n") == 1 and b"Keep-Alive" not in answer, answer


def test_connections_are_reused(server):
    with httpx.Client() as client:
        for _ in range(20):
            assert client.post(server.url + "/tokenize", json={"content": "a b"}).status_code == 200


STREAMS = [(CHAT, {"messages": USER}, "[DONE]"), ("/v1/completions", {"prompt": "a"}, "[DONE]"),
           ("/v1/messages", {"messages": USER}, "message_stop"), ("/v1/responses", {"input": "Hi"}, "response.incomplete")]


@pytest.mark.parametrize("keep", [b"", b"Connection: keep-alive\r\n"])
@pytest.mark.parametrize("path,body,last", STREAMS)
def test_streams_of_http_1_0_end_with_the_connection(server, path, body, last, keep):
    """It knows no chunks (RFC 9112, 6.1), whatever it says about keeping the connection."""
    body |= {"stream": True, "temperature": 0, "ignore_eos": True, "max_output_tokens" if "input" in body else "max_tokens": 5}
    data = json.dumps(body).encode()

    def ask(version):
        with server.connect() as connection:
            connection.sendall(b"POST %s HTTP/%s\r\nHost: localhost\r\n%sContent-Length: %d\r\n\r\n%s"
                               % (path.encode(), version, keep if version == b"1.0" else b"Connection: close\r\n", len(data), data))
            answer, seconds = until_closed(connection)
        assert seconds < 8, seconds
        head, text = answer.split(b"\r\n\r\n", 1)
        return head.lower().split(b"\r\n"), text
    head, text = ask(b"1.0")
    assert head[0].endswith(b" 200 ok") and head.count(b"connection: close") == 1, head
    assert not [line for line in head if line.startswith((b"transfer-encoding", b"keep-alive", b"content-length"))], head
    events = list(parse_events(text.decode().split("\n")))  # nothing stands between them
    name, event = events[-1]
    assert last in (name, event), events[-1]
    head, chunked = ask(b"1.1")
    assert b"transfer-encoding: chunked" in head and chunked.endswith(b"\r\n0\r\n\r\n")
    assert chunked.count(b"data: ") == len(events)


def test_a_connection_may_wait_for_its_first_request_and_between_two(server):
    with server.connect() as connection:
        for _ in range(2):
            time.sleep(3)
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = b""
            while not answer.endswith(b"}"):
                answer += connection.recv(65536)
            assert answer.startswith(b"HTTP/1.1 200 OK") and b"max=1000" in answer, answer


def test_ranges_are_ignored(server):
    """RFC 9110, 14.2: a server may do so, and must with a Range that is malformed or of a method other than GET."""
    for method, path, body in (("GET", "/", None), ("GET", "/web/main.js", None), ("GET", "/v1/models", None), ("GET", "/health", None),
                               ("HEAD", "/", None), ("POST", "/tokenize", {"content": "a b"}), ("OPTIONS", "/health", None)):
        plain = httpx.request(method, server.url + path, json=body)
        assert plain.is_success and "accept-ranges" not in plain.headers, (path, plain.headers)
        for ranges in ("bytes=0-0", "bytes=" + ",".join(f"0-{i}" for i in range(1000)), "bytes=9-1,x", "bytes=zz", "bytes=", "zz",
                       "", "lines=1-2", "bytes=99999999-", "bytes=-99999999999999999999999"):
            answer = httpx.request(method, server.url + path, json=body, headers=[("Range", ranges), ("range", "bytes=x")])
            assert (answer.status_code, answer.content) == (plain.status_code, plain.content), (path, ranges, answer.headers)
            assert "content-range" not in answer.headers
    assert httpx.get(server.url + "/nothing", headers={"Range": "zz"}).status_code == 404


def test_a_client_that_leaves_while_decoding_frees_its_slot(server):
    before = server.metrics()
    kinds = [(path, streamed, more) for path in (CHAT, "/v1/completions") for streamed in (True, False)
             for more in (b"", b"GET /health")]  # what was sent after the request must not hide that it is over
    for path, streamed, more in kinds:
        connection = server.raw_post(path, {"messages": USER, "prompt": "a", "ignore_eos": True, "max_tokens": 4000,
                                            "stream": streamed})
        connection.sendall(more)
        server.wait_for(lambda m: m["requests_running"] == 1)
        connection.close()
        server.wait_for(lambda m: m["requests_running"] == 0, seconds=5)
    after = server.metrics()
    assert after["requests_cancelled_total"] == before["requests_cancelled_total"] + len(kinds)
    assert after["generated_tokens_total"] - before["generated_tokens_total"] < 3500 * len(kinds)


def test_a_client_that_resets_its_connection_at_once_frees_its_slot(server):
    before = server.metrics()
    for _ in range(8):
        connection = server.raw_post(CHAT, {"messages": USER, "max_tokens": 30000, "ignore_eos": True})
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closing sends a reset
        connection.close()
    assert server.chat("Hi", max_tokens=1)
    after = server.wait_for(lambda m: m["requests_running"] + m["requests_waiting"] == 0, seconds=10)
    assert after["generated_tokens_total"] - before["generated_tokens_total"] < 4000  # to the end it would be eight times that


def test_a_client_that_leaves_during_the_prefill_or_the_queue_frees_its_place(lily):
    with Server(lily, "--ctx", 32768, "--parallel", 1, "--queue", 4) as server:
        body = {"messages": [{"role": "user", "content": long_text(15000)}], "max_tokens": 4}
        first = server.raw_post(CHAT, body | {"stream": True})
        server.wait_for(lambda m: m["requests_running"] == 1)
        second = server.raw_post(CHAT, {"messages": USER})
        server.wait_for(lambda m: m["requests_waiting"] == 1)
        second.close()
        server.wait_for(lambda m: m["requests_waiting"] == 0)
        first.close()
        metrics = server.wait_for(lambda m: m["requests_running"] == 0, seconds=10)
        assert metrics["requests_cancelled_total"] == 2 and metrics["generated_tokens_total"] == 0
        begin = time.monotonic()
        assert server.chat("Hi", max_tokens=1)
        assert time.monotonic() - begin < 10


@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/v1/messages", "/v1/responses"])
def test_a_client_that_only_sends_no_more_gets_its_answer(server, path):
    before = server.metrics()
    for streamed in (False, True):
        text = long_text(1800, seed=len(path) * 2 + streamed)  # takes a while, since nothing of it is known
        prompt = {"/v1/completions": {"prompt": text}, "/v1/responses": {"input": text}}
        body = {"messages": [{"role": "user", "content": text}]} if path not in prompt else prompt[path]
        body |= {"max_output_tokens" if path == "/v1/responses" else "max_tokens": 20, "stream": streamed}
        with server.raw_post(path, body) as connection:
            connection.shutdown(socket.SHUT_WR)
            begin = time.monotonic()
            answer, _ = until_closed(connection, seconds=60)
        asked = b"HTTP/1.1 100 Continue\r\n\r\n"
        while answer.startswith(asked):  # a client has to pass over any number of them
            answer = answer[len(asked):]
        assert answer.startswith(b"HTTP/1.1 200 OK") and asked not in answer, answer[:300]
        if streamed:
            assert answer.endswith(b"\n\n\r\n0\r\n\r\n") and answer.count(b"data: ") > 2, answer[-300:]
        else:
            assert json.loads(answer.split(b"\r\n\r\n", 1)[1])["usage"], answer[:300]
        assert time.monotonic() - begin > 0.2  # so there was time to notice
    assert server.metrics()["requests_cancelled_total"] == before["requests_cancelled_total"]


def test_a_client_that_sends_no_more_and_leaves_later_frees_its_slot(server):
    connection = server.raw_post(CHAT, {"messages": USER, "ignore_eos": True, "max_tokens": 4000})
    connection.shutdown(socket.SHUT_WR)
    assert connection.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
    connection.close()
    assert server.metrics()["requests_running"] == 1
    server.wait_for(lambda m: m["requests_running"] == 0, seconds=3)  # the next question comes after a second


def test_python_passes_over_the_question(server):
    """http.client after a shutdown, as a client of another kind than raw sockets."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("POST", CHAT, json.dumps({"messages": USER, "ignore_eos": True, "max_tokens": 600}))
    connection.sock.shutdown(socket.SHUT_WR)
    answer = connection.getresponse()
    assert answer.status == 200 and json.loads(answer.read())["choices"]


def test_a_half_closed_client_of_http_1_0_is_told_that_it_counts_as_gone(server):
    body = json.dumps({"messages": USER, "ignore_eos": True, "max_tokens": 4000}).encode()
    with server.connect() as connection:
        connection.sendall(b"POST /v1/chat/completions HTTP/1.0\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        connection.shutdown(socket.SHUT_WR)
        answer, _ = until_closed(connection)
    assert answer.startswith(b"HTTP/1.1 400 ") and b"client_closed" in answer and b"100 Continue" not in answer, answer
    server.wait_for(lambda m: m["requests_running"] == 0, seconds=5)


def events_for(server, body, seconds):
    """What a stream says in its first seconds."""
    end, text = time.monotonic() + seconds, b""
    with server.raw_post(CHAT, body | {"stream": True}) as connection:
        while time.monotonic() < end:
            connection.settimeout(max(0.01, end - time.monotonic()))
            try:
                text += connection.recv(65536)
            except TimeoutError:
                break
    return text


def test_streams_say_that_they_are_alive_while_they_wait_or_prefill(lily):
    with Server(lily, "--ctx", 32768, "--parallel", 1, "--keep-alive-seconds", 1) as server:
        long = {"messages": [{"role": "user", "content": long_text(15000)}]}
        prefill = server.raw_post(CHAT, long | {"stream": True})
        server.wait_for(lambda m: m["requests_running"] == 1)
        waiting = events_for(server, {"messages": USER}, 3.5)
        assert b'"role":"assistant"' in waiting and b"content-type: text/event-stream" in waiting.lower()
        assert 2 <= waiting.count(b": keep-alive\n\n") <= 4
        prefill.close()
        server.wait_for(lambda m: m["requests_running"] == 0)
        assert events_for(server, long, 3.5).count(b": keep-alive\n\n") >= 2


def test_short_requests_are_served_while_a_long_prompt_is_computed(lily):
    with Server(lily, "--ctx", 32768) as server:
        long = server.raw_post(CHAT, {"messages": [{"role": "user", "content": long_text(15000)}], "stream": True})
        server.wait_for(lambda m: m["requests_running"] == 1)
        server.chat("Hi", max_tokens=2)
        assert server.metrics()["requests_running"] == 1  # the long one is still at it
        long.close()


def test_a_client_that_does_not_read_blocks_nobody(server):
    slow = [server.raw_post(CHAT, {"messages": USER, "ignore_eos": True, "max_tokens": 300, "stream": True, "logprobs": True,
                                   "top_logprobs": 20}) for _ in range(3)]
    assert server.chat("Hi", max_tokens=4)
    server.wait_for(lambda m: m["requests_running"] == 0, seconds=60)
    for connection in slow:
        connection.close()


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("path", [CHAT, "/v1/completions"])
def test_sigterm_ends_within_seconds_with_open_requests(lily, streamed, path):
    server = Server(lily, "--parallel", 2)
    bodies = []
    body = {"messages": USER, "prompt": "a", "ignore_eos": True, "max_tokens": 30000, "stream": streamed}

    def read():
        with server.raw_post(path, body) as connection:
            data = b""
            while part := connection.recv(65536):
                data += part
            bodies.append(data)
    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    idle = server.connect()
    half = server.connect()
    half.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localh")
    server.wait_for(lambda m: m["requests_running"] == 2 and m["requests_waiting"] == 1)
    assert server.stop() < 5
    assert server.process.returncode == 0
    for thread in threads:
        thread.join(10)
    idle.close()
    half.close()
    assert len(bodies) == 3
    for data in bodies:
        assert b"shutting down" in data
        assert data.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n") if streamed else data.startswith(b"HTTP/1.1 503"), data[-200:]
