"""State that survives: conversations interleaved, a restart, kill -9, damage; and --verify-cache."""

import concurrent.futures
import pathlib
import resource

import pytest

from lily_server import Server, long_text

QUESTION = [{"role": "system", "content": long_text(400)}, {"role": "user", "content": "What is here?"}]


def cached(reply):
    return reply["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_interleaved_conversations_keep_their_state(lily):
    with Server(lily, "--parallel", 1) as server:
        histories = [[{"role": "system", "content": long_text(300, seed)}] for seed in (1, 2, 3)]
        known = [0, 0, 0]
        for turn in range(3):
            for i, history in enumerate(histories):
                history.append({"role": "user", "content": f"Question {turn}?"})
                reply = server.chat(history, max_tokens=12)
                assert cached(reply) >= known[i] - 8  # the empty thoughts that ended the last prompt are gone
                known[i] = reply["usage"]["prompt_tokens"]
                history.append(reply["choices"][0]["message"])


def test_kill_and_restart_still_hit_and_say_the_same(lily, tmp_path):
    with Server(lily, "--cache-dir", tmp_path) as server:
        first = server.chat(QUESTION)
        server.wait_for(lambda m: m["prefix_cache_disk_bytes"] > 0)
        history = QUESTION + [first["choices"][0]["message"], {"role": "user", "content": "And what else?"}]
        second = server.chat(history)
        stable = server.metrics()["prefix_cache_disk_bytes"]
        server.wait_for(lambda m, seen=[stable, 0]: seen.append(m["prefix_cache_disk_bytes"]) or len(set(seen[-5:])) == 1)
        server.kill()
    with Server(lily, "--cache-dir", tmp_path) as server:
        again = server.chat(QUESTION)
        assert cached(again) == again["usage"]["prompt_tokens"] and again["timings"]["cache"]["source"] == "disk"
        assert again["choices"] == first["choices"]
        longer = server.chat(history)
        assert cached(longer) >= first["usage"]["prompt_tokens"]
        assert longer["choices"] == second["choices"]


def test_states_of_another_arithmetic_are_not_taken(lily, tmp_path):
    with Server(lily, "--cache-dir", tmp_path) as server:
        server.chat(QUESTION)
    for others in (("--activations", "int16"), ("--cpu-target", "portable")):
        with Server(lily, "--cache-dir", tmp_path, *others) as server:
            assert cached(server.chat(QUESTION)) == 0, others
    with Server(lily, "--cache-dir", tmp_path) as server:
        assert cached(server.chat(QUESTION)) > 0


def test_a_limit_of_file_sizes_costs_states_and_no_reply(lily, tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))  # bytes; a state has more
    try:
        server = Server(lily, "--cache-dir", tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    with server:
        replies = [server.chat(QUESTION)["choices"] for _ in range(3)]
        assert replies[0] == replies[1] == replies[2]
        assert all(file.stat().st_size <= 100_000 for file in tmp_path.rglob("*") if file.is_file())
    with Server(lily, "--cache-dir", tmp_path) as server:
        assert server.chat(QUESTION)["choices"] == replies[0]


def test_the_first_difference_to_what_is_only_on_disk_is_told(lily, tmp_path):
    text = lambda question: [{"role": "user", "content": long_text(400) + " " + question}]
    with Server(lily, "--cache-dir", tmp_path) as server:
        server.chat(text("1 is here."), max_tokens=4)
        in_memory = server.chat(text("2 is here."), max_tokens=4)["timings"]["cache"]
    assert in_memory["first_difference"]["cached"] != in_memory["first_difference"]["prompt"]
    with Server(lily, "--cache-dir", tmp_path) as server:
        on_disk = server.chat(text("3 is here."), max_tokens=4)["timings"]["cache"]
    assert on_disk["common_tokens"] == in_memory["common_tokens"] > 100
    assert on_disk["first_difference"]["position"] == on_disk["common_tokens"]
    assert on_disk["first_difference"]["cached"] != on_disk["first_difference"]["prompt"], on_disk


def test_killed_under_load_it_never_reuses_what_was_half_written(lily, tmp_path):
    """Three servers die while they answer and write; the fourth compares all that it reuses with a cold run."""
    questions = [[{"role": "system", "content": long_text(200, seed % 3)}, {"role": "user", "content": f"Question {seed}?"}]
                 for seed in range(9)]
    ask = lambda server, question: server.chat(question, max_tokens=8)
    with Server(lily) as server:
        truth = [ask(server, question)["choices"] for question in questions]
    for death in range(3):
        server = Server(lily, "--cache-dir", tmp_path)
        before = server.metrics()["prefix_cache_disk_bytes"]
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            mine = questions[death * 3:] + questions[:death * 3]
            replies = [pool.submit(ask, server, question) for question in mine]
            server.wait_for(lambda m: m["prefix_cache_disk_bytes"] > before)
            server.kill()
        assert not all(reply.exception() is None for reply in replies)
    with Server(lily, "--cache-dir", tmp_path, "--verify-cache") as server:
        answers = [ask(server, question) for question in questions]
        assert [answer["choices"] for answer in answers] == truth
        assert any(answer["timings"]["cache"]["source"] == "disk" for answer in answers)
        assert server.metrics()["requests_failed_total"] == 0
    assert not list(pathlib.Path(tmp_path).rglob("*.tmp"))


def test_damaged_files_cost_time_not_truth(lily, tmp_path):
    with Server(lily, "--cache-dir", tmp_path) as server:
        first = server.chat(QUESTION)
        server.wait_for(lambda m: m["prefix_cache_disk_bytes"] > 0)
    files = [f for f in pathlib.Path(tmp_path).rglob("*") if f.is_file()]
    assert files
    for i, file in enumerate(files):
        data = bytearray(file.read_bytes())
        if i % 3 == 0:
            data[len(data) // 2] ^= 1
        elif i % 3 == 1:
            data = data[:len(data) // 2]
        else:
            data = bytearray()
        file.write_bytes(data)
    with Server(lily, "--cache-dir", tmp_path) as server:
        assert server.chat(QUESTION)["choices"] == first["choices"]


def test_a_budget_bounds_the_disk(lily, tmp_path):
    budget = 8 << 20
    with Server(lily, "--cache-dir", tmp_path, "--cache-disk-gib", budget / (1 << 30)) as server:
        for seed in range(6):
            server.chat([{"role": "user", "content": long_text(300, seed * 10)}], max_tokens=4)
    assert sum(f.stat().st_size for f in pathlib.Path(tmp_path).rglob("*") if f.is_file()) <= budget


@pytest.mark.parametrize("activations", ["int8", "int16", "float32"])
def test_verify_cache_compares_with_a_cold_run(lily, activations):
    with Server(lily, "--verify-cache", "--parallel", 2, "--device", "cpu", "--activations", activations) as server:
        history = list(QUESTION)
        for turn in range(3):
            reply = server.chat(history, max_tokens=16)
            assert turn == 0 or cached(reply) > 0
            history += [reply["choices"][0]["message"], {"role": "user", "content": f"And {turn}?"}]
        assert server.metrics()["requests_failed_total"] == 0
