"""The requests that the libraries of all languages answer: Python, C, npm."""

import json
import re
from pathlib import Path

import formats
import puppets
from cases import STORY
from cases.chat import SCHEMA
from layout import lines
from masks import Masks

DEFAULTS = Path(__file__).parents[3] / "docs/command-line.md"
USER = [{"role": "user", "content": STORY}]
TURNS = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"},
         {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "Who are you?"}]  # fmt: skip
SHORT = {"max_tokens": 12, "temperature": 0}
SAMPLED = {"max_tokens": 12, "temperature": 2, "seed": 6}
OPTIONS = {
    "greedy": SHORT,
    "sampled": SAMPLED,
    "top_k": SAMPLED | {"top_k": 3},
    "top_p": SAMPLED | {"top_p": 0.5},
    "min_p": SAMPLED | {"min_p": 0.2},
    "repetition_penalty": SHORT | {"repetition_penalty": 3, "max_tokens": 24},
    "frequency_penalty": SHORT | {"frequency_penalty": 2, "max_tokens": 24},
    "presence_penalty": SHORT | {"presence_penalty": -2, "max_tokens": 24},
    "stop": SHORT | {"stop": ["Max"]},
    "logprobs": SHORT | {"logprobs": 2, "max_tokens": 2},
    "verify": SHORT | {"decode_mode": "verify"},
    "adaptive": SHORT | {"decode_mode": "adaptive"},
    "nothing but a limit": {"max_tokens": 12},
    "max_tokens 0": {"max_tokens": 0},
    "a temperature below zero": SHORT | {"temperature": -1},
    "a temperature that is a text": SHORT | {"temperature": "hot"},
    "a negative seed": SHORT | {"seed": -1},
    "an unknown option": SHORT | {"zebra": 1},
    "an unknown mode": SHORT | {"decode_mode": "fast"},
}
# Options of grammars, which the npm package has not.
FORMS = {
    "json_schema": {"json_schema": SCHEMA, "max_tokens": 40, "temperature": 0},
    "regex": SHORT | {"regex": "(fox|owl) [0-9]{2}"},
    "grammar": SHORT | {"grammar": 'start: "a" | "b" "c"'},
    "two forms": SHORT | {"regex": "a", "grammar": 'start: "a"'},
    "a wrong expression": SHORT | {"regex": "("},
    "uniqueItems": SHORT | {"json_schema": {"type": "array", "uniqueItems": True}},
}
CHATS = {
    "turns": TURNS,
    "an unknown role": [{"role": "robot", "content": "Hi"}],
    "no messages": [],
    "no content": [{"role": "user"}],
    "content in parts": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
    "a tool's result": [*USER, {"role": "tool", "content": "Rain."}],
}

# Conversations with the answer that every shell gives: thinking, calls and text. A model of this name says
# it, in the format of its template.
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
ROUTE = {"type": "object", "properties": {"stops": {"type": "array", "items": {"type": "string"}}, "back": {"type": "boolean"}}}
TOOLS = {"tools": [{"type": "function", "function": {"name": name, "description": name, "parameters": schema}}
                   for name, schema in (("sun", CITY), ("route", ROUTE))]}  # fmt: skip
