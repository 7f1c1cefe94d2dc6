"""`/v1/responses` of the embedded model: inputs, stored responses, streams."""

from cases import GREEDY, RESPONSES, delete, get, post, serve

EMBEDDED_CALL = {"type": "function", "name": "w", "parameters": {
    "type": "object", "properties": {"city": {"enum": ["Oslo"]}}, "required": ["city"], "additionalProperties": False,
}}  # fmt: skip


def respond(input="Tell me of Pip.", **fields):
    """Returns a short request, the most likely tokens."""
    return post(RESPONSES, **GREEDY | {"max_output_tokens": 16} | fields, input=input)


def message(role, text, kind="input_text"):
    """Returns an item of the conversation."""
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


SCHEMA = {"type": "object", "properties": {"a": {"enum": ["x"]}}, "required": ["a"], "additionalProperties": False}
CASES = {
    "whole": respond(),
    "stream": respond(stream=True),
    "stream that ends by itself": respond("Hi", stream=True, max_output_tokens=200),
    "instructions": respond(instructions="Be brief."),
    "items": respond([message("developer", "Be brief."), message("user", "Hi")]),
    "short messages": respond([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "Bye"}]),
    "an answer of the assistant": respond([message("user", "Hi"), message("assistant", "Hello.", "output_text"), message("user", "Bye")]),
    "top_logprobs": respond(top_logprobs=1, include=["message.output_text.logprobs"], max_output_tokens=2),
    "format": respond(text={"format": {"type": "json_schema", "name": "a", "schema": SCHEMA}}),
    "stream, format": respond(text={"format": {"type": "json_schema", "name": "a", "schema": SCHEMA}}, stream=True),
    "call": respond(tools=[EMBEDDED_CALL], tool_choice="required", max_output_tokens=80),
    "stream, call": respond(tools=[EMBEDDED_CALL], tool_choice={"type": "function", "name": "w"}, max_output_tokens=80, stream=True),
    "a server's tool": respond(tools=[{"type": "web_search"}], max_output_tokens=2),
    "sampled": respond(temperature=1, top_p=0.9, seed=4),
    "metadata": respond(metadata={"a": "b"}, user="x", max_output_tokens=2),
    "truncation": respond(truncation="auto", max_output_tokens=2),
    "stored and continued": [
        respond("Hi", max_output_tokens=4),
        get("/v1/responses/<resp_1>"),
        respond("Go on.", previous_response_id="<resp_1>", max_output_tokens=4),
        delete("/v1/responses/<resp_1>"),
        get("/v1/responses/<resp_1>"),
    ],
    "not stored": [respond("Hi", store=False, max_output_tokens=2), get("/v1/responses/<resp_1>")],
    "previous response that is unknown": respond(previous_response_id="resp_none"),
    "background": respond(background=True),
    "conversation": respond(conversation="c"),
    "input_tokens": post("/v1/responses/input_tokens", input="Hi", instructions="Be brief."),
    "input_tokens with a tool": post("/v1/responses/input_tokens", input="Hi", tools=[EMBEDDED_CALL]),
    "prompt_cache_key": respond(prompt_cache_key="k", client_metadata={"a": "b"}, max_output_tokens=2),
}


def record(wf_run, home):
    """Records the part."""
    return serve(wf_run, home, CASES)
