"""Tools and structured output: forced choices, streamed arguments, JSON that parses, exact replay in a tool loop."""

import json

import openai
import pytest

from lily_server import weather_tool

ASK = [{"role": "user", "content": "What is the weather in Paris?"}]
TOOLS = [weather_tool(), weather_tool("set_alarm", {"city": {"type": "string"}, "hour": {"type": "integer"}})]
SCHEMA = {"type": "object", "properties": {"answer": {"type": "string", "maxLength": 20}, "sure": {"type": "boolean"}},
          "required": ["answer", "sure"], "additionalProperties": False}
JSON_SCHEMA = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": SCHEMA}}


def deltas(server, **fields):
    body = {"messages": ASK, "temperature": 0, "max_tokens": 300, "reasoning_effort": "none"} | fields
    for _, data in server.stream("/v1/chat/completions", body):
        if data != "[DONE]" and isinstance(data, dict) and data["choices"]:
            yield data["choices"][0]


def test_required_is_enforced_and_arguments_are_json(server):
    choice = server.chat("Say hello.", tools=TOOLS[:1], tool_choice="required", max_tokens=300)["choices"][0]
    call = choice["message"]["tool_calls"][0]
    assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] is None
    assert call["type"] == "function" and call["function"]["name"] == "get_weather"
    assert isinstance(json.loads(call["function"]["arguments"]), dict)


@pytest.mark.parametrize("effort", ["none", "high"])
def test_named_is_enforced_also_after_thinking(server, effort):
    named = {"type": "function", "function": {"name": "set_alarm"}}
    choice = server.chat(ASK, tools=TOOLS, tool_choice=named, max_tokens=400, reasoning_effort=effort,
                         thinking_budget=40)["choices"][0]
    assert [c["function"]["name"] for c in choice["message"]["tool_calls"]] == ["set_alarm"]


def test_none_shows_no_tools_and_calls_none(server):
    message = server.chat(ASK, tools=TOOLS, tool_choice="none")["choices"][0]["message"]
    assert not message.get("tool_calls")
    shown = lambda choice: server.post("/apply-template", {"messages": ASK, "tools": TOOLS, "tool_choice": choice}).json()
    assert "set_alarm" in shown("auto")["prompt"] and "set_alarm" not in shown("none")["prompt"]


def test_auto_may_call(server):
    choice = server.chat(ASK, tools=TOOLS[:1], max_tokens=300)["choices"][0]
    assert (choice["finish_reason"] == "tool_calls") == bool(choice["message"].get("tool_calls"))


@pytest.mark.parametrize("choice", ["required", "auto", {"type": "function", "function": {"name": "get_weather"}}])
def test_streamed_calls_come_name_first_then_fragments(server, choice):
    calls, fragments, reason = {}, {}, None
    for part in deltas(server, tools=TOOLS[:1], tool_choice=choice):
        reason = part["finish_reason"] or reason
        for call in part["delta"].get("tool_calls") or []:
            if call["index"] not in calls:
                assert call["id"] and call["function"]["name"] == "get_weather" and call["type"] == "function"
                calls[call["index"]] = call["id"]
                fragments[call["index"]] = []
            else:
                assert "id" not in call and "name" not in call["function"]
            fragments[call["index"]].append(call["function"]["arguments"])
    if choice != "auto":
        assert calls
    for parts in fragments.values():
        assert isinstance(json.loads("".join(parts)), dict)
    assert reason == ("tool_calls" if calls else "stop")


def test_parallel_calls_can_be_forbidden(server):
    for choice in ("auto", "required"):
        message = server.chat(ASK, tools=TOOLS, tool_choice=choice, parallel_tool_calls=False, max_tokens=300)
        assert len(message["choices"][0]["message"].get("tool_calls") or []) <= 1


def test_sdk_accumulates_streamed_calls(server):
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none")
    with client.chat.completions.stream(model="lily", messages=ASK, tools=TOOLS[:1], tool_choice="required", temperature=0,
                                        max_tokens=300, reasoning_effort="none") as stream:
        for _ in stream:
            pass
        call = stream.get_final_completion().choices[0].message.tool_calls[0]
    assert call.function.name == "get_weather" and isinstance(json.loads(call.function.arguments), dict)


@pytest.mark.parametrize("effort", ["none", "low"])
@pytest.mark.parametrize("streamed", [False, True])
def test_json_schema_is_enforced_after_the_thinking(server, effort, streamed):
    fields = {"response_format": JSON_SCHEMA, "reasoning_effort": effort, "thinking_budget": 30, "max_tokens": 400}
    if streamed:
        parts = list(deltas(server, **fields))
        content = "".join(p["delta"].get("content") or "" for p in parts)
        thoughts = "".join(p["delta"].get("reasoning_content") or "" for p in parts)
    else:
        message = server.chat(ASK, **fields)["choices"][0]["message"]
        content, thoughts = message["content"], message.get("reasoning_content")
    value = json.loads(content)
    assert set(value) == {"answer", "sure"} and isinstance(value["sure"], bool)
    assert bool(thoughts) == (effort == "low")


def test_schema_with_thoughts_cut_by_the_limit_has_no_content(server):
    choice = server.chat(ASK, response_format=JSON_SCHEMA, reasoning_effort="high", max_tokens=4)["choices"][0]
    assert choice["finish_reason"] == "length" and not choice["message"]["content"]


def test_json_object(server):
    for seed in range(3):
        reply = server.chat("Give me JSON with a name.", response_format={"type": "json_object"}, temperature=1, seed=seed,
                            max_tokens=1000)
        if reply["choices"][0]["finish_reason"] == "stop":
            assert isinstance(json.loads(reply["choices"][0]["message"]["content"]), dict)


