"""Conversations with calls, results and thinking: what the template is given, by format and API."""

import formats
import puppets
from cases import CHAT, GREEDY, MESSAGES, RESPONSES, post, serve, user
from cases.tools import TOOLS, chat_tools

ARGUMENTS = {
    "an object": '{"path": "a", "lines": [1, true, null]}',
    "cut": '{"path": ',
    "empty": "",
    "a list": "[1]",
    "a text": '"a"',
}


def talk(arguments):
    """Returns a conversation in which a call had these arguments."""
    call = {"id": "call_1", "type": "function", "function": {"name": "write", "arguments": arguments}}
    return [
        *user("Do it."),
        {"role": "assistant", "content": "I do.", "reasoning_content": "Hm.", "tool_calls": [call, call | {"id": "call_2"}]},
        {"role": "tool", "tool_call_id": "call_1", "content": "Done."},
        {"role": "tool", "tool_call_id": "call_2", "content": [{"type": "text", "text": "Done."}]},
        *user("Go on."),
    ]


def others(model):
    """Returns the same conversation in other APIs, and messages of other kinds."""
    items = [
        *user("Do it."),
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
        {"type": "function_call", "call_id": "c", "name": "write", "arguments": '{"path": "a"}'},
        {"type": "function_call_output", "call_id": "c", "output": "Done."},
        *user("Go on."),
    ]
    blocks = [
        *user("Do it."),
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "x"},
            {"type": "redacted_thinking", "data": "x"},
            {"type": "text", "text": "I do."},
            {"type": "tool_use", "id": "toolu_1", "name": "write", "input": {"path": "a"}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": "Done."},
            {"type": "text", "text": "Go on."},
        ]},
    ]  # fmt: skip
    ollama = [
        *user("Do it."),
        {"role": "assistant", "content": "", "thinking": "Hm.", "tool_calls": [{"function": {"name": "write", "arguments": {"path": "a"}}}]},
        {"role": "tool", "tool_name": "write", "content": "Done."},
    ]
    refusal = [*user("a"), {"role": "assistant", "content": [{"type": "refusal", "refusal": "I will not."}]}, *user("b")]
    search = {"type": "web_search_call", "id": "w", "status": "completed", "action": {"type": "search", "query": "fox"}}
    thinking = [*user("a"), {"role": "assistant", "content": "b", "reasoning": "c", "reasoning_content": "c"}, *user("d")]
    inside = [*user("a"), {"role": "assistant", "content": "<think>\nc\n</think>\n\nb"}, *user("d")]
    common = {"model": model, **GREEDY}
    return {
        "responses": post(RESPONSES, **common, input=items, max_output_tokens=3),
        "responses, tokens": post("/v1/responses/input_tokens", model=model, input=items),
        "messages": post(MESSAGES, **common, messages=blocks, max_tokens=3),
        "messages, tokens": post(f"{MESSAGES}/count_tokens", model=model, messages=blocks),
        "ollama": post("/api/chat", model=model, messages=ollama, stream=False, options={**GREEDY, "num_predict": 3}),
        "refusal": post("/apply-template", model=model, messages=refusal),
        "web_search_call": post(RESPONSES, **common, input=[*user("a"), search, *user("b")], max_output_tokens=3),
        "reasoning under two names": post("/apply-template", model=model, messages=thinking),
        "thinking inside the content": post("/apply-template", model=model, messages=inside),
        "an unfinished call": post("/apply-template", model=model, messages=talk("{}")[:2]),
        "documents": post("/apply-template", model=model, messages=user("Hi"), documents=[{"title": "a", "text": "b"}]),
        "system twice": post("/apply-template", model=model, messages=[{"role": "system", "content": "a"}, *user("b"), {"role": "system", "content": "c"}]),
    }


def record(wf_run, home):
    """Records the part."""
    cases = {}
    for name in formats.CALLS:
        puppets.write(home / "models" / name, "So it is.", formats.template(name))
        for what, text in ARGUMENTS.items():
            fields = {"model": name, "messages": talk(text), "tools": chat_tools(TOOLS[1:])}
            cases[f"{name}, arguments are {what}"] = [post("/apply-template", fields), post(CHAT, fields | GREEDY | {"max_tokens": 2})]
    cases |= {f"hermes, {what}": request for what, request in others("hermes").items()}
    cases |= {f"qwen-xml, {what}": request for what, request in others("qwen-xml").items()}
    return serve(wf_run, home, cases, "--models", str(home / "models"))
