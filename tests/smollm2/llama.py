"""Runs llama.cpp's server on a file: python llama.py MODEL REQUEST.json OUT.npz

The request has `text`, of whose first `length` tokens OUT gets the ids and the log-probability of each
behind those before it; at every 16th place all log-probabilities. Each of `prompts` is continued
greedily by `count` tokens.
"""

import json
import sys
import urllib.request

import numpy as np
import xllamacpp as llama

# Of so many tokens the server reports log-probabilities first: all of them take seconds.
LIKELY = 512


class Server:
    def __init__(self, path):
        p = llama.CommonParams()
        p.model.path = path
        p.n_ctx, p.n_parallel, p.n_gpu_layers, p.warmup = 1024, 1, 0, False
        p.cpuparams.n_threads = p.cpuparams_batch.n_threads = 2
        p.cache_type_k = p.cache_type_v = llama.ggml_type.GGML_TYPE_F32
        p.flash_attn_type = llama.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        self.server = llama.Server(p)

    def post(self, path, body):
        body = json.dumps(body).encode()
        request = urllib.request.Request(self.server.listening_address + path, body, {"Content-Type": "application/json"})
        return json.load(urllib.request.urlopen(request))

    def tokenize(self, text):
        return self.post("/tokenize", {"content": text, "add_special": False, "parse_special": True})["tokens"]

    def complete(self, ids, **more):
        return self.post("/completion", {"prompt": ids, "temperature": 0, "cache_prompt": True, "return_tokens": True, **more})

    def logprobs(self, ids, count):
        """Log-probabilities by id of the `count` most likely tokens behind `ids`."""
        answer = self.complete(ids, n_predict=1, n_probs=count)
        return {top["id"]: top["logprob"] for top in answer["completion_probabilities"][0]["top_logprobs"]}


def main(path, request, out):
    request = json.load(open(request))
    server = Server(path)
    ids = server.tokenize(request["text"])[: request["length"]]
    vocab = request["vocab"]
    next_logprobs, places, rows = [], [], []
    for end in range(1, len(ids)):
        every = end % 16 == 0
        found = server.logprobs(ids[:end], vocab if every else LIKELY)
        if ids[end] not in found:
            found = server.logprobs(ids[:end], vocab)
        next_logprobs.append(found[ids[end]])
        if every:
            places.append(end - 1)
            rows.append([found.get(id, -np.inf) for id in range(vocab)])
    arrays = {"ids": ids, "next": next_logprobs, "places": places, "rows": np.array(rows, np.float32)}
    for i, prompt in enumerate(request["prompts"]):
        answer = server.complete(server.tokenize(prompt), n_predict=request["count"], repeat_penalty=1.0)
        arrays[f"answer{i}"] = answer["tokens"]
        arrays[f"prompt{i}"] = answer["tokens_evaluated"]
        arrays[f"text{i}"] = answer["content"]
    np.savez(out, **arrays)


main(*sys.argv[1:])
