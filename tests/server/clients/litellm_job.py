"""litellm_job.py LILY: litellm's whole and streamed replies, tools and errors."""

import json
import os
import pathlib
import sys

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it asks GitHub for a new one

import litellm  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from lily_server import Server, weather_tool  # noqa: E402

with Server(sys.argv[1], "--ctx", 4096) as server:
    common = {"model": "openai/lily", "api_base": server.url + "/v1", "api_key": "none", "temperature": 0,
              "messages": [{"role": "user", "content": "Why do we need rain?"}], "reasoning_effort": "none",
              "allowed_openai_params": ["reasoning_effort"]}
    whole = litellm.completion(**common, max_tokens=40)
    text = whole.choices[0].message.content
    assert text and whole.usage.completion_tokens > 0
    chunks = list(litellm.completion(**common, max_tokens=40, stream=True, stream_options={"include_usage": True}))
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == text
    called = litellm.completion(**common, max_tokens=300, tools=[weather_tool()], tool_choice="required")
    call = called.choices[0].message.tool_calls[0]
    assert call.function.name == "get_weather" and isinstance(json.loads(call.function.arguments), dict)
    try:
        litellm.completion(**common | {"messages": [{"role": "user", "content": "word " * 9000}]})
        raise SystemExit("too long a prompt was taken")
    except litellm.ContextWindowExceededError:
        pass
    anthropic = litellm.completion(model="anthropic/lily", api_base=server.url, api_key="none", max_tokens=20,
                                   messages=common["messages"])
    assert anthropic.choices[0].message.content
print("litellm: ok")
