"""The crates that end up in what this project publishes, from `cargo metadata`."""

import json
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Products, the packages that each is built from, and the target if it is one alone.
PRODUCTS = {
    "native": (["wf-run", "wrinklefree-capi", "wrinklefree-python"], None),
    "web": (["wrinklefree-web"], "wasm32-unknown-unknown"),
}


def metadata(target=None):
    """Returns the resolved dependencies of the workspace with all features."""
    command = ["cargo", "metadata", "--format-version=1", "--locked", "--all-features"]
    command += ["--filter-platform", target] if target else []
    output = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    return json.loads(output)


def linked(meta, names):
    """Returns the packages that are compiled into `names`, and the edges between them.

    Dependencies of tests and of build scripts are left out.
    """
    packages = {package["id"]: package for package in meta["packages"]}
    nodes = {node["id"]: node for node in meta["resolve"]["nodes"]}
    members = set(meta["workspace_members"])
    todo = [id for id in sorted(members) if packages[id]["name"] in names]
    edges = {}
    while todo:
        id = todo.pop()
        if id in edges:
            continue
        deps = nodes[id]["deps"]
        edges[id] = [d["pkg"] for d in deps if any(k["kind"] is None for k in d["dep_kinds"])]
        todo += edges[id]
    return {id: packages[id] for id in edges}, edges


def foreign(packages):
    """Returns the packages of others, in the order of their names and versions."""
    others = [p for p in packages.values() if p["source"]]
    return sorted(others, key=lambda p: (p["name"], p["version"]))
