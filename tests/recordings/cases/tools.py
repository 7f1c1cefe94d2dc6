"""Calls of puppets in all seven formats and all APIs, whole and streamed, complete and cut."""

import formats
import puppets
from cases import CHAT, GREEDY, MESSAGES, RESPONSES, post, serve, user

ARGUMENTS = {"path": "a b.md", "lines": [1, 2], "text": 'So "é"\n}', "deep": {"on": True}, "none": None}
SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "lines": {"type": "array", "items": {"type": "integer"}},
        "text": {"type": "string"},
        "deep": {"type": "object"},
        "none": {"type": ["null", "integer"]},
    },
    "required": ["path"],
}
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [("write", SCHEMA), ("sun", CITY)]
THOUGHT = "Hm.\n</think>\n\n"


def scripts(name):
    """Returns what the puppets of a format say, by the names of scripts."""
    thought = THOUGHT if name == "qwen-xml" else ""
    one = formats.calls(name, ("write", ARGUMENTS))
    return {
        "one": thought + one,
        "two": thought + formats.calls(name, ("write", {"path": "a"}), ("sun", {"city": "Oslo"})),
        "text": thought + "I look.\n" + one,
        "after": thought + one + "\nDone.",
        "cut": thought + one[: len(one) * 2 // 3],
        "unknown": thought + formats.calls(name, ("moon", {"a": 1})),
    }


def chat_tools(tools):
    """Returns tools as OpenAI's chat and Ollama take them."""
    return [{"type": "function", "function": {"name": name, "parameters": schema}} for name, schema in tools]


def in_all_apis(model, tools=TOOLS, limit=300, stream=False):
    """Returns the same request in the four chat APIs."""
    flat = [{"type": "function", "name": name, "parameters": schema} for name, schema in tools]
    anthropic = [{"name": name, "input_schema": schema} for name, schema in tools]
    fields = {**GREEDY, "model": model, "stream": stream}
    options = {**GREEDY, "num_predict": limit}
    return {
        "chat": post(CHAT, **fields, max_tokens=limit, messages=user(), tools=chat_tools(tools)),
        "responses": post(RESPONSES, **fields, max_output_tokens=limit, input="Do it.", tools=flat),
        "messages": post(MESSAGES, **fields, max_tokens=limit, messages=user(), tools=anthropic),
        "ollama": post("/api/chat", model=model, stream=stream, options=options, messages=user(), tools=chat_tools(tools)),
    }


def choices(model):
    """Returns requests whose calls are forced, forbidden, single or strict."""
    strict = [tool | {"function": tool["function"] | {"strict": True}} for tool in chat_tools([("sun", CITY | {"additionalProperties": False})])]
    fields = {
        "required": {"tool_choice": "required"},
        "none": {"tool_choice": "none"},
        "named": {"tool_choice": {"type": "function", "function": {"name": "sun"}}},
        "not parallel": {"parallel_tool_calls": False},
        "strict": {"tools": strict},
        "no tools": {"tools": None},
        "cut by max_tokens": {"max_tokens": 12},
        "cut by a stop string": {"stop": ["Oslo"]},
    }
    common = {**GREEDY, "model": model, "max_tokens": 200, "messages": user(), "tools": chat_tools(TOOLS)}
    return {name: post(CHAT, common | more) for name, more in fields.items()}


def record(wf_run, home):
    """Records the part."""
    cases = {}
    for name in formats.CALLS:
        for script, text in scripts(name).items():
            model = f"{name}-{script}"
            puppets.write(home / "models" / model, text, formats.template(name))
            # Grammars hold puppets to other texts than their own here, which do not end.
            limit = 80 if script in ("cut", "unknown") else 300
            for stream in (False, True):
                # Kinds of outputs in all APIs, where APIs differ: whole answers and streams of calls.
                for api, request in in_all_apis(model, limit=limit, stream=stream).items():
                    if api == "chat" or script in ("one", "two", "text"):
                        cases[f"{name}, {script}, {api}{', stream' if stream else ''}"] = request
        for choice, request in choices(f"{name}-two").items():
            cases[f"{name}, {choice}"] = request
        for stream in (False, True):
            for api, request in in_all_apis(f"{name}-one", limit=25, stream=stream).items():
                cases[f"{name}, cut by the limit, {api}{', stream' if stream else ''}"] = request
    return serve(wf_run, home, cases, "--models", str(home / "models"))
