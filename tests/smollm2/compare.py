"""Compares wf-run with llama.cpp on SmolLM2-135M-Instruct: python compare.py WF_RUN FOLDER [--short]

FOLDER has the model in Q4_1. F16, Q8_0 and Q4_0 are made from its weights. Fails if greedy texts in
F16 differ, logits in F16 have a cosine below 0.9999, or a perplexity is more than 0.5 % away.
"""

import json
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T
from gguf import GGUFValueType

HERE = Path(__file__).parent
SOURCE = "SmolLM2-135M-Instruct.Q4_1.gguf"
PROMPTS = [
    "What is the capital of France?",
    "Name three colors of the rainbow.",
    "Why is the sky blue?",
    "Write a haiku about the sea.",
    "How many days has a week?",
    "Explain gravity to a child.",
    "Translate 'good morning' to Spanish.",
    "What is 12 + 30?",
    "List two uses of a hammer.",
    "Who wrote Romeo and Juliet?",
]
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
COSINE, PERPLEXITY, VOCAB = 0.9999, 0.005, 49152


def chat(prompt):
    """The prompt as the model's template renders it."""
    turn = "<|im_start|>{}\n{}<|im_end|>\n"
    return turn.format("system", SYSTEM) + turn.format("user", prompt) + "<|im_start|>assistant\n"


def write(source, path, kind):
    """Writes the weights of `source` in another type."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(path, "llama")
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        kinds = field.types
        sub = kinds[-1] if kinds[0] == GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), kinds[0], sub)
    for tensor in reader.tensors:
        if tensor.tensor_type == T.F32:
            writer.add_tensor(tensor.name, tensor.data)
        else:
            weights = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            writer.add_tensor(tensor.name, gguf.quants.quantize(weights, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def llama(path, request, folder):
    out = folder / "llama.npz"
    subprocess.run([sys.executable, HERE / "llama.py", path, request, out], check=True, stderr=subprocess.DEVNULL)
    return dict(np.load(out))


def wf_logits(wf_run, path, ids, folder):
    out = folder / "logits.npy"
    tokens = ",".join(map(str, ids))
    subprocess.run([wf_run, "logits", "-m", path, "--tokens", tokens, "-o", out, "--force"], check=True)
    return np.load(out)


def wf_greedy(wf_run, path, prompt, count, *more):
    args = ["--json", "--temperature", "0", "--repetition-penalty", "1", "-n", str(count), "--kv-dtype", "f32"]
    done = subprocess.run([wf_run, "generate", "-m", path, *args, *more, prompt], check=True, stdout=subprocess.PIPE)
    answer = json.loads(done.stdout)
    ended = answer["finish_reason"] == "stop"
    return answer["tokens"][: -1 if ended else None], answer["timings"]["prompt_tokens"]


def log_softmax(logits):
    rows = logits.astype(np.float64)
    rows -= rows.max(1, keepdims=True)
    return rows - np.log(np.exp(rows).sum(1, keepdims=True))


def cosine(ours, theirs):
    """Least cosine of rows, each without its mean: log-probabilities are logits but for a constant."""
    ours, theirs = (rows - rows.mean(1, keepdims=True) for rows in (ours, theirs.astype(np.float64)))
    return ((ours * theirs).sum(1) / np.linalg.norm(ours, axis=1) / np.linalg.norm(theirs, axis=1)).min()


def main(wf_run, folder, *flags):
    short, folder = "--short" in flags, Path(folder)
    prompts, count, length = (PROMPTS[:3], 16, 33) if short else (PROMPTS, 40, 161)
    # Over few tokens llama.cpp's rounding of activations decides the perplexity of other types.
    kinds = {"F16": T.F16} if short else {"F16": T.F16, "Q4_1": None, "Q8_0": T.Q8_0, "Q4_0": T.Q4_0}
    text = (HERE.parents[1] / "LICENSE-APACHE").read_text()
    failures = []

    def check(what, ok):
        print(("ok    " if ok else "WRONG ") + what, flush=True)
        failures.extend([] if ok else [what])

    for name, kind in kinds.items():
        path = folder / SOURCE.replace("Q4_1", name)
        if not path.exists():
            write(folder / SOURCE, path, kind)
        f16 = name == "F16"
        asked = {"text": text, "length": length, "vocab": VOCAB, "count": count}
        asked["prompts"] = [chat(prompt) for prompt in prompts] if f16 else []
        request = folder / "request.json"
        request.write_text(json.dumps(asked))
        theirs = llama(path, request, folder)
        ids = theirs["ids"]
        ours = log_softmax(wf_logits(wf_run, path, ids, folder))
        found, want = (float(np.exp(-x.mean())) for x in (ours[np.arange(len(ids) - 1), ids[1:]], theirs["next"]))
        line = f"{name}: perplexity {found:.4f}, llama.cpp {want:.4f} ({found / want - 1:+.3%})"
        check(line, abs(found / want - 1) <= PERPLEXITY)
        least = cosine(ours[theirs["places"]], theirs["rows"])
        line = f"{name}: cosine of logits at least {least:.6f}"
        check(line, least >= COSINE) if f16 else print("      " + line)
        for i, prompt in enumerate(prompts if f16 else []):
            answer, tokens = wf_greedy(wf_run, path, prompt, count)
            want = theirs[f"answer{i}"].tolist()
            same = answer == want[: len(answer)] and len(want) - len(answer) <= 1
            check(f"{name}: {prompt!r}: {len(answer)} tokens, prompt of {tokens}", same and tokens == theirs[f"prompt{i}"])
    print(f"{len(failures)} of these are wrong" if failures else "all as llama.cpp")
    sys.exit(bool(failures))


main(*sys.argv[1:])
