"""Runs llama.cpp on a file: python llama.py MODEL REQUEST.json OUT.npz

The request has `text`, whose first `windows` windows of `length` tokens are computed each on its own. OUT
gets the ids [windows, length], the log-probability of each id behind those before it in `next`, and the
logits at every 16th place in `rows`. Each of `prompts` is continued greedily by `count` tokens.
"""

import ctypes
import json
import sys
import urllib.request

import numpy as np
import xllamacpp as llama
from xllamacpp import xllamacpp as module

# Threads of llama.cpp spin while they wait for each other, which takes minutes on busy cores.
THREADS = 1
STEP = 16


class Server:
    """Its server, for tokens and answers."""

    def __init__(self, path):
        p = llama.CommonParams()
        p.model.path = path
        p.n_ctx, p.n_parallel, p.n_gpu_layers, p.warmup = 1024, 1, 0, False
        p.cpuparams.n_threads = p.cpuparams_batch.n_threads = THREADS
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


class Opaque(ctypes.Structure):
    """Parameters that are passed on as they come; larger than any of the library's."""

    _fields_ = [("words", ctypes.c_int64 * 64)]


class ContextParams(ctypes.Structure):
    """The first fields of `llama_context_params`."""

    _fields_ = [
        *((name, ctypes.c_uint32) for name in ("n_ctx", "n_batch", "n_ubatch", "n_seq_max")),
        ("rest", ctypes.c_int64 * 64),
    ]


class Batch(ctypes.Structure):
    """`llama_batch`."""

    _fields_ = [
        ("n_tokens", ctypes.c_int32),
        ("token", ctypes.POINTER(ctypes.c_int32)),
        ("embd", ctypes.c_void_p),
        ("pos", ctypes.POINTER(ctypes.c_int32)),
        ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
        ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
        ("logits", ctypes.POINTER(ctypes.c_int8)),
    ]


class Library:
    """Its C interface: whole windows in one pass, as `llama-perplexity` computes them."""

    def __init__(self, path, length):
        self.lib = ctypes.CDLL(module.__file__)
        params = self.call("llama_model_default_params", Opaque)
        self.model = self.call("llama_model_load_from_file", ctypes.c_void_p, path.encode(), params)
        params = self.call("llama_context_default_params", ContextParams)
        defaults = (params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max)
        assert defaults == (512, 2048, 512, 1), f"llama_context_params begins with other fields: {defaults}"
        params.n_ctx = params.n_batch = params.n_ubatch = length
        self.context = self.call("llama_init_from_model", ctypes.c_void_p, ctypes.c_void_p(self.model), params)
        self.call("llama_set_n_threads", None, ctypes.c_void_p(self.context), THREADS, THREADS)
        self.batch = self.call("llama_batch_init", Batch, length, 0, 1)

    def call(self, name, result, *args):
        function = getattr(self.lib, name)
        function.restype = result
        return function(*args)

    def logits(self, ids, vocab):
        """Logits [ids, vocab] of tokens alone in the context."""
        memory = self.call("llama_get_memory", ctypes.c_void_p, ctypes.c_void_p(self.context))
        self.call("llama_memory_clear", None, ctypes.c_void_p(memory), True)
        self.batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            self.batch.token[i], self.batch.pos[i], self.batch.logits[i] = token, i, 1
            self.batch.n_seq_id[i], self.batch.seq_id[i][0] = 1, 0
        status = self.call("llama_decode", ctypes.c_int32, ctypes.c_void_p(self.context), self.batch)
        assert status == 0, f"llama_decode gives {status}"
        found = self.call("llama_get_logits", ctypes.POINTER(ctypes.c_float), ctypes.c_void_p(self.context))
        return np.ctypeslib.as_array(found, (len(ids), vocab)).copy()


def log_softmax(logits):
    rows = logits.astype(np.float64)
    rows -= rows.max(1, keepdims=True)
    return rows - np.log(np.exp(rows).sum(1, keepdims=True))


def main(path, request, out):
    request = json.load(open(request))
    length, windows = request["length"], request["windows"]
    server = Server(path)
    ids = np.array(server.tokenize(request["text"])[: length * windows]).reshape(windows, length)
    library = Library(path, length)
    following, rows = [], []
    for window in ids:
        logits = library.logits(window.tolist(), request["vocab"])
        following.append(log_softmax(logits)[np.arange(length - 1), window[1:]])
        rows.append(logits[::STEP])
    arrays = {"ids": ids, "next": np.concatenate(following), "rows": np.array(rows)}
    for i, prompt in enumerate(request["prompts"]):
        answer = server.complete(server.tokenize(prompt), n_predict=request["count"], repeat_penalty=1.0)
        arrays[f"answer{i}"] = answer["tokens"]
        arrays[f"prompt{i}"] = answer["tokens_evaluated"]
        arrays[f"text{i}"] = answer["content"]
    np.savez(out, **arrays)


if __name__ == "__main__":
    main(*sys.argv[1:])
