"""Anthropic's API with the embedded model."""

from cases import GREEDY, MESSAGES, post, serve, user

TOOL = {"name": "w", "description": "How the weather is", "input_schema": {
    "type": "object", "properties": {"city": {"enum": ["Oslo"]}}, "required": ["city"], "additionalProperties": False,
}}  # fmt: skip
VERSION = {"anthropic-version": "2023-06-01"}


def ask(messages=None, **fields):
    """Returns a short request, the most likely tokens."""
    return post(MESSAGES, **GREEDY | {"max_tokens": 16} | fields, messages=messages or user())


TALK = [*user("Hi"), {"role": "assistant", "content": [{"type": "text", "text": "Hello."}]}, *user("Bye")]
CASES = {
    "whole": ask(),
    "stream": ask(stream=True),
    "stream that ends by itself": ask(user("Hi"), stream=True, max_tokens=200),
    "system": ask(system="Be brief."),
    "system in parts": ask(system=[{"type": "text", "text": "Be"}, {"type": "text", "text": "brief.", "cache_control": {"type": "ephemeral"}}]),
    "turns": ask(TALK),
    "prefill": ask([*user(), {"role": "assistant", "content": "Once"}]),
    "system among the messages": ask([*user("Hi"), {"role": "system", "content": "Be brief."}]),
    "stop_sequences": ask(stop_sequences=["Pip"]),
    "stream, stop_sequences": ask(stop_sequences=["Pip"], stream=True),
    "sampled": ask(temperature=1, top_k=5, top_p=0.9, seed=4),
    "call": ask(tools=[TOOL], tool_choice={"type": "any"}, max_tokens=80),
    "stream, call": ask(tools=[TOOL], tool_choice={"type": "tool", "name": "w"}, max_tokens=80, stream=True),
    "no parallel calls": ask(tools=[TOOL], tool_choice={"type": "any", "disable_parallel_tool_use": True}, max_tokens=80),
    "no calls": ask(tools=[TOOL], tool_choice={"type": "none"}),
    "results": ask(
        [
            *user("Weather?"),
            {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "w", "input": {"city": "Oslo"}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "Rain."}]},
        ],
        tools=[TOOL],
        tool_choice={"type": "none"},
    ),
    "failed results": ask(
        [
            *user("Weather?"),
            {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "w", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "is_error": True, "content": [{"type": "text", "text": "No."}]}]},
        ]
    ),
    "thinking of a model that does not think": ask(thinking={"type": "enabled", "budget_tokens": 1024}),
    "output_config": ask(output_config={"format": {"type": "json_schema", "schema": {"enum": ["a"]}}}),
    "metadata": ask(metadata={"user_id": "x"}, context_management={"edits": []}, max_tokens=2),
    "count_tokens": post(f"{MESSAGES}/count_tokens", messages=user()),
    "count_tokens with tools": post(f"{MESSAGES}/count_tokens", messages=user(), tools=[TOOL], system="Be brief."),
    "x-api-key": post(MESSAGES, messages=user("Hi"), max_tokens=2, temperature=0, headers={"x-api-key": "key-shared", "Authorization": None, **VERSION}),
    "without max_tokens": post(MESSAGES, messages=user("Hi"), temperature=0),
    "no messages": post(MESSAGES, messages=[], max_tokens=2),
    "an image": ask([{"role": "user", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}]}]),
    "an unknown role": ask([{"role": "robot", "content": "Hi"}]),
    "an unknown model": ask(model="claude-none"),
    "a temperature below zero": ask(temperature=-1),
}


def record(wf_run, home):
    """Records the part."""
    return serve(wf_run, home, CASES)
