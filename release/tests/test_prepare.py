"""release/prepare: the address of the repository in all that is published, and a release that is refused."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import tomllib
import unittest
from pathlib import Path

import stand_ins
from stand_ins import ROOT, VERSION, prepare

ADDRESS = "https://forge.example/wrinklefree/runtime"
MEMBERS = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))["workspace"]["members"]
FILES = ["Cargo.toml", *(f"{member}/Cargo.toml" for member in MEMBERS), "web/package.json", "python/pyproject.toml",
         "mkdocs.yml", "README.md", "docs/index.md", "CHANGELOG.md", "release/address"]


class Prepares(unittest.TestCase):
    def setUp(self):
        self.root = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)
        for name in FILES:
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.root / name)
        self.environment = {"RELEASE_ROOT": str(self.root), "REPOSITORY": ADDRESS}

    def run_it(self, *arguments, code=0, **environment):
        done = prepare(*arguments, **self.environment | environment)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stderr if code else done.stdout

    def read(self, name):
        return (self.root / name).read_text(encoding="utf-8")

    def test_the_tree_has_the_address_that_is_known(self):
        del self.environment["REPOSITORY"]
        self.run_it("fill", "--check")

    def test_a_release_without_an_address_is_refused(self):
        said = self.run_it("check", f"v{VERSION}", code=1, REPOSITORY="")
        self.assertIn("release/address has no REPOSITORY", said)
        for act in ["installers", "packages"]:
            self.assertIn("release/address has no REPOSITORY", self.run_it(act, code=1, REPOSITORY=""))
        for wrong in ["http://forge.example/a", "https://forge.example/a/", "https://forge.example", 'https://x.y/"a']:
            self.assertIn("must begin with https://", self.run_it("installers", code=1, REPOSITORY=wrong))
        if shutil.which("bash") and os.name != "nt":
            build = [shutil.which("bash"), ROOT / "release/build"]
            done = subprocess.run(build, env=os.environ | {"REPOSITORY": ""}, stderr=subprocess.PIPE, text=True)
            self.assertEqual(done.returncode, 1)
            self.assertIn("release/address has no REPOSITORY", done.stderr)

    def test_the_address_is_written_into_manifests_and_back(self):
        self.run_it("fill", REPOSITORY="")
        before = {name: self.read(name) for name in FILES}
        said = self.run_it("fill", "--check", code=1)
        self.assertIn("web/package.json", said)
        self.run_it("fill")
        self.run_it("fill", "--check")
        package = tomllib.loads(self.read("Cargo.toml"))["workspace"]["package"]
        self.assertEqual((package["repository"], package["homepage"]), (ADDRESS, ADDRESS))
        for name in ["Cargo.toml", *(f"{member}/Cargo.toml" for member in MEMBERS)]:
            crate = tomllib.loads(self.read(name))["package"]
            self.assertEqual(crate["repository"], {"workspace": True}, name)
            self.assertEqual(crate["homepage"], {"workspace": True}, name)
        npm = json.loads(self.read("web/package.json"))
        self.assertEqual(npm["repository"], {"type": "git", "url": f"git+{ADDRESS}.git", "directory": "web"})
        self.assertTrue(npm["homepage"].startswith(ADDRESS))
        urls = tomllib.loads(self.read("python/pyproject.toml"))["project"]["urls"]
        self.assertEqual((urls["Repository"], urls["Homepage"]), (ADDRESS, ADDRESS))
        self.assertIn(f"repo_url: {ADDRESS}\n", self.read("mkdocs.yml"))
        for page in ["README.md", "docs/index.md"]:
            self.assertIn(f"curl -fsSL {ADDRESS}/releases/latest/download/install.sh", self.read(page))
            self.assertNotIn("REPOSITORY", self.read(page))
        self.run_it("fill", REPOSITORY="")
        self.assertEqual({name: self.read(name) for name in FILES}, before)

    def dated(self):
        """Makes the changelog that of a release."""
        text = self.read("CHANGELOG.md").replace(f"## {VERSION}\n", f"## {VERSION} - 2026-12-01\n", 1)
        (self.root / "CHANGELOG.md").write_text(text, encoding="utf-8")

    def test_what_a_release_lacks_is_said_at_once(self):
        said = self.run_it("check", "v9.9.9", code=1)
        for reason in ["run release/prepare fill", "the tag is v9.9.9", "CHANGELOG.md has no section"]:
            self.assertIn(reason, said)
        self.run_it("fill")
        self.dated()
        self.assertIn(ADDRESS, self.run_it("check", f"v{VERSION}"))
        package = self.read("web/package.json").replace(f'"version": "{VERSION}"', '"version": "0.0.1"')
        (self.root / "web/package.json").write_text(package, encoding="utf-8")
        self.assertIn("web/package.json has the version 0.0.1", self.run_it("check", f"v{VERSION}", code=1))

    def test_notes_are_the_section_of_the_changelog(self):
        text = "# Changelog\n\n## Unreleased\n\n- Later.\n\n## 1.2.3 - 2026-12-01\n\n- Now: [C](docs/c.md), [x](https://x.y), [y](#y).\n\n## 1.2.2 - 2026-11-01\n\n- Before.\n"
        (self.root / "CHANGELOG.md").write_text(text, encoding="utf-8")
        expected = f"- Now: [C]({ADDRESS}/blob/v1.2.3/docs/c.md), [x](https://x.y), [y](#y).\n"
        self.assertEqual(self.run_it("notes", "v1.2.3"), expected)
        self.assertIn("no section for v1.2.4", self.run_it("notes", "v1.2.4", code=1))


class Packages(unittest.TestCase):
    """Manifests for other package managers, made from the checksums of a release."""

    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        stand_ins.write(cls.folder)
        cls.environment = {"REPOSITORY": ADDRESS, "ARTIFACTS": str(cls.folder), "PACKAGES": str(cls.folder / "out")}
        done = prepare("packages", **cls.environment)
        assert done.returncode == 0, done.stderr
        sums = (cls.folder / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
        cls.sums = {name: digest for digest, name in (line.split("  ") for line in sums)}
        cls.texts = {p.relative_to(cls.folder / "out").as_posix(): p.read_text(encoding="utf-8")
                     for p in (cls.folder / "out").rglob("*") if p.is_file()}

    def test_every_address_stands_with_its_checksum(self):
        base = f"{ADDRESS}/releases/download/v{VERSION}/"
        self.assertEqual({name.split("/")[0] for name in self.texts}, {"homebrew", "scoop", "winget", "aur"})
        for name, text in self.texts.items():
            self.assertNotRegex(text, r"@[A-Z]", name)
            places = [url for url in re.findall(r'https://[^\s"\')]+', text) if url.endswith((".zip", ".tar.gz")) and "$" not in url]
            digests = re.findall(r"\b[0-9a-f]{64}\b", text)
            self.assertEqual(len(places), len(digests), name)
            for url, digest in zip(places, digests) if name != "aur/PKGBUILD" else []:
                self.assertEqual(self.sums[url.removeprefix(base)], digest, name)

    def test_scoop(self):
        manifest = json.loads(self.texts["scoop/wf-run.json"])
        archive = f"wf-run-{VERSION}-windows-x86_64.zip"
        machine = manifest["architecture"]["64bit"]
        self.assertEqual((manifest["version"], machine["hash"]), (VERSION, self.sums[archive]))
        self.assertTrue(machine["url"].endswith(archive))

    @unittest.skipIf(os.name == "nt", "needs bash")
    def test_aur(self):
        out = self.folder / "out/aur"
        script = 'set -eu; . ./PKGBUILD; printf "%s\\n" "$pkgver" "${source_x86_64[0]}" "${sha256sums_x86_64[0]}" ' \
                 '"${source_aarch64[0]}" "${sha256sums_aarch64[0]}"; declare -f package > /dev/null'
        said = subprocess.run(["bash", "-c", script], cwd=out, check=True, stdout=subprocess.PIPE, text=True).stdout
        version, *pairs = said.splitlines()
        self.assertEqual(version, VERSION)
        for url, digest in [pairs[:2], pairs[2:]]:
            self.assertEqual(self.sums[url.rsplit("/", 1)[1]], digest)
            self.assertIn(f"= {url}\n", self.texts["aur/.SRCINFO"])
            self.assertIn(f"= {digest}\n", self.texts["aur/.SRCINFO"])

    def test_a_missing_archive_is_named(self):
        sums = self.folder / "sums"
        sums.mkdir()
        (sums / "SHA256SUMS").write_text("\n".join(f"{d}  {n}" for n, d in self.sums.items() if "macos" not in n))
        done = prepare("packages", **self.environment | {"ARTIFACTS": str(sums)})
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"SHA256SUMS has no wf-run-{VERSION}-macos-universal.tar.gz, which homebrew/wf-run.rb needs", done.stderr)


class Workflows(unittest.TestCase):
    """The files for the host: a release is tested before it is published."""

    def test_a_release_is_checked_and_tested_first(self):
        try:
            import yaml
        except ImportError:
            self.skipTest("needs PyYAML: release/tests/run installs it")
        text = (ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8")
        jobs = yaml.safe_load(text)["jobs"]

        def before(name):
            needs = jobs[name].get("needs", [])
            needs = [needs] if isinstance(needs, str) else needs
            return set(needs).union(*(before(one) for one in needs))

        for name, job in jobs.items():
            script = "\n".join(step.get("run", "") for step in job.get("steps", []))
            for step in job.get("steps", []):
                if "run" in step and step.get("shell") != "powershell":
                    done = subprocess.run([shutil.which("bash"), "-n"], input=step["run"], text=True, stderr=subprocess.PIPE)
                    self.assertEqual(done.stderr, "", name)
            for file in re.findall(r"(?<![\w./-])(?:release|python|web|tests|docs)/[\w./-]+\w", script):
                self.assertTrue((ROOT / file).exists(), f"{name}: there is no {file}")
            if name.startswith("publish"):
                self.assertLessEqual({"check", "test", "build", "install"}, before(name), name)
                self.assertEqual(job["environment"], "release", name)
        self.assertIn("release/prepare check", "\n".join(step.get("run", "") for step in jobs["check"]["steps"]))


if __name__ == "__main__":
    unittest.main()
