"""Logits of llama.cpp and of `wf-run` for given tokens."""

import os
import subprocess
import sys

import numpy as np

# Another Python for llama.cpp, where the system's C library is older than its wheel needs.
LLAMA_PYTHON = os.environ.get("LLAMA_PYTHON", sys.executable)


def llama_logits(path, ids):
    """Logits of llama.cpp, in its own context; None with its complaint where it does not read the file."""
    code = """
import sys, numpy as np
from llama_cpp_py_sync._cffi_bindings import get_lib, get_ffi
lib, ffi = get_lib(), get_ffi()
lib.llama_backend_init()
mp = lib.llama_model_default_params()
mp.n_gpu_layers = 0
model = lib.llama_model_load_from_file(sys.argv[1].encode(), mp)
assert model != ffi.NULL
ids = np.load(sys.argv[2])
cp = lib.llama_context_default_params()
cp.n_ctx, cp.n_batch, cp.n_ubatch, cp.n_threads, cp.n_threads_batch, cp.flash_attn_type = 512, 512, 64, 1, 1, 0
ctx = lib.llama_init_from_model(model, cp)
batch = lib.llama_batch_init(len(ids), 0, 1)
for i, t in enumerate(ids):
    batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = int(t), i, 1, 1
    batch.seq_id[i][0] = 0
batch.n_tokens = len(ids)
assert lib.llama_decode(ctx, batch) == 0
n = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))
np.save(sys.argv[3], np.frombuffer(ffi.buffer(lib.llama_get_logits(ctx), 4 * n * len(ids)), np.float32).reshape(len(ids), n))
"""
    result = path.parent / "llama.npy"
    done = subprocess.run([LLAMA_PYTHON, "-c", code, path, ids, result], capture_output=True, text=True)
    if done.returncode == 0:
        logits = np.load(result)
        result.unlink()
        return logits, ""
    lines = [line for line in done.stderr.splitlines() if "error" in line.lower()]
    return None, (lines or done.stderr.splitlines() or ["?"])[0][:110]


def wf_logits(wf_run, model, ids):
    result = ids.parent / "wf-run.npy"
    tokens = ",".join(str(t) for t in np.load(ids))
    done = subprocess.run([wf_run, "logits", "-m", model, "--tokens", tokens, "--output", result, "--force"], capture_output=True, text=True)
    if done.returncode:
        return None, done.stderr.strip()[:300]
    logits = np.load(result)
    result.unlink()
    return logits, ""
