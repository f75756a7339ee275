"""langchain_job.py LILY: LangChain's chat model: streaming, tools, structured output."""

import pathlib
import sys

from langchain_openai import ChatOpenAI
from pydantic import BaseModel

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from lily_server import Server  # noqa: E402


class Answer(BaseModel):
    answer: str
    sure: bool


def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


with Server(sys.argv[1], "--ctx", 4096) as server:
    for responses in (False, True):
        thinking = {"reasoning": {"effort": "none"}} if responses else {"reasoning_effort": "none"}
        chat = ChatOpenAI(model="lily", base_url=server.url + "/v1", api_key="none", temperature=0, max_tokens=300,
                          use_responses_api=responses, **thinking)
        whole = chat.invoke("Why do we need rain?")
        assert whole.text
        assert "".join(chunk.text for chunk in chat.stream("Why do we need rain?")) == whole.text
        called = chat.bind_tools([get_weather], tool_choice="get_weather").invoke("Weather in Paris?")
        assert called.tool_calls[0]["name"] == "get_weather"
        value = chat.with_structured_output(Answer, method="json_schema").invoke("Is honey healthy? Be brief.")
        assert isinstance(value, Answer)
print("langchain-openai: ok")
