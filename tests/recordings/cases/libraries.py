"""The requests that the libraries of all languages answer: Python, C, npm."""

import json

import formats
import puppets
from cases import STORY
from cases.chat import SCHEMA
from layout import lines
from masks import Masks

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
    return table


def models(folder):
    """Writes the models that the requests name and returns their folders."""
    call = formats.calls("hermes", ("sun", {"city": "Oslo"}))
    puppets.write(folder / "thinks", "Hm, so.\n</think>\n\nIt is blue.", formats.template("qwen-xml"), hybrid=True)
    puppets.write(folder / "calls", call, formats.template("hermes"))
    return {name: folder / name for name in ("thinks", "calls")}


def recording(way, given, options, answer):
    """Returns the recording of a request."""
    shown = f"{way} {json.dumps(given, ensure_ascii=False)} {json.dumps(options, ensure_ascii=False)}"
    return shown + "\n" + lines(Masks().value(answer))
