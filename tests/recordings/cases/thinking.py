"""Hybrid models that think: reasoning apart from the answer, its switches and budgets, in all APIs."""

import formats
import puppets
from cases import CHAT, GREEDY, MESSAGES, RESPONSES, STORY, TEXT, post, serve, user

SCHEMA = {"type": "object", "properties": {"z": {"type": "string"}}, "required": ["z"], "additionalProperties": False}
SCRIPTS = {
    # The prompt ends inside the thinking.
    "open": "The Question: is\nold.\n</think>\n\nIt is blue Question: x",
    # The model begins the thinking, and may not.
    "optional": "<think>\nLet me see.\n</think>\n\nYes, it is a fox.",
    "never ends": "I wonder why it is so and so on, and on",
    "json": 'So.\n</think>\n\n{"z": "a/b"}',
    "plain": "No thought.",
}


def in_all_apis(model, stream, **fields):
    """Returns the same request in the four chat APIs and as a text."""
    common = {"model": model, "stream": stream, **GREEDY}
    return {
        "chat": post(CHAT, **common, max_tokens=100, messages=user(), **fields),
        "responses": post(RESPONSES, **common, max_output_tokens=100, input="Do it.", **fields),
        "messages": post(MESSAGES, **common, max_tokens=100, messages=user(), **fields),
        "ollama": post("/api/chat", model=model, stream=stream, options={**GREEDY, "num_predict": 100}, messages=user(), **fields),
        "generate": post("/api/generate", model=model, stream=stream, options={**GREEDY, "num_predict": 100}, prompt="Do it.", **fields),
    }


SWITCHES = {
    "enable_thinking false": {"enable_thinking": False},
    "chat_template_kwargs": {"chat_template_kwargs": {"enable_thinking": False}},
    "include_reasoning false": {"include_reasoning": False},
    "thinking_budget": {"thinking_budget": 4},
    "thinking_budget 0": {"thinking_budget": 0},
    "reasoning_effort none": {"reasoning_effort": "none"},
    "reasoning_effort minimal": {"reasoning_effort": "minimal"},
    "stop in the thinking": {"stop": ["\n"]},
    "stop in the answer": {"stop": ["Question:"]},
    "cut in the thinking": {"max_tokens": 4},
    "logprobs": {"logprobs": True, "max_tokens": 4},
    "json_schema": {"json_schema": SCHEMA, "model": "json"},
    "json_schema, plain": {"json_schema": SCHEMA, "model": "plain", "max_tokens": 24},
    "min_tokens": {"min_tokens": 60},
}
DIALECTS = {
    "responses, effort": post(RESPONSES, model="open", **GREEDY, input="Do it.", reasoning={"effort": "minimal", "summary": "auto"}),
    "responses, no effort": post(RESPONSES, model="open", **GREEDY, input="Do it.", reasoning={"effort": "none"}),
    "responses, stored reasoning": [
        post(RESPONSES, model="open", **GREEDY, input="Do it.", include=["reasoning.encrypted_content"]),
        post(RESPONSES, model="open", **GREEDY, input="Go on.", previous_response_id="<resp_1>"),
    ],
    "messages, thinking disabled": post(MESSAGES, model="open", **GREEDY, max_tokens=80, messages=user(), thinking={"type": "disabled"}),
    "messages, thinking enabled": post(MESSAGES, model="open", **GREEDY, max_tokens=2000, messages=user(), thinking={"type": "enabled", "budget_tokens": 1024}),
    "messages, thinking adaptive": post(MESSAGES, model="open", **GREEDY, max_tokens=80, messages=user(), thinking={"type": "adaptive"}),
    "messages, display omitted": post(MESSAGES, model="open", **GREEDY, max_tokens=80, messages=user(), thinking={"type": "adaptive", "display": "omitted"}),
    "ollama, think": post("/api/chat", model="open", stream=False, options=GREEDY, messages=user(), think=True),
    "ollama, think false": post("/api/chat", model="open", stream=False, options=GREEDY, messages=user(), think=False),
    "ollama, think low": post("/api/chat", model="open", stream=False, options=GREEDY, messages=user(), think="low"),
    "llama-server, /completion": post("/completion", model="open", **GREEDY, prompt="Do it.", n_predict=60),
    "text completion": post(TEXT, model="open", **GREEDY, prompt="Do it.", max_tokens=60),
    "reasoning_format none": post(CHAT, model="open", **GREEDY, messages=user(), reasoning_format="none"),
    "cached": [post(CHAT, model="open", **GREEDY, messages=user(STORY * 20), max_tokens=4)] * 2,
}


def record(wf_run, home):
    """Records the part."""
    for name, script in SCRIPTS.items():
        kind = "hermes" if name == "optional" else "qwen-xml"
        puppets.write(home / "models" / name.replace(" ", "-"), script, formats.template(kind), hybrid=True)
    cases = {}
    for name in SCRIPTS:
        for stream in (False, True):
            for api, request in in_all_apis(name.replace(" ", "-"), stream).items():
                if name in ("open", "optional") or api in ("chat", "messages"):
                    cases[f"{name}, {api}{', stream' if stream else ''}"] = request
    for name, fields in SWITCHES.items():
        body = {"model": "open", **GREEDY, "max_tokens": 100, "messages": user()} | fields
        cases[f"chat, {name}"] = [post(CHAT, body), post(CHAT, body | {"stream": True})]
    return serve(wf_run, home, cases | DIALECTS, "--models", str(home / "models"))
