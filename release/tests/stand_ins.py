"""Stand-ins for a release: archives with the names and the layout of release/build, and a server for them."""

import contextlib
import hashlib
import io
import os
import subprocess
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
VERSION = "0.1.0"
TARGETS = ["linux-x86_64", "linux-x86_64-musl", "linux-aarch64", "macos-universal", "windows-x86_64"]
STORY = "Have you heard of Pip? He was a small fox."
PROGRAM = f"""#!/bin/sh
case $1 in
--version) echo "wf-run {{version}}" ;;
generate) echo "{STORY} ({{target}})" ;;
esac
"""
DOCUMENTS = ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT", "THIRD_PARTY.md"]


def contents(target, version):
    """Returns the files of an archive; the program prints its target."""
    files = {name: f"{name}\n".encode() for name in DOCUMENTS}
    # Large when it is unpacked, and small before: a place can be full at either step.
    files[f"wf-run-{version}.cdx.json"] = b" " * 400_000
    files["CHANGELOG.md"] = os.urandom(100_000)
    if target.startswith("windows"):
        curl = Path(os.environ.get("SYSTEMROOT", "/")) / "System32/curl.exe"
        # A program that is in every Windows and knows --version.
        return files | {"wf-run.exe": curl.read_bytes() if curl.is_file() else b"MZ"}
    return files | {"wf-run": PROGRAM.format(version=version, target=target).encode()}


def write(folder, version=VERSION, targets=TARGETS):
    """Writes archives and SHA256SUMS, as release/build does."""
    for target in targets:
        name, files = f"wf-run-{version}-{target}", contents(target, version)
        if target.startswith("windows"):
            with zipfile.ZipFile(folder / f"{name}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
                for file, data in files.items():
                    archive.writestr(f"{name}/{file}", data)
            continue
        with tarfile.open(folder / f"{name}.tar.gz", "w:gz") as archive:
            for file, data in files.items():
                info = tarfile.TarInfo(f"{name}/{file}")
                info.size, info.mode = len(data), 0o755 if file == "wf-run" else 0o644
                archive.addfile(info, io.BytesIO(data))
    sums = [f"{hashlib.sha256(f.read_bytes()).hexdigest()}  {f.name}\n" for f in sorted(folder.glob("wf-run-*"))]
    (folder / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")


def prepare(*arguments, **environment):
    """Runs release/prepare and returns the process."""
    python = os.environ.get("PYTHON", "python3" if os.name != "nt" else "python")
    return subprocess.run(
        [python, ROOT / "release/prepare", *arguments], env=os.environ | environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
    )


class Handler(BaseHTTPRequestHandler):
    """Serves a folder; `faults` says for a file's name what goes wrong."""

    def do_GET(self):
        name = self.path.strip("/")
        file, fault = self.server.folder / name, self.server.faults.get(name)
        if fault == "missing" or not file.is_file():
            return self.send_error(404)
        data = b"<html>Sign in to this network.</html>" if fault == "page" else file.read_bytes()
        if fault == "changed":
            data = data[:-1] + bytes([data[-1] ^ 1])
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            self.wfile.write(data[: len(data) // 2])
            self.wfile.flush()
            if fault == "waits":
                self.server.waiting.set()
                self.server.go_on.wait(30)
            if fault not in ("cut", "waits"):
                self.wfile.write(data[len(data) // 2 :])
        self.close_connection = True

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    """A local server of a release."""

    daemon_threads = True

    def __init__(self, folder):
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder, self.faults = Path(folder), {}
        self.waiting, self.go_on = threading.Event(), threading.Event()
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()
