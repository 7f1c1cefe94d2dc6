"""Requests that are wrong: each API's status and words."""

from cases import CHAT, MESSAGES, RESPONSES, TEXT, delete, get, post, serve, user

VALUES = {
    "temperature": [-1, 1e9, "hot"],
    "top_p": [0, 2],
    "top_k": [-5, 1.5],
    "min_p": [2],
    "n": [0, 1000],
    "max_tokens": [-1, "4", 1e30],
    "seed": ["x"],
    "stop": [[""], ["a"] * 100, 5],
    "stop_token_ids": [[99999]],
    "logit_bias": [{"99999": 1}, {"fox": 1}, [1]],
    "top_logprobs": [3, 100],
    "repetition_penalty": [0],
    "frequency_penalty": ["x"],
    "mirostat": [7],
    "bad_words": [[""]],
    "response_format": [{"type": "xml"}, {"type": "json_schema"}, {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "zebra"}}}],
    "json_schema": [{"type": "array", "uniqueItems": True}, {"$ref": "#/no"}, "x"],
    "regex": ["(", 5],
    "grammar": ["start: ", "root ::= x"],
    "tools": [[{"type": "function"}], [{"type": "function", "function": {"name": "a b"}}], [{"type": "web"}], "x"],
    "tool_choice": ["required", {"type": "function", "function": {"name": "no"}}, "maybe"],
    "stream_options": [{"include_usage": True}],
    "decode_mode": ["fast"],
    "documents": ["x"],
    "reasoning_effort": ["lots"],
    "thinking_budget": [-1],
    "truncate_prompt_tokens": [-2, 0],
    "add_generation_prompt": [3],
}
MESSAGE = {
    "no messages": [],
    "no role": [{"content": "Hi"}],
    "unknown role": [{"role": "robot", "content": "Hi"}],
    "content is a number": [{"role": "user", "content": 5}],
    "an image": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,x"}}]}],
    "an unknown part": [{"role": "user", "content": [{"type": "smell"}]}],
    "a tool result without its call": [{"role": "tool", "content": "Rain."}],
    "arguments that are no JSON": [*user(), {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{"}}]}],
    "too long": user("fox " * 2000),
}
CASES = {
    "no such path": get("/v1/none"),
    "the wrong method": get(CHAT),
    "no key": [get("/v1/models", {"Authorization": None}), post(MESSAGES, messages=user(), max_tokens=1, headers={"Authorization": None}), post("/api/chat", model="default", messages=user(), headers={"Authorization": None})],
    "the wrong key": get("/v1/models", {"Authorization": "Bearer wrong"}),
    "no JSON": [post(path, "{") for path in (CHAT, TEXT, RESPONSES, MESSAGES, "/api/chat", "/completion", "/tokenize", "/v1/embeddings")],
    "an empty body": [post(path, "") for path in (CHAT, MESSAGES, "/api/generate")],
    "not an object": [post(path, "[]") for path in (CHAT, TEXT, RESPONSES, MESSAGES, "/api/chat", "/completion")],
    "no prompt": [post(path, {}) for path in (CHAT, TEXT, RESPONSES, MESSAGES, "/api/chat", "/api/generate", "/api/embed", "/completion", "/infill", "/tokenize", "/detokenize", "/apply-template", "/v1/embeddings")],
    "a prompt of another type": [post(TEXT, prompt=5), post(TEXT, prompt={}), post(TEXT, prompt=[1.5]), post("/completion", prompt=None), post(RESPONSES, input=5), post("/v1/embeddings", input=5)],
    "an unknown model": [post(path, model="none", messages=user(), max_tokens=1) for path in (CHAT, MESSAGES, "/api/chat")],
    "a duplicate field": post(CHAT, '{"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1, "max_tokens": 2}'),
    "deep JSON": post(CHAT, '{"messages": ' + "[" * 300 + "]" * 300 + "}"),
    "load and unload one model": [post("/v1/models/load", model="default"), post("/v1/models/unload", model="default")],
    "an unknown model by id": get("/v1/models/none"),
    "a response that is not there": [get("/v1/responses/none"), delete("/v1/responses/none")],
    "Ollama's options": [post("/api/chat", model="default", messages=user(), stream=False, options=options) for options in ({"temperature": -1}, {"top_k": "x"}, {"num_predict": "x"}, {"seed": 1.5}, [])],
    "too many tools": post(CHAT, messages=user(), tools=[{"type": "function", "function": {"name": f"f{i}"}} for i in range(200)]),
    "two tools of one name": post(CHAT, messages=user(), tools=[{"type": "function", "function": {"name": "f"}}] * 2),
    "two grammars": post(CHAT, messages=user(), regex="a", json_schema={"enum": ["a"]}),
    "an image to Ollama": post("/api/generate", model="default", prompt="x", images=["AA=="]),
}


def record(wf_run, home):
    """Records the part."""
    cases = CASES | {
        f"value, {name}": [post(CHAT, messages=user("Hi"), **{"max_tokens": 2, "temperature": 0, "seed": 1} | {name: v}) for v in values]
        for name, values in VALUES.items()
    }
    cases |= {f"messages, {name}": post(CHAT, messages=messages, max_tokens=2, temperature=0) for name, messages in MESSAGE.items()}
    return serve(wf_run, home, cases)
