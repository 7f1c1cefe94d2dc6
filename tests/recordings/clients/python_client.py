"""Answers the requests of standard input with the Python module, and prints JSON."""

import json
import pickle
import sys

import numpy as np
import wrinklefree


def tried(call):
    """Returns a result, or the error's type and words."""
    try:
        return call()
    except Exception as error:  # Every error is recorded.
        return {"error": f"{type(error).__name__}: {error}"}


def shown(answer):
    """Returns a completion, or the chunks of a stream, as JSON."""
    fields = ("text", "reasoning", "calls", "tokens", "logprobs", "top_logprobs", "finish_reason", "prompt_tokens", "cached_tokens", "passes")
    if isinstance(answer, wrinklefree.Completion):
        calls = [[index, call.id, call.name, call.arguments] for index, call in enumerate(answer.tool_calls)]
        found = {"calls": calls} | {name: getattr(answer, name) for name in fields if name != "calls"}
        return {name: value for name in fields if (value := found[name]) not in (None, [], "")}
    chunks = list(answer)
    last = {name: getattr(chunks[-1], name) for name in fields[6:]}
    calls = [[call.index, call.id, call.name, call.arguments] for chunk in chunks for call in chunk.tool_calls]
    last |= {"calls": calls} if calls else {}
    reasoning = [chunk.reasoning for chunk in chunks]
    last |= {"reasoning": reasoning} if any(reasoning) else {}
    return {"text": [chunk.text for chunk in chunks], "tokens": [c.token for c in chunks if c.token is not None], **last}


def ask(engine, way, given, options):
    """Makes a request."""
    call = {"generate": engine.generate, "chat": engine.chat, "stream": engine.chat_stream}[way]
    return tried(lambda: shown(call(given, **options)))


def others(engine):
    """Returns the results of the other functions."""
    return {
        "name": engine.name,
        "sizes": [engine.vocab_size, engine.hidden_size, engine.context],
        "tokenize": tried(lambda: engine.tokenize("a fox")),
        "detokenize": tried(lambda: engine.detokenize([69, 872])),
        "detokenize an unknown id": tried(lambda: engine.detokenize([99999])),
        "embed": tried(lambda: engine.embed("a fox")[:4].tolist()),
        "embed with an unknown pooling": tried(lambda: engine.embed("a", pooling="max")),
        "logits": tried(lambda: engine.logits([69, 872])[:4].tolist()),
        "logits of nothing": tried(lambda: engine.logits([])),
        "stats": sorted(engine.stats()),
        "generate from ids": tried(lambda: engine.generate([69, 872], max_tokens=4, temperature=0).text),
        "generate from an array": tried(lambda: engine.generate(np.array([69, 872]), max_tokens=4, temperature=0).text),
        "generate from bytes": tried(lambda: engine.generate(b"a fox", max_tokens=4, temperature=0).text),
        "generate from floats": tried(lambda: engine.generate([1.5], max_tokens=4, temperature=0).text),
        "logit_bias": tried(lambda: engine.generate("A", max_tokens=2, temperature=0, logit_bias={69: 100}).text),
        "logit_bias of texts": tried(lambda: engine.generate("A", max_tokens=2, temperature=0, logit_bias={"69": 100}).text),
        "stop is a text": tried(lambda: engine.generate("Once", max_tokens=12, temperature=0, stop="a").text),
        "many logprobs": tried(lambda: engine.generate("A", max_tokens=1, temperature=0, logprobs=100).text),
        "temperature is true": tried(lambda: engine.generate("A", max_tokens=2, temperature=True).text),
        "pickle": tried(lambda: pickle.loads(pickle.dumps(engine.generate("A", max_tokens=2, temperature=0))).text),
        "load, a missing model": tried(lambda: wrinklefree.load("no-such-folder/model.gguf")),
        "load, an unknown option": tried(lambda: wrinklefree.load(zebra=1)),
        "load, no threads": tried(lambda: wrinklefree.load(threads=0)),
        "load, an unknown type": tried(lambda: wrinklefree.load(kv_dtype="f8")),
    }


def main():
    asked = json.load(sys.stdin)
    engines = {"default": wrinklefree.load(threads=1, context=512)}
    for name, folder in asked["models"].items():
        engines[name] = wrinklefree.load(folder, threads=1, context=512)
    answers = {name: ask(engines[model], *rest) for name, (model, *rest) in asked["requests"].items()}
    answers |= {f"function, {name}": answer for name, answer in others(engines["default"]).items()}
    json.dump(answers, sys.stdout)


main()
