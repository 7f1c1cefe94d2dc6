"""llama-server's API with the embedded model."""

from cases import get, post, serve, user


def complete(prompt="Once upon a time", **fields):
    """Returns a short request, the most likely tokens."""
    return post("/completion", **{"n_predict": 12, "temperature": 0} | fields, prompt=prompt)


SAMPLERS = {
    "sampled": {"temperature": 2, "top_k": 5, "top_p": 0.9, "min_p": 0.1},
    "typical_p": {"temperature": 2, "typical_p": 0.5},
    "top_n_sigma": {"temperature": 2, "top_n_sigma": 1},
    "xtc": {"temperature": 1, "xtc_probability": 1, "xtc_threshold": 0.05},
    "dry": {"dry_multiplier": 20, "dry_base": 2, "dry_allowed_length": 1, "dry_penalty_last_n": 32, "dry_sequence_breakers": ["\n"], "n_predict": 24},
    "mirostat": {"temperature": 2, "mirostat": 2, "mirostat_tau": 2, "mirostat_eta": 0.2},
    "penalties": {"repeat_penalty": 1.5, "presence_penalty": 1.5, "frequency_penalty": 0.5, "n_predict": 24},
    "logit_bias": {"logit_bias": [[69, 100]], "n_predict": 3},
    "samplers": {"temperature": 2, "samplers": ["top_k", "temperature"], "top_k": 3},
    "samplers in another order": {"temperature": 2, "samplers": ["temperature", "top_k"], "top_k": 3},
    "repeat_last_n": {"repeat_last_n": 64},
    "dynatemp_range": {"dynatemp_range": 0.5},
}
CASES = {
    "whole": complete(),
    "stream": complete(stream=True),
    "token ids": complete([69, 872]),
    "texts and ids": complete(["A fox", 472]),
    "several prompts": complete(["Once", "A fox"], n_predict=3),
    "prompt_string": complete({"prompt_string": "A fox"}, n_predict=3),
    "n_cmpl": complete(n_cmpl=2, temperature=1, seed=4, n_predict=3),
    "n_probs": complete(n_probs=2, n_predict=2),
    "stream, n_probs": complete(n_probs=1, n_predict=2, stream=True),
    "post_sampling_probs": complete(n_probs=2, post_sampling_probs=True, n_predict=2),
    "return_tokens": complete(return_tokens=True, n_predict=3),
    "timings_per_token": complete(timings_per_token=True, n_predict=2, stream=True),
    "response_fields": complete(response_fields=["content", "generation_settings/n_predict"]),
    "stop": complete(stop=["boy"]),
    "ignore_eos": complete(ignore_eos=True),
    "n_predict -1": complete(n_predict=-1, stop=["."]),
    "n_predict 0": complete(n_predict=0),
    "json_schema": complete(json_schema={"enum": ["a", "b"]}),
    "grammar": complete(grammar='root ::= "yes" | "no"'),
    "n_indent": complete("def f():\n    a\n", n_indent=4),
    "cache_prompt": [complete("Once upon a time " * 10, n_predict=1), complete("Once upon a time " * 10, n_predict=1)],
    "no cache_prompt": [complete("Once upon a time " * 10, n_predict=1), complete("Once upon a time " * 10, n_predict=1, cache_prompt=False)],
    "id_slot": complete(id_slot=0, n_predict=1),
    "too long": complete("fox " * 2000),
    "an unknown field": complete(zebra=1, n_predict=1),
    "n_keep": complete(n_keep=4, n_predict=1),
    "n_batch": complete(n_batch=4, n_predict=1),
    "lora": complete(lora=[{"id": 0, "scale": 1}], n_predict=1),
    "/completions": post("/completions", prompt="A fox", n_predict=3, temperature=0),
    "/chat/completions": post("/chat/completions", messages=user(), max_tokens=3, temperature=0),
    "/chat/completions, stream": post("/chat/completions", messages=user(), max_tokens=3, temperature=0, stream=True),
    "/chat/completions, too long": post("/chat/completions", messages=user("fox " * 2000)),
    "/responses": post("/responses", input="Hi", max_output_tokens=2, temperature=0),
    "/messages": post("/messages", messages=user("Hi"), max_tokens=2, temperature=0),
    "/models": get("/models"),
    "/infill": post("/infill", input_prefix="Tom had a red", input_suffix=" ball.", n_predict=2, top_k=1),
    "/props": get("/props"),
    "/slots": get("/slots"),
    "/slots/0 save": post("/slots/0?action=save", filename="a.slot"),
    "/slots/0 erase": post("/slots/0?action=erase", {}),
    "/slots/9 erase": post("/slots/9?action=erase", {}),
    "/lora-adapters": get("/lora-adapters"),
    "/v1/tokenize": post("/v1/tokenize", content="a fox"),
}
CASES |= {f"options, {name}": complete(**{"seed": 16} | fields) for name, fields in SAMPLERS.items()}


def record(wf_run, home):
    """Records the part."""
    return serve(wf_run, home, CASES, "--slot-save-path", str(home / "slots"))
