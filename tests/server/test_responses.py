"""/v1/responses: the openai SDK's types, the order of events, tools, schemas, and what a stateless server refuses."""

import json
import typing

import openai
import pytest
from openai.types.responses import Response, ResponseStreamEvent

# The SDK's class of each event.
TYPES = {typing.get_args(kind.model_fields["type"].annotation)[0]: kind
         for kind in typing.get_args(typing.get_args(ResponseStreamEvent)[0])}
SCHEMA = {"type": "object", "properties": {"answer": {"type": "string", "maxLength": 20}}, "required": ["answer"],
          "additionalProperties": False}
TOOL = {"type": "function", "name": "get_weather", "description": "The weather.", "strict": True,
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}
OFF = {"effort": "none"}


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


def create(client, said="Why do we need rain?", **fields):
    return client.responses.create(**{"model": "lily", "input": said, "temperature": 0, "max_output_tokens": 40,
                                      "reasoning": OFF} | fields)


def events_of(server, **fields):
    body = {"input": "Why do we need rain?", "temperature": 0, "max_output_tokens": 60, "reasoning": OFF} | fields
    events = [data for name, data in server.stream("/v1/responses", body) if name != ":"]
    for event in events:
        TYPES[event["type"]].model_validate(event)
    assert [e["sequence_number"] for e in events] == list(range(len(events)))
    assert [e["type"] for e in events[:2]] == ["response.created", "response.in_progress"]
    return events


def check_items(events):
    """Every item is opened, filled and closed before the next, and the closed items are the output."""
    items, current = [], None
    for event in events[2:-1]:
        kind = event["type"]
        assert event["output_index"] == len(items)
        if kind == "response.output_item.added":
            assert current is None
            current = event["item"]
        elif kind == "response.output_item.done":
            assert event["item"]["id"] == current["id"]
            items.append(event["item"])
            current = None
        else:
            assert event["item_id"] == current["id"]
    assert current is None and events[-1]["response"]["output"] == items
    return items


def test_sampling_is_told_as_it_was_sent(server):
    for fields, expected in (({"top_p": 0.95, "temperature": 0.7}, (0.95, 0.7)), ({"top_p": 0.123456789, "temperature": 0}, (0.123456789, 0)),
                             ({"top_p": None, "reasoning": OFF}, (0.8, 0.7)), ({}, (0.95, 1))):
        answer = server.post("/v1/responses", {"input": "Hi", "max_output_tokens": 1} | fields)
        assert (answer.json()["top_p"], answer.json()["temperature"]) == expected, fields


def test_whole_response(client):
    response = create(client)
    Response.model_validate(response.model_dump())
    assert response.status in ("completed", "incomplete") and response.output_text
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens


def test_streamed_text(server, client):
    events = events_of(server, max_output_tokens=40)
    [item] = check_items(events)
    deltas = "".join(e["delta"] for e in events if e["type"] == "response.output_text.delta")
    assert deltas == item["content"][0]["text"] == create(client).output_text
    kinds = [e["type"].removeprefix("response.") for e in events]
    assert kinds[2:4] == ["output_item.added", "content_part.added"]
    assert kinds[-4:-1] == ["output_text.done", "content_part.done", "output_item.done"]


def test_reasoning_comes_before_the_text(server):
    events = events_of(server, reasoning={"effort": "high"}, thinking_budget=20, max_output_tokens=100)
    items = check_items(events)
    assert [i["type"] for i in items] == ["reasoning", "message"]
    assert "".join(e["delta"] for e in events if e["type"] == "response.reasoning_text.delta") == items[0]["content"][0]["text"]
    assert events[-1]["response"]["usage"]["output_tokens_details"]["reasoning_tokens"] > 0


def test_cut_responses_are_incomplete(server, client):
    response = create(client, reasoning={"effort": "high"}, max_output_tokens=4)
    assert response.status == "incomplete" and response.incomplete_details.reason == "max_output_tokens"
    assert response.output_text == ""
    assert events_of(server, max_output_tokens=3)[-1]["type"] == "response.incomplete"


def test_function_calls_and_their_output(server, client):
    fields = {"tools": [TOOL], "tool_choice": "required", "max_output_tokens": 300}
    events = events_of(server, **fields)
    call = check_items(events)[-1]
    assert call["type"] == "function_call" and call["name"] == "get_weather" and call["call_id"]
    deltas = "".join(e["delta"] for e in events if e["type"] == "response.function_call_arguments.delta")
    assert deltas == call["arguments"] and isinstance(json.loads(deltas), dict)
    first = create(client, tools=[TOOL], tool_choice={"type": "function", "name": "get_weather"}, max_output_tokens=300,
                   instructions="Be brief.")
    call = next(item for item in first.output if item.type == "function_call")
    history = [{"role": "user", "content": "Why do we need rain?"}] + [i.model_dump() for i in first.output]
    history.append({"type": "function_call_output", "call_id": call.call_id, "output": "sunny"})
    second = create(client, history, tools=[TOOL], instructions="Be brief.")
    assert second.usage.input_tokens_details.cached_tokens >= first.usage.total_tokens - 2


def test_sdk_streams(client):
    with client.responses.stream(model="lily", input="Hi", reasoning=OFF, temperature=0, max_output_tokens=20) as stream:
        text = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
        assert stream.get_final_response().output_text == text


@pytest.mark.parametrize("effort", ["none", "low"])
def test_json_schema(client, effort):
    response = create(client, text={"format": {"type": "json_schema", "name": "a", "schema": SCHEMA, "strict": True}},
                      reasoning={"effort": effort}, max_output_tokens=400, extra_body={"thinking_budget": 20})
    assert set(json.loads(response.output_text)) == {"answer"}


def test_logprobs(client):
    response = create(client, include=["message.output_text.logprobs"], top_logprobs=2)
    part = response.output[0].content[0]
    assert "".join(entry.token for entry in part.logprobs).strip() == part.text.strip()


@pytest.mark.parametrize("content", ["Hi", [{"type": "input_text", "text": "Hi"}]])
def test_input_items(client, content):
    items = [{"role": "developer", "content": content}, {"type": "message", "role": "user", "content": content},
             {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
             {"role": "assistant", "content": [{"type": "output_text", "text": "Hello"}]}, {"role": "user", "content": content}]
    assert create(client, items).output_text


@pytest.mark.parametrize("fields,param", [
    ({"input": None}, "input"), ({"input": []}, "input"), ({"input": 5}, "input"), ({"input": [5]}, "input[0]"),
    ({"previous_response_id": "resp_1"}, "previous_response_id"), ({"conversation": "c"}, "conversation"),
    ({"background": True}, "background"), ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
    ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input[0].content"),
    ({"input": [{"role": "robot", "content": "x"}]}, "input[0].role"), ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
    ({"tools": 5}, "tools"), ({"text": {"format": {"type": "xml"}}}, "text.format.type"), ({"text": 5}, "text"),
    ({"reasoning": {"effort": "huge"}}, "reasoning.effort"), ({"max_output_tokens": 0}, "max_output_tokens"),
    ({"tool_choice": "maybe"}, "tool_choice"), ({"input": [{"type": "function_call", "call_id": "x"}]}, "input[0].name"),
])
def test_bad_requests(server, fields, param):
    answer = server.post("/v1/responses", {"input": "Hi"} | fields)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == param
