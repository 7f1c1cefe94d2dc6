"""litespark-inference's speed, or its logits, on what `convert.py` wrote.

    python bench.py -m MODEL.npz -p N -n N -t N -r N -o json      one test, as llama-bench is asked
    python bench.py -m MODEL.npz --logits TOKEN,TOKEN,… > FILE    f32 [tokens, vocab]

Speed is that of its BitNet path, whose prompts run as one batch: sub-norms (all ones) and ReLU²
come on top of our file, and cost next to nothing. Logits are of its Falcon path, which is the
architecture of the file but takes prompts token by token.
"""

import argparse
import json
import os
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("-m", dest="model", required=True)
parser.add_argument("-p", dest="prompt", type=int, default=0)
parser.add_argument("-n", dest="generate", type=int, default=0)
parser.add_argument("-t", dest="threads", type=int, default=1)
parser.add_argument("-r", dest="repetitions", type=int, default=1)
parser.add_argument("-o", dest="output")
parser.add_argument("--logits")
options = parser.parse_args()
# Read when the libraries load.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = str(options.threads)

import numpy as np  # noqa: E402
from litespark_inference.torchless import kernel, runtime  # noqa: E402
from litespark_inference.torchless import model as kinds

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
NORMS = ("input_norm", "post_attn_norm")
# The lengths of prompts for which it has AMX kernels.
AMX_LENGTHS = (*range(8, 17), 32, 48, 64)


def projection(arrays, name, amx):
    packed = arrays[name]
    rows, columns = packed.shape[0], packed.shape[1] * 4
    tiles = None
    if amx:
        tiles = np.empty((columns // 4, rows, 4), np.int8)
        kernel.transpose_packed_to_amx_vnni(packed, tiles, rows, columns)
    scale = float(arrays[f"{name}.scale"])
    return kinds.PackedProjection(packed, None, scale, columns, rows, w_amx=tiles)


def config(arrays, kind):
    return kind(**{name: arrays[name].item() for name in kinds.BitNetConfig.__dataclass_fields__})


def load(arrays, falcon, amx):
    shape = config(arrays, kinds.FalconTernaryConfig if falcon else kinds.BitNetConfig)
    ones = [np.full(n, 0x3F80, np.uint16) for n in (shape.hidden_size, shape.intermediate_size)]
    extra = {} if falcon else dict(zip(("attn_sub_norm", "ffn_sub_norm"), ones))
    layers = []
    for i in range(shape.num_layers):
        parts = {name: projection(arrays, f"{i}.{name}", amx) for name in PROJECTIONS}
        parts |= {name: arrays[f"{i}.{name}"] for name in NORMS}
        layer = kinds.PackedFalconLayer if falcon else kinds.PackedLayer
        layers.append(layer(**parts, **extra))
    head = {"embed_int4": arrays["embed"], "embed_scale": arrays["embed_scale"]}
    if falcon:
        head |= {"lm_head_int4": arrays["embed"], "lm_head_scale": arrays["embed_scale"]}
    model = kinds.PackedFalconModel if falcon else kinds.PackedBitNetModel
    tables = {"embed_tokens": None, "final_norm": arrays["final_norm"], "layers": layers}
    return model(config=shape, **tables, **head)


def prompt(model, count):
    state = runtime.init_state(model, count)
    return lambda: runtime.forward_prefill(model, state, [(17 * i) % 4096 for i in range(count)])


def generation(model, count):
    state = runtime.init_state(model, count)

    def run():
        token = 1
        for _ in range(count):
            token = int(np.argmax(runtime.forward_one(model, state, token)))

    return run


def seconds(make, model, count):
    run = make(model, count)
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main():
    arrays = dict(np.load(options.model))
    if options.logits:
        model = load(arrays, falcon=True, amx=False)
        tokens = [int(token) for token in options.logits.split(",")]
        state = runtime.init_state(model, len(tokens))
        for token in tokens:
            runtime.falcon_forward_one(model, state, token).tofile(sys.stdout.buffer)
        return
    count = options.prompt or options.generate
    make = prompt if options.prompt else generation
    amx = options.prompt in AMX_LENGTHS and kernel.has_amx()
    model = load(arrays, falcon=False, amx=amx)
    seconds(make, model, count)
    taken = [seconds(make, model, count) for _ in range(options.repetitions)]
    speed = count / (sum(taken) / len(taken))
    backend = "amx" if amx else kernel._ARCH_TAG
    print(json.dumps([{"tokens_per_second": speed, "backend": backend}]))


main()
