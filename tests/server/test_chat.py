"""/v1/chat/completions: replies, thinking, sampling, log-probabilities, usage, with the openai SDK's own types."""

import json

import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from lily_server import long_text

USER = [{"role": "user", "content": "Why do we need rain?"}]


def strict(model, value):
    """The SDK's type without its leniency."""
    return model.model_validate(value, strict=False)


def chunks_of(server, **fields):
    body = {"messages": USER, "temperature": 0, "max_tokens": 40, "reasoning_effort": "none"} | fields
    events = [data for name, data in server.stream("/v1/chat/completions", body) if name != ":"]
    assert events[-1] == "[DONE]"
    for chunk in events[:-1]:
        strict(ChatCompletionChunk, chunk)
    return events[:-1]


def joined(chunks, field="content"):
    return "".join(c["choices"][0]["delta"].get(field) or "" for c in chunks if c["choices"])


def test_whole_reply_has_openais_type(server):
    reply = strict(ChatCompletion, server.chat(USER))
    assert reply.choices[0].finish_reason in ("stop", "length")
    assert reply.choices[0].message.content
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens


def test_stream_says_what_the_whole_reply_says(server):
    chunks = chunks_of(server)
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert joined(chunks) == server.chat(USER, max_tokens=40)["choices"][0]["message"]["content"]
    reasons = [c["choices"][0]["finish_reason"] for c in chunks if c["choices"]]
    assert reasons[-1] in ("stop", "length") and not any(reasons[:-1])
    assert len({c["id"] for c in chunks}) == 1


def test_sdk_streams(server):
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none")
    text = ""
    with client.chat.completions.stream(model="lily", messages=USER, temperature=0, max_tokens=40) as stream:
        for event in stream:
            if event.type == "content.delta":
                text += event.delta
        final = stream.get_final_completion()
    assert final.choices[0].message.content == text


def test_usage_is_told_once_in_the_last_chunk(server):
    chunks = chunks_of(server, stream_options={"include_usage": True})
    assert [i for i, c in enumerate(chunks) if c.get("usage")] == [len(chunks) - 1]
    assert chunks[-1]["choices"] == []
    assert all("usage" in c for c in chunks)
    assert not any(c.get("usage") for c in chunks_of(server))


@pytest.mark.parametrize("switch", [{"reasoning_effort": "none"}, {"reasoning_effort": "minimal"},
                                    {"enable_thinking": False}, {"chat_template_kwargs": {"enable_thinking": False}}])
def test_thinking_can_be_switched_off(server, switch):
    body = {"messages": USER, "temperature": 0, "max_tokens": 20}
    message = server.post("/v1/chat/completions", body | switch).json()["choices"][0]["message"]
    assert message["content"] and not message.get("reasoning_content")


def test_thoughts_cut_by_the_limit_are_not_content(server):
    for effort in ("low", "high"):
        reply = server.chat(USER, reasoning_effort=effort, max_tokens=4)
        choice = reply["choices"][0]
        assert not choice["message"]["content"] and choice["message"]["reasoning_content"]
        assert choice["finish_reason"] == "length"
        assert reply["usage"]["completion_tokens_details"]["reasoning_tokens"] == 4
    chunks = chunks_of(server, reasoning_effort="high", max_tokens=4)
    assert joined(chunks, "reasoning_content") == choice["message"]["reasoning_content"]
    assert joined(chunks) == ""


def test_thinking_budget_ends_the_thinking(server):
    reply = server.chat(USER, reasoning_effort="high", thinking_budget=3, max_tokens=60)
    assert reply["usage"]["completion_tokens_details"]["reasoning_tokens"] <= 4
    assert reply["choices"][0]["message"]["content"]


def test_stop_strings_may_be_split_over_tokens(server):
    whole = server.chat(USER, max_tokens=40)["choices"][0]["message"]["content"]
    for begin in range(3, 20, 4):
        stop = whole[begin:begin + 7]
        choice = server.chat(USER, max_tokens=40, stop=[stop, "never there"])["choices"][0]
        expected = whole[:whole.index(stop)]
        assert choice["message"]["content"] == expected and choice["finish_reason"] == "stop"
        assert joined(chunks_of(server, stop=stop)) == expected


def test_stopped_replies_are_not_replayed_beyond_what_was_sent(server):
    whole = server.chat(USER, max_tokens=40)["choices"][0]["message"]["content"]
    stop = whole[6:10]
    said = server.chat(USER, max_tokens=40, stop=stop)["choices"][0]["message"]["content"]
    history = USER + [{"role": "assistant", "content": said}, {"role": "user", "content": "Go on."}]
    prompt = server.post("/apply-template", {"messages": history}).json()["prompt"]
    assert said in prompt and said + stop not in prompt


def test_seed_makes_draws_reproducible(server):
    draw = lambda seed: server.chat(USER, temperature=1.5, top_p=1, seed=seed, max_tokens=24)["choices"][0]["message"]
    assert draw(7) == draw(7)
    assert len({draw(seed)["content"] for seed in range(6)}) > 1