def test_schema_ends_even_where_end_tokens_are_ignored(server):
    choice = server.chat(ASK, response_format=JSON_SCHEMA, ignore_eos=True, max_tokens=400)["choices"][0]
    json.loads(choice["message"]["content"])


def test_schema_with_tools_gives_json_or_a_call(server):
    for seed in range(4):
        choice = server.chat(ASK, tools=TOOLS[:1], response_format=JSON_SCHEMA, temperature=1, seed=seed,
                             max_tokens=600)["choices"][0]
        if choice["finish_reason"] == "stop":
            json.loads(choice["message"]["content"])
        elif choice["finish_reason"] == "tool_calls":
            json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"])


@pytest.mark.parametrize("schema", [
    {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1, "maximum": 5}}, "required": ["n"]},
    {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 1, "maxItems": 3},
    {"anyOf": [{"const": 1}, {"type": "null"}]},
    {"type": "object", "properties": {"next": {"$ref": "#"}, "v": {"const": 1}}, "required": ["v"]},
    {"type": "string", "pattern": "^[a-c]{2,4}$"},
    {"type": "string", "format": "date"},
    True, {},
])
def test_many_schemas(server, schema):
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    choice = server.chat("Answer.", response_format=wanted, max_tokens=200)["choices"][0]
    if choice["finish_reason"] == "stop":
        json.loads(choice["message"]["content"])


@pytest.mark.parametrize("schema", [
    {"type": "foo"}, {"$ref": "#/nowhere"}, {"type": "string", "pattern": "("}, "text", 3, [], False,
    {"type": "object", "properties": 3}, {"enum": []}, {"anyOf": []}, {"minItems": -1, "type": "array"},
    {"type": "array", "items": {"type": "string"}, "minItems": 1000000000},
    {"type": "string", "minLength": 1000000000},
    {"type": "string", "pattern": "(a{1000}){1000}"},
    {"allOf": [{"type": "string"}, {"type": "integer"}]},
])
def test_bad_schemas_are_refused_or_served_but_never_harm(server, schema):
    body = {"messages": ASK, "max_tokens": 4, "reasoning_effort": "none",
            "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}
    answer = server.post("/v1/chat/completions", body)
    assert answer.status_code in (200, 400), answer.text
    if answer.status_code == 400:
        assert answer.json()["error"]["type"] == "invalid_request_error"
    assert server.chat("Hi", max_tokens=1)


@pytest.mark.parametrize("schema,why", [
    ({"$ref": "#"}, "no value"),
    ({"type": "object", "properties": {f"p{i}": {} for i in range(2000)}}, "properties"),
    ({"anyOf": [{"enum": list(range(600))}, {"enum": list(range(600))}]}, "enumerated"),
    ({"const": "x" * 200000}, "bytes"),
])
def test_schemas_that_cannot_or_would_take_minutes_say_so(server, schema, why):
    chat = {"messages": ASK, "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}
    responses = {"input": "Hi", "text": {"format": {"type": "json_schema", "name": "x", "schema": schema}}}
    for path, body in (("/v1/chat/completions", chat), ("/v1/responses", responses)):
        answer = server.post(path, body)
        assert answer.status_code == 400 and why in answer.json()["error"]["message"], answer.text


@pytest.mark.parametrize("arguments", [
    '{"city": "Paris"}', {"city": "Paris"}, "", "{}", "[1]", '{"a":1.0,"b":1e3,"z":0,"a2":"é"}', "{broken", "null", None,
    "[" * 100000 + "]" * 100000, '{"a":' * 5000 + "1" + "}" * 5000,
])
def test_arguments_in_any_form_are_rendered_or_refused(server, arguments):
    call = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
    messages = ASK + [{"role": "assistant", "content": None, "tool_calls": [call]},
                      {"role": "tool", "tool_call_id": "call_1", "content": "sunny"}]
    answer = server.post("/v1/chat/completions", {"messages": messages, "tools": TOOLS, "max_tokens": 4})
    assert answer.status_code in (200, 400), answer.text
    if isinstance(arguments, str) and len(arguments) < 100:
        assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("resent", ["whole", "without reasoning", "other spelling of the arguments"])
def test_a_tool_loop_finds_its_prefix_whatever_the_client_sends_back(server, resent):
    ask = [{"role": "system", "content": f"Case {resent}."}] + ASK
    first = server.chat(ask, tools=TOOLS[:1], tool_choice="required", reasoning_effort="high", thinking_budget=30,
                        max_tokens=400)
    said = first["choices"][0]["message"]
    assert said["reasoning_content"]
    if resent != "whole":
        del said["reasoning_content"]
    if resent.startswith("other"):
        arguments = json.loads(said["tool_calls"][0]["function"]["arguments"])
        said["tool_calls"][0]["function"]["arguments"] = json.dumps(arguments, indent=3)
    result = {"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": "sunny"}
    second = server.chat(ask + [said, result], tools=TOOLS[:1], reasoning_effort="high", max_tokens=8)
    known = first["usage"]["prompt_tokens"] + first["usage"]["completion_tokens"] - 2
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] >= known


def test_raw_values_pass_untouched(server):
    """Shell commands in the history are text, not XML."""
    command = "pwd && ls -la <a >b; echo \"x<y\" '&amp;'"
    call = {"id": "1", "type": "function", "function": {"name": "run", "arguments": json.dumps({"command": command})}}
    messages = ASK + [{"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "content": "ok"}]
    prompt = server.post("/apply-template", {"messages": messages}).json()["prompt"]
    assert f"<parameter=command>\n{command}\n</parameter>" in prompt
