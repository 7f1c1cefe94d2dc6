"""Fields of vLLM, SGLang and other servers in OpenAI's API: honored, refused or named as ignored."""

from cases import CHAT, GREEDY, TEXT, post, serve, user

SCHEMA = {"enum": ["a", "b"]}
# A field and the values to send.
FIELDS = {
    "guided_json": [SCHEMA, '{"enum": ["a", "b"]}'],
    "guided_regex": ["[ab]{3}"],
    "guided_choice": [["red", "blue"], []],
    "guided_grammar": ['root ::= "yes"'],
    "guided_decoding_backend": ["auto", "outlines"],
    "guided_whitespace_pattern": [" "],
    "structured_outputs": [{"json": SCHEMA}, {"choice": ["red"]}, {"grammar": 'root ::= "yes"'}, {"regex": "a", "choice": ["b"]}],
    "skip_special_tokens": [True, False],
    "spaces_between_special_tokens": [True, False],
    "include_stop_str_in_output": [True],
    "add_special_tokens": [True, False],
    "use_beam_search": [False, True],
    "length_penalty": [1.0, 2.0],
    "allowed_token_ids": [[69]],
    "min_tokens": [4],
    "priority": [0, 1],
    "request_id": ["x"],
    "echo": [False],
    "chat_template": ["{{ messages }}"],
    "chat_template_kwargs": [{"enable_thinking": False}, {"messages": []}],
    "mm_processor_kwargs": [{}],
    "logits_processors": [["x"]],
    "kv_transfer_params": [{}],
    "return_hidden_states": [False, True],
    "separate_reasoning": [True, False],
    "stream_reasoning": [False],
    "include_reasoning": [False],
    "lora_path": ["a"],
    "session_params": [{"id": "a"}],
    "stop_regex": ["a"],
    "no_stop_trim": [True],
    "custom_params": [{"a": 1}],
    "functions": [[{"name": "f"}]],
    "function_call": ["none", "auto"],
    "modalities": [["text"], ["audio"]],
    "audio": [{"voice": "x"}],
    "prediction": [{"type": "content", "content": "x"}],
    "web_search_options": [{}],
    "verbosity": ["low"],
    "service_tier": ["auto"],
    "reasoning_effort": ["low"],
    "parallel_tool_calls": [False],
    "logprobs": [5],
}


def record(wf_run, home):
    """Records the part."""
    cases = {}
    for name, values in FIELDS.items():
        requests = [post(CHAT, **GREEDY, max_tokens=4, messages=user("Hi"), **{name: value}) for value in values]
        cases[f"chat, {name}"] = requests
    for name in ["guided_json", "guided_regex", "use_beam_search", "include_stop_str_in_output", "add_special_tokens"]:
        requests = [post(TEXT, **GREEDY, max_tokens=4, prompt="A", **{name: value}) for value in FIELDS[name]]
        cases[f"text, {name}"] = requests
    return serve(wf_run, home, cases)