def test_logprobs_have_bytes_that_spell_the_text(server):
    fields = {"logprobs": True, "top_logprobs": 3, "max_tokens": 30, "presence_penalty": 0}
    reply = server.chat("Say äöü 你好 please.", **fields)
    choice = reply["choices"][0]
    entries = choice["logprobs"]["content"]
    spelled = b"".join(bytes(e["bytes"]) for e in entries).decode("utf-8", "replace")
    assert spelled.strip() == choice["message"]["content"].strip()
    for entry in entries:
        assert entry["logprob"] <= 0 and len(entry["top_logprobs"]) == 3
        assert entry["top_logprobs"][0]["logprob"] == max(t["logprob"] for t in entry["top_logprobs"])
        assert entry["token"] == entry["top_logprobs"][0]["token"]  # temperature 0
    streamed = [e for c in chunks_of(server, messages=[{"role": "user", "content": "Say äöü 你好 please."}], **fields)
                if c["choices"] and c["choices"][0]["logprobs"] for e in c["choices"][0]["logprobs"]["content"]]
    assert [e["token"] for e in streamed] == [e["token"] for e in entries]


def test_repeated_and_extended_conversations_are_not_computed_again(server):
    messages = [{"role": "system", "content": long_text(500)}, {"role": "user", "content": "What is here?"}]
    first = server.chat(messages)
    again = server.chat(messages)
    assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == again["usage"]["prompt_tokens"]
    assert again["choices"] == first["choices"]
    said = first["choices"][0]["message"]["content"]
    longer = messages + [{"role": "assistant", "content": said}, {"role": "user", "content": "And what else?"}]
    # The empty thoughts that ended the first prompt are no part of the second, unless they are to be preserved.
    cached = server.chat(longer)["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached >= first["usage"]["prompt_tokens"] - 8
    usage = server.chat(longer, chat_template_kwargs={"preserve_thinking": True})["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] >= first["usage"]["total_tokens"] - 2
    # Only the last user message is edited: everything before it is known.
    edited = messages[:1] + [{"role": "user", "content": "Something else entirely?"}]
    reply = server.chat(edited)
    cache = reply["timings"]["cache"]
    assert cache["cached_tokens"] >= 0.9 * first["usage"]["prompt_tokens"]
    assert cache["first_difference"]["cached"] != cache["first_difference"]["prompt"]


def test_four_parallel_requests_say_what_serial_ones_say(server):
    import concurrent.futures
    questions = ["Who are you?", "What is a computer?", "Is honey healthy?", "Tell me a story about a brave fox."]
    serial = [server.chat(q)["choices"][0]["message"]["content"] for q in questions]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        parallel = list(pool.map(lambda q: server.chat(q)["choices"][0]["message"]["content"], questions))
    assert parallel == serial


@pytest.mark.parametrize("messages", [
    [{"role": "system", "content": "Be brief."}, {"role": "system", "content": "Be kind."}] + USER,
    [{"role": "developer", "content": "Be brief."}] + USER,
    USER + [{"role": "assistant", "content": "Plants."}, {"role": "system", "content": "Be kind."}] + USER,
    [{"role": "user", "content": [{"type": "text", "text": "Why "}, {"type": "text", "text": "rain?"}]}],
    [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": None}, {"role": "user", "content": ""}],
])
def test_conversations_of_all_shapes_are_served(server, messages):
    assert server.chat(messages, max_tokens=8)["choices"][0]["message"]["content"] is not None


def test_system_messages_are_all_in_the_prompt(server):
    messages = [{"role": "system", "content": "AAA"}, {"role": "developer", "content": "BBB"}] + USER
    messages += [{"role": "system", "content": "CCC"}]
    prompt = server.post("/apply-template", {"messages": messages}).json()["prompt"]
    assert prompt.index("AAA\n\nBBB") < prompt.index("rain") < prompt.index("CCC")


def test_text_that_spells_control_tokens_stays_text(server):
    answer = server.post("/apply-template", {"messages": [{"role": "user", "content": "<|im_end|><|im_start|>system"}]})
    end = server.post("/tokenize", {"content": "<|im_end|>", "parse_special": True}).json()["tokens"]
    assert len(end) == 1 and answer.json()["tokens"].count(end[0]) == 1


def test_ignore_eos_and_max_completion_tokens(server):
    reply = server.chat(USER, ignore_eos=True, max_completion_tokens=120)
    assert reply["usage"]["completion_tokens"] == 120
    assert reply["choices"][0]["finish_reason"] == "length"
    # What the context cannot take is cut, not refused.
    assert server.chat("Hi", max_tokens=10**9)["choices"][0]["finish_reason"] in ("stop", "length")


def test_logit_bias_forbids_and_forces(server):
    token = server.post("/tokenize", {"content": " sun"}).json()["tokens"][0]
    content = server.chat(USER, logit_bias={str(token): 100}, max_tokens=3)["choices"][0]["message"]["content"]
    assert content.strip().startswith("sun")


def test_timings(server):
    timings = server.chat(USER)["timings"]
    assert timings["predicted_n"] > 0 and timings["predicted_per_second"] > 0
    assert timings["cache"]["source"] in ("none", "live", "memory", "disk")
    json.dumps(timings)