SUN, FAR = ("sun", {"city": "Oslo"}), ("route", {"stops": ["Oslo", "Rome"], "back": True})
CALL = {"id": "call_1", "type": "function", "function": {"name": "sun", "arguments": '{"city": "Oslo"}'}}
ASKED = [{"role": "user", "content": "Hi"}]
TOLD = [*ASKED, {"role": "assistant", "content": None, "reasoning_content": "Hm.", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": "It shines."}]  # fmt: skip
DOCUMENTS = {"documents": [{"title": "Sun", "text": "It shines."}]}
TALKS = {
    "thinking": ("xml-text", ASKED, {}, ("Hm, so.", [], "It is blue.")),
    "thinking, after a call": ("xml-text", TOLD, TOOLS, ("Hm, so.", [], "It is blue.")),
    "two calls": ("xml-two", ASKED, TOOLS, ("Hm.", [SUN, FAR], "I look.\n")),
    "two calls, streamed": ("xml-two", ASKED, TOOLS | {"stream": True}, ("Hm.", [SUN, FAR], "I look.\n")),
    "two calls in JSON": ("json-two", ASKED, TOOLS, ("", [SUN, FAR], "I look.\n")),
    "a call with an array": ("xml-far", ASKED, TOOLS, ("Hm.", [FAR], "")),
    "a call with an array, streamed": ("json-far", ASKED, TOOLS | {"stream": True}, ("", [FAR], "")),
    "no calls": ("json-plain", ASKED, TOOLS | {"tool_choice": "none"}, ("", [], "It is blue.")),
    "documents": ("json-plain", ASKED, DOCUMENTS, ("", [], "It is blue.")),
}
# Those that need a grammar, which the npm package has not.
HELD_TALKS = {
    "a JSON answer": ("json", ASKED, {"json_schema": SCHEMA, "max_tokens": 60}, ("", [], '{"name": "Pip", "age": 3}')),
    "a required call": ("calls", ASKED, TOOLS | {"tool_choice": "required", "parallel_tool_calls": False}, ("", [SUN], "")),
}
# Conversations that are refused.
REFUSED = {
    "documents without a place": ("bare", ASKED, DOCUMENTS),
    "an unknown choice": ("json-plain", ASKED, TOOLS | {"tool_choice": "maybe"}),
    "a choice of no tool": ("json-plain", ASKED, TOOLS | {"tool_choice": {"type": "function", "function": {"name": "moon"}}}),
    "a name with a space": ("json-plain", ASKED, {"tools": [{"type": "function", "function": {"name": "a b"}}]}),
    "a tool without a function": ("json-plain", ASKED, {"tools": [{"type": "function"}]}),
    "tools that are a text": ("json-plain", ASKED, {"tools": "sun"}),
    "an old call without a name": ("json-plain", [*ASKED, {"role": "assistant", "content": "", "tool_calls": [{"function": {}}]}], {}),
}


def requests(forms=True):
    """Returns requests by name: model, way (`generate`, `chat` or `stream`), input, options."""
    table = {f"generate, {name}": ("default", "generate", "Once upon a time", o) for name, o in OPTIONS.items()}
    if forms:
        table |= {f"chat, {name}": ("default", "chat", USER, o) for name, o in FORMS.items()}
    table |= {f"chat, {name}": ("default", "chat", messages, SHORT) for name, messages in CHATS.items()}
    table["stream"] = ("default", "stream", USER, SHORT)
    table["stream, stop"] = ("default", "stream", USER, SHORT | {"stop": ["Pip"]})
    for script in ("thinks", "calls"):
        table[f"chat of a model that {script}"] = (script, "chat", [{"role": "user", "content": "Hi"}], {"max_tokens": 80})
        table[f"stream of a model that {script}"] = (script, "stream", [{"role": "user", "content": "Hi"}], {"max_tokens": 80})
    for name, (model, messages, options, *_) in talks(forms).items():
        way = "stream" if options.get("stream") else "chat"
        rest = {key: value for key, value in options.items() if key != "stream"}
        table[f"conversation, {name}"] = (model, way, messages, {"max_tokens": 200, "temperature": 0} | rest)
    return table


def talks(forms=True):
    """Returns the conversations by name."""
    return TALKS | (HELD_TALKS if forms else {}) | REFUSED


def joined(parts):
    """Returns calls of their parts: index, id, name, arguments."""
    calls = []
    for index, _, name, arguments in parts:
        if name is not None:
            calls.append([name, ""])
        assert index == len(calls) - 1, parts
        calls[-1][1] += arguments
    return calls


def pieces(said):
    """Returns the reasoning, the calls and the text of a message, or of the parts of one, in OpenAI's form."""
    reasoning, content = ("".join(part.get(key) or "" for part in said) for key in ("reasoning_content", "content"))
    parts = []
    for index, call in ((i, call) for part in said for i, call in enumerate(part.get("tool_calls") or [])):
        function = call["function"]
        parts.append((call.get("index", index), None, function.get("name"), function.get("arguments", "")))
    return reasoning, joined(parts), content


def check(name, reasoning, calls, text):
    """Compares the pieces of a conversation's answer with those that every shell gives."""
    _, _, _, *want = talks().get(name.removeprefix("conversation, "), (0, 0, 0))
    if not name.startswith("conversation, ") or not want:
        return
    [(thought, called, said)] = want
    reasoning, text = ("".join(part) if isinstance(part, list) else part for part in (reasoning, text))
    found = (reasoning.strip(), [[function, json.loads(arguments)] for function, arguments in calls], text.strip())
    if found != (thought, [list(call) for call in called], said.strip()):
        raise SystemExit(f"{name}: {found}, not {(thought, called, said)}")


def models(folder):
    """Writes the models that the requests name and returns their folders."""
    bare = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
    said = {
        "thinks": ("Hm, so.\n</think>\n\nIt is blue.", formats.template("qwen-xml")),
        "calls": (formats.calls("hermes", SUN), formats.template("hermes")),
        "xml-text": ("Hm, so.\n</think>\n\nIt is blue.", formats.template("qwen-xml")),
        "xml-two": ("Hm.\n</think>\n\nI look.\n" + formats.calls("qwen-xml", SUN, FAR), formats.template("qwen-xml")),
        "xml-far": ("Hm.\n</think>\n\n" + formats.calls("qwen-xml", FAR), formats.template("qwen-xml")),
        "json-two": ("I look.\n" + formats.calls("hermes", SUN, FAR), formats.template("hermes")),
        "json-far": (formats.calls("hermes", FAR), formats.template("hermes")),
        "json-plain": ("It is blue.", formats.template("hermes")),
        "json": ('{"name": "Pip", "age": 3}', formats.template("hermes")),
        "bare": ("It is blue.", bare),
    }
    for name, (text, template) in said.items():
        puppets.write(folder / name, text, template, hybrid=name in ("thinks", "xml-two"))
    return {name: folder / name for name in said}


def recording(way, given, options, answer):
    """Returns the recording of a request."""
    shown = f"{way} {json.dumps(given, ensure_ascii=False)} {json.dumps(options, ensure_ascii=False)}"
    return shown + "\n" + lines(Masks().value(answer))


def stated_defaults():
    """Returns the numbers that absent options mean, from the table of defaults."""
    rows = re.findall(r"^\| `(\w+)` \|[^|]+\|[^|]+\| ([\d.]+) \|[^|]+\|[^|]+\|$", DEFAULTS.read_text(), re.M)
    assert len(rows) > 12, rows
    return {name: json.loads(value) for name, value in rows}
