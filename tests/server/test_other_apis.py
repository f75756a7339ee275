"""/v1/completions, Anthropic's /v1/messages with its SDK, /tokenize, /detokenize, /metrics."""

import json
import re

import anthropic
import httpx
import openai
import pytest
from anthropic.types import Message

from lily_server import long_text, weather_tool

GREEDY = {"temperature": 0}  # the SDK no longer knows it, the API still does
WEATHER = {"name": "get_weather", "description": "The weather.",
           "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}


@pytest.fixture(scope="module")
def claude(server):
    return anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)


def say(claude, text="Why do we need rain?", **fields):
    messages = [{"role": "user", "content": text}]
    return claude.messages.create(**{"model": "claude-any", "max_tokens": 40, "messages": messages, "extra_body": GREEDY} | fields)


def test_messages(claude):
    message = say(claude, system="Be brief.")
    assert isinstance(message, Message) and message.content[0].type == "text"
    assert message.stop_reason in ("end_turn", "max_tokens")
    Message.model_validate(message.model_dump())


def test_messages_stream_equals_the_whole(claude):
    with claude.messages.stream(model="x", max_tokens=40, messages=[{"role": "user", "content": "Why do we need rain?"}],
                                extra_body=GREEDY) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == say(claude).content[0].text == final.content[0].text
    assert final.usage.output_tokens > 0 and final.stop_reason


def test_thinking_blocks(claude):
    thinking = {"type": "enabled", "budget_tokens": 1024}
    message = say(claude, thinking=thinking, max_tokens=2000)
    assert message.content[0].type == "thinking" and message.content[0].thinking
    with claude.messages.stream(model="x", max_tokens=2000, messages=[{"role": "user", "content": "Hi"}],
                                thinking=thinking) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_message()
    assert kinds[0] == "message_start" and kinds[-1] == "message_stop" and final.content[0].type == "thinking"


@pytest.mark.parametrize("streamed", [False, True])
def test_tool_use_and_its_result(claude, streamed):
    fields = {"model": "x", "max_tokens": 300, "tools": [WEATHER], "tool_choice": {"type": "tool", "name": "get_weather"},
              "messages": [{"role": "user", "content": "Weather in Paris?"}], "extra_body": GREEDY}
    if streamed:
        with claude.messages.stream(**fields) as stream:
            message = stream.get_final_message()
    else:
        message = claude.messages.create(**fields)
    use = message.content[-1]
    assert message.stop_reason == "tool_use" and use.type == "tool_use" and use.name == "get_weather"
    assert isinstance(use.input, dict)
    result = {"type": "tool_result", "tool_use_id": use.id, "content": [{"type": "text", "text": "sunny"}]}
    history = fields["messages"] + [{"role": "assistant", "content": [b.model_dump() for b in message.content]},
                                    {"role": "user", "content": [result, {"type": "text", "text": "So?"}]}]
    second = claude.messages.create(model="x", max_tokens=20, tools=[WEATHER], messages=history)
    assert second.usage.cache_read_input_tokens > 0


def test_the_billing_header_does_not_spoil_the_cache(claude, server):
    def ask(nonce):
        header = f"x-anthropic-billing-header: cc_version=2.1.37.0d9; cc_entrypoint=cli; cch={nonce};"
        system = [{"type": "text", "text": header}, {"type": "text", "text": long_text(400, 77)}]
        return say(claude, system=system, max_tokens=4).usage
    assert ask("fa690").cache_read_input_tokens == 0
    usage = ask("00001")
    assert usage.input_tokens == 0 and usage.cache_read_input_tokens > 100


def test_count_tokens(claude):
    counted = claude.messages.count_tokens(model="x", messages=[{"role": "user", "content": "Why do we need rain?"}])
    usage = say(claude).usage
    assert counted.input_tokens == usage.input_tokens + usage.cache_read_input_tokens


def test_stop_sequences(claude):
    whole = say(claude).content[0].text
    message = say(claude, stop_sequences=[whole[5:9]])
    assert message.stop_reason == "stop_sequence" and message.stop_sequence == whole[5:9]


