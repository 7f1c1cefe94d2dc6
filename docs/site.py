"""MkDocs hook: pages of the site that live elsewhere in the repository, and links between files.

Links in Markdown files are relative paths, so that they work where the repository is read. Here a
link to a file that is a page of the site becomes a link to that page. A link to any other file of
the repository becomes plain text, and a link to no file stops the build.
"""

import os
import posixpath
import re
from pathlib import Path

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent

# File of the repository → page of the site.
PAGES = {
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "benches/peers/README.md": "peers.md",
    "easy/README.md": "rust.md",
    "models/README.md": "embedded-model.md",
    "native/deploy/README.md": "deployment.md",
    "native/deploy/scale-out/README.md": "scale-out.md",
    "python/README.md": "python.md",
    "release/README.md": "releases.md",
    "web/README.md": "browser.md",
}

LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\])\(([^()\s]+)\)")
CODE = re.compile(r"(^```.*?^```$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)


def on_files(files, config):
    for source, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown, page, config, files):
    sources = {page: source for source, page in PAGES.items()}
    source = sources.get(page.file.src_uri, "docs/" + page.file.src_uri)
    return rewritten(markdown, source, page.file.src_uri)


def rewritten(markdown, source, page):
    """`markdown` of the file `source` with the links of the page `page`."""

    def link(match):
        text, target = match.groups()
        path, mark, anchor = target.partition("#")
        if not path or ":" in path:
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        if not (ROOT / path).exists():
            raise PluginError(f"{source}: no file {path}")
        if path == "README.md":
            path = "docs/index.md"
        to = PAGES.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
        if to is None or os.path.isdir(ROOT / path):
            return text[1:-1]
        return f"{text}({posixpath.relpath(to, posixpath.dirname(page) or '.')}{mark}{anchor})"

    # A link's text may hold code, so code is put away first.
    kept = []

    def keep(match):
        kept.append(match[0])
        return f"\x00{len(kept) - 1}\x00"

    markdown = LINK.sub(link, CODE.sub(keep, markdown))
    return re.sub(r"\x00(\d+)\x00", lambda match: kept[int(match[1])], markdown)
