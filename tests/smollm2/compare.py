"""Compares wf-run with llama.cpp on SmolLM2-135M-Instruct: python compare.py WF_RUN FOLDER [--short]

FOLDER has the model in Q4_1. F16, Q8_0 and Q4_0 are made from its weights. Fails if greedy texts in
F16 differ, logits in F16 have a cosine below 0.9999, or a perplexity is more than 0.5 % away. llama.cpp
rounds the activations of other types to 8 bits, so it also computes their weights as F16: from that
perplexity ours may be 0.1 % away.
"""

import json
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T
from gguf import GGUFValueType
from llama import STEP, log_softmax

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
COSINE, PERPLEXITY, SAME_WEIGHTS, VOCAB = 0.9999, 0.005, 0.001, 49152


def chat(prompt):
    """The prompt as the model's template renders it."""
    turn = "<|im_start|>{}\n{}<|im_end|>\n"
    return turn.format("system", SYSTEM) + turn.format("user", prompt) + "<|im_start|>assistant\n"


def write(source, path, kind):
    """Writes the weights of `source` in another type, if the file is not there."""
    if path.exists():
        return
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


def cosine(ours, theirs):
    """Least cosine of rows, each without its mean, which means nothing."""
    ours, theirs = (rows - rows.mean(1, keepdims=True) for rows in (ours.astype(np.float64), theirs.astype(np.float64)))
    return ((ours * theirs).sum(1) / np.linalg.norm(ours, axis=1) / np.linalg.norm(theirs, axis=1)).min()


def main(wf_run, folder, *flags):
    short, folder = "--short" in flags, Path(folder)
    prompts, count, length, windows = (PROMPTS[:3], 16, 160, 1) if short else (PROMPTS, 40, 512, 9)
    # Other types need thousands of tokens: llama.cpp rounds their activations to 8 bits, and each token's
    # probability changes by some percent, up or down.
    kinds = {"F16": T.F16} if short else {"F16": T.F16, "Q4_1": T.Q4_1, "Q8_0": T.Q8_0, "Q4_0": T.Q4_0}
    text = "".join((HERE.parents[1] / name).read_text() for name in ("LICENSE-APACHE", "models/eval/text.txt"))
    failures = []

    def check(what, ok):
        print(("ok    " if ok else "WRONG ") + what, flush=True)
        failures.extend([] if ok else [what])

    for name, kind in kinds.items():
        path = folder / SOURCE.replace("Q4_1", name)
        write(folder / SOURCE, path, kind)
        f16 = name == "F16"
        asked = {"text": text, "length": length, "windows": windows, "vocab": VOCAB, "count": count}
        asked["prompts"] = [chat(prompt) for prompt in prompts] if f16 else []
        request = folder / "request.json"
        request.write_text(json.dumps(asked))
        theirs = llama(path, request, folder)
        following, least = [], 1.0
        for ids, rows in zip(theirs["ids"], theirs["rows"]):
            ours = wf_logits(wf_run, path, ids, folder)
            following.append(log_softmax(ours)[np.arange(length - 1), ids[1:]])
            least = min(least, cosine(ours[::STEP], rows))
        following = np.concatenate(following)
        found, want = (float(np.exp(-x.mean())) for x in (following, theirs["next"]))
        change = theirs["next"] - following
        noise = change.std() / len(change) ** 0.5
        line = f"{name}: perplexity {found:.4f}, llama.cpp {want:.4f}: {found / want - 1:+.3%} ± {noise:.3%}"
        check(f"{line} over {len(change)} tokens", abs(found / want - 1) <= PERPLEXITY)
        if not f16:
            same = path.with_suffix(".F16.gguf")
            write(path, same, T.F16)
            want = float(np.exp(-llama(same, request, folder)["next"].mean()))
            line = f"{name}: llama.cpp with these weights as F16 {want:.4f}: {found / want - 1:+.3%}"
            check(line, abs(found / want - 1) <= SAME_WEIGHTS)
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