@pytest.mark.parametrize("fields", [
    {"max_tokens": None}, {"max_tokens": 0}, {"messages": []}, {"messages": [{"role": "user"}]},
    {"messages": [{"role": "tool", "content": "x"}]}, {"messages": [{"role": "user", "content": [{"type": "image"}]}]},
    {"system": 5}, {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, {"tool_choice": {"type": "maybe"}},
    {"thinking": {"type": "perhaps"}}, {"thinking": True}, {"temperature": "warm"}, {"tools": [5]},
    {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "name": "f", "input": "x"}]}]},
    {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "input": {}}]}]},
    {"tools": [{"name": "", "input_schema": {}}]}, {"mcp_servers": [{"type": "url", "url": "https://x", "name": "x"}]},
])
def test_bad_messages(server, fields):
    body = {"model": "x", "max_tokens": 4, "messages": [{"role": "user", "content": "Hi"}]} | fields
    answer = server.post("/v1/messages", body)
    assert answer.status_code == 400, answer.text
    assert answer.json()["type"] == "error" and answer.json()["error"]["type"] == "invalid_request_error"


def test_completions_with_text_ids_and_lists(server):
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none")
    ask = lambda prompt, **more: client.completions.create(model="lily", prompt=prompt, temperature=0, max_tokens=12, **more)
    text = ask("The fox went to the")
    ids = server.post("/tokenize", {"content": "The fox went to the"}).json()["tokens"]
    assert ask(ids).choices[0].text == text.choices[0].text
    both = ask(["The fox went to the", "Once upon"])
    assert [c.index for c in both.choices] == [0, 1] and both.choices[0].text == text.choices[0].text
    assert [c.text for c in ask([ids, ids]).choices] == [text.choices[0].text] * 2
    assert "".join(c.choices[0].text for c in ask(ids, stream=True) if c.choices) == text.choices[0].text


def test_echo_scores_the_prompt(server):
    """What lm-eval asks for: the log-probabilities of a text, which must sum like those of its continuation."""
    prompt = "The fox went to the river and"
    body = {"prompt": prompt, "max_tokens": 0, "echo": True, "logprobs": 1, "temperature": 0}
    choice = server.post("/v1/completions", body).json()["choices"][0]
    scores = choice["logprobs"]
    assert choice["text"] == prompt and "".join(scores["tokens"]) == prompt
    assert scores["token_logprobs"][0] is None and all(p <= 0 for p in scores["token_logprobs"][1:])
    assert len(scores["tokens"]) == len(scores["token_logprobs"]) == len(scores["top_logprobs"]) == len(scores["text_offset"])
    greedy = server.post("/v1/completions", {"prompt": prompt, "max_tokens": 6, "logprobs": 1, "temperature": 0}).json()
    said = greedy["choices"][0]
    again = server.post("/v1/completions", body | {"prompt": prompt + said["text"]}).json()["choices"][0]["logprobs"]
    if again["tokens"][len(scores["tokens"]):] == said["logprobs"]["tokens"]:
        for a, b in zip(again["token_logprobs"][len(scores["tokens"]):], said["logprobs"]["token_logprobs"]):
            assert abs(a - b) < 0.05


@pytest.mark.parametrize("fields", [{"prompt": None}, {"prompt": []}, {"prompt": 5}, {"prompt": [[]]}, {"prompt": [-1]},
                                    {"prompt": [10**7]}, {"prompt": ["a", 5]}, {"prompt": "a", "n": 3}, {"prompt": [1.5]},
                                    {"prompt": "a", "best_of": 3}, {"prompt": "a", "suffix": "b"}, {"prompt": [[1], "a", None]},
                                    {"prompt": "a", "logprobs": 99}, {"prompt": ["a"] * 1000}])
def test_bad_completions(server, fields):
    answer = server.post("/v1/completions", {"max_tokens": 2} | fields)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_tokenize_and_back(server):
    for text in ("Hello äöü 你好", "", "a\n\n b\t", "<|im_end|>"):
        tokens = server.post("/tokenize", {"content": text}).json()["tokens"]
        assert server.post("/detokenize", {"tokens": tokens}).json()["content"] == text
    for bad in ({"tokens": [-1]}, {"tokens": [10**9]}, {"tokens": "x"}, {"tokens": [1.5]}, {"tokens": [2**70]}, {}):
        assert server.post("/detokenize", bad).status_code == 400
    assert server.post("/tokenize", {"content": 5}).status_code == 400


def test_metrics_are_prometheus_text(server):
    answer = httpx.get(server.url + "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    for line in answer.text.splitlines():
        assert re.fullmatch(r"# (HELP|TYPE) lily_\w+ .+|lily_\w+ [-+.e0-9]+", line), line


def test_apply_template_takes_what_chat_takes(server):
    body = {"messages": [{"role": "user", "content": "Hi"}], "tools": [weather_tool()]}
    answer = server.post("/apply-template", body).json()
    assert "get_weather" in answer["prompt"] and answer["tokens"]
    json.dumps(answer)
