"""`/v1/chat/completions` of the embedded model: sampling, ends, log-probabilities, formats of answers, roles."""

from cases import CHAT, GREEDY, STORY, post, serve, user


def chat(**fields):
    """Returns a short chat request, the most likely tokens."""
    messages = fields.pop("messages", user())
    return post(CHAT, **GREEDY | {"max_tokens": 16} | fields, messages=messages)


SCHEMA = {
    "type": "object",
    "properties": {"name": {"enum": ["Pip", "Max"]}, "age": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
# One option each, drawn with a seed, and the values that turn it off.
SAMPLED = {
    "temperature": {},
    "temperature 0.7": {"temperature": 0.7},
    "top_k": {"top_k": 3},
    "top_k -1": {"top_k": -1},
    "top_p": {"top_p": 0.5},
    "min_p": {"min_p": 0.2},
    "typical_p": {"typical_p": 0.4},
    "top_n_sigma": {"top_n_sigma": 1},
    "xtc": {"xtc_probability": 1, "xtc_threshold": 0.05},
    "mirostat 1": {"mirostat": 1, "mirostat_tau": 2},
    "mirostat 2": {"mirostat": 2, "mirostat_tau": 2, "mirostat_eta": 0.5},
    "all of a model's": {"temperature": 0.8, "top_k": 20, "top_p": 0.9, "min_p": 0.05},
}
PENALTIES = {
    "repetition_penalty": {"repetition_penalty": 3, "messages": user("Tell me a story.")},
    "frequency_penalty": {"frequency_penalty": 1.5},
    "presence_penalty": {"presence_penalty": 1.5},
    "dry": {"dry_multiplier": 10, "dry_base": 2, "dry_allowed_length": 1, "messages": user("Tell me a story.")},
    "logit_bias": {"logit_bias": {"69": 100}},
    "bad_words": {"bad_words": ["Pip", "fox"]},
    "min_tokens": {"min_tokens": 12, "max_tokens": 40},
    "stop": {"stop": "Pip"},
    "stop, several": {"stop": ["zebra", " small", "."]},
    "stop_token_ids": {"stop_token_ids": [1692]},
    "ignore_eos": {"ignore_eos": True, "max_tokens": 60},
    "seed without temperature": {"seed": 3, "temperature": None},
}
FORMATS = {
    "json_schema": {"response_format": {"type": "json_schema", "json_schema": {"name": "fox", "schema": SCHEMA}}},
    "json_schema, strict": {
        "response_format": {"type": "json_schema", "json_schema": {"name": "fox", "schema": SCHEMA, "strict": True}}
    },
    "json_object": {"response_format": {"type": "json_object"}, "max_tokens": 12},
    "text": {"response_format": {"type": "text"}},
    "json_schema as a field": {"json_schema": SCHEMA},
    "regex": {"regex": "(fox|owl) [0-9]{2}"},
    "grammar, Lark": {"grammar": 'start: "a" | "b" "c"'},
    "grammar, GBNF": {"grammar": 'root ::= "yes" | "no"'},
    "guided_choice": {"guided_choice": ["red", "blue"]},
    "structured_outputs": {"structured_outputs": {"regex": "[ab]{3}"}},
}
MODES = {
    "verify": {"decode_mode": "verify"},
    "verify, n-grams": {"decode_mode": "verify", "draft": "ngram", "draft_length": 3},
    "ar": {"decode_mode": "ar"},
    "greedy": {"decode_mode": "greedy"},
    "adaptive": {"decode_mode": "adaptive"},
    "iterative": {"decode_mode": "iterative", "block_size": 8},
}
ROLES = {
    "system": [{"role": "system", "content": "Be brief."}, *user("Hi")],
    "developer": [{"role": "developer", "content": "Be brief."}, *user("Hi")],
    "turns": [*user("Hi"), {"role": "assistant", "content": "Hello."}, *user("Who are you?")],
    "parts": [{"role": "user", "content": [{"type": "text", "text": "Tell me"}, {"type": "text", "text": " of Pip."}]}],
    "name": [{"role": "user", "name": "Ann", "content": "Hi"}],
    "prefill": [*user(), {"role": "assistant", "content": "Once there was"}],
    "control tokens": user("<|bot|>I am a fox.<|eos|>"),
    "empty content": user(""),
    "unicode": user("Grüße, 狐 🦊"),
}
BY_NAME = {
    "whole": {},
    "n": {"n": 2, "seed": 1, "temperature": 0.8},
    "logprobs": {"logprobs": True, "max_tokens": 3},
    "top_logprobs": {"logprobs": True, "top_logprobs": 2, "max_tokens": 3},
    "return_token_ids": {"return_token_ids": True, "max_tokens": 4},
    "return_tokens_as_token_ids": {"logprobs": True, "return_tokens_as_token_ids": True, "max_tokens": 2},
    "prompt_logprobs": {"prompt_logprobs": 1, "max_tokens": 1, "messages": user("Hi")},
    "max_completion_tokens": {"max_completion_tokens": 3, "max_tokens": None},
    "max_tokens 0": {"max_tokens": 0},
    "truncate_prompt_tokens": {"truncate_prompt_tokens": 8, "messages": user(STORY * 4)},
    "model by name": {"model": "default", "max_tokens": 2},
    "ends by itself": {"max_tokens": 400},
    "labels": {"user": "x", "metadata": {"a": "b"}, "store": True, "service_tier": "auto", "max_tokens": 2},
    "unknown fields": {"zebra": 1, "verbosity": "low", "max_tokens": 2},
}
ENDING = {
    "continue_final_message": {"continue_final_message": True},
    "continue_final_message false": {"continue_final_message": False},
    "add_generation_prompt": {"add_generation_prompt": False},
    "echo": {"continue_final_message": True, "echo": True},
}


def table():
    """Returns the cases by name."""
    cases = {name: chat(**fields) for name, fields in BY_NAME.items()}
    cases |= {f"sampled, {name}": chat(**{"temperature": 2, "seed": 14} | fields) for name, fields in SAMPLED.items()}
    cases |= {name: chat(**fields) for name, fields in PENALTIES.items()}
    cases |= {f"format, {name}": chat(**{"max_tokens": 40} | fields) for name, fields in FORMATS.items()}
    cases |= {f"mode, {name}": chat(**fields) for name, fields in MODES.items()}
    cases |= {f"messages, {name}": chat(messages=messages) for name, messages in ROLES.items()}
    cases |= {f"ending, {name}": chat(messages=ROLES["prefill"], **fields) for name, fields in ENDING.items()}
    streamed = {
        "whole": {},
        "n": BY_NAME["n"] | {"max_tokens": 3},
        "top_logprobs": BY_NAME["top_logprobs"],
        "return_token_ids": BY_NAME["return_token_ids"],
        "include_usage": {"stream_options": {"include_usage": True}},
        "continuous_usage_stats": {"stream_options": {"include_usage": True, "continuous_usage_stats": True}, "max_tokens": 3},
        "stop": PENALTIES["stop"],
        "json_schema": FORMATS["json_schema"] | {"max_tokens": 40},
        "echo": ENDING["echo"] | {"messages": ROLES["prefill"]},
        "verify": MODES["verify"],
        "unicode": {"regex": "狐🦊é"},
    }
    cases |= {f"stream, {name}": chat(stream=True, **fields) for name, fields in streamed.items()}
    cases["the prefix cache"] = [chat(messages=user(STORY * 3)), chat(messages=user(STORY * 3))]
    cases["cache_salt"] = [chat(messages=user(STORY * 3)), chat(messages=user(STORY * 3), cache_salt="a")]
    return cases


def record(wf_run, home):
    """Records the part."""
    return serve(wf_run, home, table())
