"""`/v1/completions` of the embedded model, and `/tokenize`, `/detokenize`, `/apply-template`."""

from cases import GREEDY, TEXT, post, serve, user


def text(prompt="Once upon a time", **fields):
    """Returns a short request, the most likely tokens."""
    return post(TEXT, **GREEDY | {"max_tokens": 12} | fields, prompt=prompt)


TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
CASES = {
    "whole": text(),
    "several prompts": text(["Once", "A fox"], max_tokens=4),
    "token ids": text([69, 872, 472, 1692], max_tokens=4),
    "lists of token ids": text([[69, 872], [472, 1692]], max_tokens=4),
    "n": text(n=2, temperature=0.8, seed=1, max_tokens=4),
    "echo": text("A fox", echo=True, max_tokens=4),
    "echo with logprobs scores a prompt": text("A fox named Pip", echo=True, logprobs=1, max_tokens=0),
    "logprobs": text(logprobs=2, max_tokens=3),
    "prompt_logprobs": text("A fox", prompt_logprobs=1, max_tokens=1),
    "return_token_ids": text("A fox", return_token_ids=True, max_tokens=2),
    "return_tokens_as_token_ids": text(logprobs=1, return_tokens_as_token_ids=True, max_tokens=2),
    "stop": text(stop=["boy"]),
    "seed": text(temperature=1, seed=11),
    "negative seed": text(temperature=0, seed=-1, max_tokens=2),
    "suffix of a model without holes": text("Tom had a red", suffix=" ball.", max_tokens=1),
    "truncate_prompt_tokens": text("one two three four five six", truncate_prompt_tokens=3, echo=True, max_tokens=1),
    "truncation_side": text(
        "one two three four five six", truncate_prompt_tokens=3, truncation_side="right", echo=True, max_tokens=1
    ),
    "best_of": text(best_of=1, max_tokens=2),
    "best_of 2": text(best_of=2, max_tokens=2),
    "json_schema": text(json_schema={"enum": ["a", "b"]}),
    "n_predict": post(TEXT, prompt="A fox", n_predict=2, temperature=0),
    "empty prompt": text("", max_tokens=2),
    "stream": text(stream=True),
    "stream, several prompts": text(["Once", "A fox"], max_tokens=3, stream=True),
    "stream, logprobs": text(logprobs=1, max_tokens=3, stream=True),
    "stream, include_usage": text(stream=True, stream_options={"include_usage": True}, max_tokens=3),
    "stream, stop": text(stop=["boy"], stream=True),
    "stream, echo": text("A fox", echo=True, max_tokens=3, stream=True),
    "tokenize": post("/tokenize", prompt="a fox named Pip"),
    "tokenize content": post("/tokenize", content="a fox", with_pieces=True),
    "tokenize special tokens": post("/tokenize", prompt="<|bos|>a", add_special_tokens=False),
    "tokenize bytes": post("/tokenize", content="é狐", with_pieces=True),
    "tokenize token strings": post("/tokenize", prompt="a fox", return_token_strs=True),
    "tokenize messages": post("/tokenize", messages=user("Hi")),
    "tokenize messages with tools": post("/tokenize", messages=user("Hi"), tools=[TOOL]),
    "detokenize": post("/detokenize", tokens=[69, 872, 472, 1692]),
    "detokenize an unknown id": post("/detokenize", tokens=[99999]),
    "apply-template": post("/apply-template", messages=user("Hi")),
    "apply-template with tools": post("/apply-template", messages=user("Hi"), tools=[TOOL]),
    "apply-template, turns": post(
        "/apply-template", messages=[*user("Hi"), {"role": "assistant", "content": "Hello."}, *user("Bye")]
    ),
    "apply-template, prefill": post("/apply-template", messages=[*user("Hi"), {"role": "assistant", "content": "Hel"}]),
    "apply-template, bare": post("/apply-template", messages=user("Hi"), add_generation_prompt=False),
    "apply-template, documents": post("/apply-template", messages=user("Hi"), documents=[{"title": "a", "text": "b"}]),
}


def record(wf_run, home):
    """Records the part."""
    return serve(wf_run, home, CASES)
