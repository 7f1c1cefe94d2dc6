"""Ollama's API with the embedded model."""

from cases import delete, get, post, serve, user

PREDICT = {"temperature": 0, "num_predict": 12}
TOOL = {"type": "function", "function": {"name": "w", "parameters": {
    "type": "object", "properties": {"city": {"enum": ["Oslo"]}}, "required": ["city"], "additionalProperties": False,
}}}  # fmt: skip


def chat(options=None, **fields):
    """Returns a short chat request, the most likely tokens."""
    fields = {"model": "default", "messages": user(), "stream": False} | fields
    return post("/api/chat", **fields, options=PREDICT | (options or {}))


def generate(options=None, **fields):
    """Returns a short request to continue a text or answer it."""
    fields = {"model": "default", "prompt": "Tell me of Pip.", "stream": False} | fields
    return post("/api/generate", **fields, options=PREDICT | (options or {}))


OPTIONS = {
    "num_ctx": {"num_ctx": 256},
    "a num_ctx that is too large": {"num_ctx": 100000},
    "sampled": {"temperature": 1, "top_k": 5, "top_p": 0.9, "min_p": 0.1, "seed": 4},
    "typical_p": {"temperature": 2, "typical_p": 0.5, "seed": 4},
    "mirostat": {"temperature": 2, "mirostat": 2, "mirostat_tau": 2, "mirostat_eta": 0.2, "seed": 4},
    "penalties": {"repeat_penalty": 1.5, "presence_penalty": 1.5, "frequency_penalty": 0.5, "num_predict": 24},
    "stop": {"stop": ["Pip"]},
    "num_predict -1": {"num_predict": -1, "stop": ["."]},
    "num_thread": {"num_thread": 4},
    "num_gpu": {"num_gpu": 1},
    "num_batch": {"num_batch": 512},
    "num_keep": {"num_keep": 4},
    "use_mmap": {"use_mmap": False},
    "use_mlock": {"use_mlock": True},
    "main_gpu": {"main_gpu": 1},
    "low_vram": {"low_vram": True},
    "numa": {"numa": True},
    "repeat_last_n": {"repeat_last_n": 64},
    "an unknown option": {"zebra": 1},
}
CASES = {
    "chat": chat(),
    "chat, stream": chat(stream=True),
    "chat, stream by default": post("/api/chat", model="default", messages=user("Hi"), options=PREDICT | {"num_predict": 3}),
    "chat, :latest": chat(model="default:latest"),
    "chat, format json": chat(format="json"),
    "chat, format schema": chat(format={"enum": ["a", "b"]}),
    "chat, call": chat(tools=[TOOL], options={"num_predict": 80}),
    "chat, results": chat(
        messages=[
            *user("Weather?"),
            {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "w", "arguments": {"city": "Oslo"}}}]},
            {"role": "tool", "tool_name": "w", "content": "Rain."},
        ]
    ),
    "chat, think": chat(think=True),
    "chat, think false": chat(think=False),
    "chat, logprobs": chat(logprobs=True, top_logprobs=1, options={"num_predict": 2}),
    "chat, images": chat(messages=[{"role": "user", "content": "Hi", "images": ["AA=="]}]),
    "chat, no messages": chat(messages=[]),
    "chat, keep_alive": chat(keep_alive="5m"),
    "chat, an unknown model": chat(model="none"),
    "chat, unknown fields": chat(zebra=1),
    "generate": generate(),
    "generate, stream": generate(stream=True),
    "generate, raw": generate(raw=True, prompt="Once upon a time"),
    "generate, system": generate(system="Be brief."),
    "generate, suffix": generate(suffix=" ball."),
    "generate, template": generate(template="{{ .Prompt }}"),
    "generate, context": generate(context=[1, 2]),
    "generate, format": generate(format={"enum": ["a", "b"]}),
    "generate, no prompt": post("/api/generate", model="default"),
    "tags": get("/api/tags"),
    "ps": get("/api/ps"),
    "show": post("/api/show", model="default"),
    "show, name": post("/api/show", name="default"),
    "show, an unknown model": post("/api/show", model="none"),
    "version": get("/api/version"),
    "pull": post("/api/pull", model="org/name"),
    "delete": delete("/api/delete", {"model": "default"}),
    "create": post("/api/create", model="x"),
    "copy": post("/api/copy", source="a", destination="b"),
    "push": post("/api/push", model="x"),
}
CASES |= {f"options, {name}": chat(options) for name, options in OPTIONS.items()}


def record(wf_run, home):
    """Records the part."""
    return serve(wf_run, home, CASES)
