"""Compares directories of `wf-run convert --to hf` with what `transformers` computes: python hf.py WF_RUN

Logits of golden models and of the model inside the program must agree. That model's chat template,
tokenizer and greedy answers must be equal too. Settings of generation must survive the way through packed
files and GGUF and back, and `generate()` must accept them before and after it.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests/golden/models"
EMBEDDED = ROOT / "models/default.wf.safetensors"
# `transformers` has all families that are written but MiniCPM, whose code is in its own repositories.
# Models with 8-bit activations: one that rounds the other way moves logits of small models by some percent.
ROUNDED = {"default.wf.safetensors", "bitnet-packed", "llama-bitlinear", "tq2_0.gguf"}
MODELS = [
    EMBEDDED, GOLDEN / "bitnet-packed", GOLDEN / "llama-bitlinear", GOLDEN / "gguf-bitnet/tq2_0.gguf",
    GOLDEN / "gguf-llama/f16.gguf", GOLDEN / "gguf-qwen3/q8_0.gguf", GOLDEN / "llama-plain", GOLDEN / "qwen2-yarn",
    GOLDEN / "qwen3-groups/q2_0.gguf", GOLDEN / "qwen35-flat-bf16", GOLDEN / "qwen35-gguf-bf16-tied-mtp/model.gguf",
    GOLDEN / "hunyuan", GOLDEN / "hunyuan-new", GOLDEN / "hunyuan-stq/model.gguf", GOLDEN / "bonsai-q1/model.gguf",
    GOLDEN / "llama-linear", GOLDEN / "qwen3-yarn",
]
LEAST, LEAST_ROUNDED = 0.9999, 0.99
# GGUF has no type for rows of these lengths, or no key for the scaling of RoPE.
NO_GGUF = {"bitnet-packed", "llama-bitlinear", "qwen2-yarn"}
# What a directory states: nothing, temperature 0, and sampling.
SETTINGS = [
    {}, {"do_sample": False},
    {"do_sample": True, "temperature": 0.625, "top_p": 0.875, "top_k": 20, "repetition_penalty": 1.25},
]
SAMPLING = {"do_sample", "temperature", "top_p", "top_k", "repetition_penalty"}
PROMPTS = ["Tell me a story about a fox named Pip.", "What is two and three?", "Hello!"]


def cosine(a, b):
    return min(float(x @ y / np.sqrt((x @ x) * (y @ y))) for x, y in zip(a.astype(np.float64), b.astype(np.float64)))


def load(path):
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
    # An embedding next to packed matrices keeps the type of its file otherwise.
    for parameter in model.parameters():
        parameter.data = parameter.data.float() if parameter.is_floating_point() else parameter.data
    return model


def logits(wf_run, model, path, folder):
    """The smallest cosine of a position."""
    ids = np.arange(1, 49) * 7919 % model.config.get_text_config().vocab_size
    npy = folder / "logits.npy"
    command = [wf_run, "logits", "--force", "-m", path, "--tokens", ",".join(map(str, ids)), "-o", npy]
    subprocess.run(command, check=True)
    with torch.no_grad():
        theirs = model(torch.tensor(ids)[None]).logits[0].float().numpy()
    return cosine(np.load(npy), theirs)


def answers(wf_run, model, path):
    tokenizer = AutoTokenizer.from_pretrained(path)
    for prompt in PROMPTS:
        command = [wf_run, "generate", "-m", path, "--json", "-n", "24", "--kv-dtype", "f32", prompt]
        answer = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        message = [{"role": "user", "content": prompt}]
        ids = tokenizer.apply_chat_template(message, add_generation_prompt=True, return_tensors="pt", return_dict=True)
        count = ids["input_ids"].shape[1]
        assert count == answer["timings"]["prompt_tokens"], f"{prompt!r}: {count} tokens, {answer['timings']}"
        told = model.generate(**ids, max_new_tokens=24, do_sample=False)[0, count:].tolist()
        assert told == answer["tokens"], f"{prompt!r}: {tokenizer.decode(told)!r} and {answer['text']!r}"
        print(f"  {prompt!r}: {len(told)} equal tokens")


def convert(wf_run, form, source, out):
    subprocess.run([wf_run, "convert", "--to", form, source, out], check=True, stderr=subprocess.DEVNULL)


def settings(wf_run, path, folder, forms):
    """Generates with each directory's own settings, before and after a trip through each form of file."""
    file = path / "generation_config.json"
    stated = json.loads(file.read_text()) if file.exists() else {}
    others = {key: value for key, value in stated.items() if key not in SAMPLING}
    for i, want in enumerate(SETTINGS):
        file.write_text(json.dumps({**others, **want}))
        generate(path)
        for form in forms:
            packed, back = folder / f"{i}-{form}", folder / f"{i}-{form}-back"
            convert(wf_run, form, path, packed)
            convert(wf_run, "hf", packed, back)
            config = json.loads((back / "generation_config.json").read_text())
            found = {key: value for key, value in config.items() if key in SAMPLING}
            assert found == want, f"{form}: {want} became {found}"
            generate(back)


def generate(path):
    tokens = load(path).generate(torch.tensor([[1, 5, 9]]), max_new_tokens=4)
    assert tokens.shape[1] > 3, f"{path} generates nothing"


def main(wf_run):
    wrong = []
    for source in MODELS:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model"
            convert(wf_run, "hf", source, path)
            model = load(path)
            found = logits(wf_run, model, path, Path(folder))
            name = source.relative_to(ROOT)
            print(f"{name}: {type(model).__name__}, cosine of logits at least {found:.6f}", flush=True)
            if found < (LEAST_ROUNDED if source.name in ROUNDED else LEAST):
                wrong.append(str(name))
            if source == EMBEDDED:
                answers(wf_run, model, path)
            settings(wf_run, path, Path(folder), ["packed"] if source.name in NO_GGUF else ["packed", "gguf"])
    assert not wrong, wrong
    print(f"{len(MODELS)} directories are read as here, and generate with their own settings")


main(*sys.argv[1:])
