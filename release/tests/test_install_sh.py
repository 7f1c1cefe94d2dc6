"""install.sh against a local server: the shells and tools of Debian and Alpine, and all that may go wrong."""

import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import stand_ins
from stand_ins import STORY, VERSION, Server

BUSYBOX = shutil.which("busybox")
# Programs that a fresh Debian has, as far as the script may want them.
DEBIAN = ["cat", "chmod", "cp", "cut", "getconf", "grep", "gzip", "head", "ldd", "ls", "mkdir", "mv", "rm", "sed",
          "sha256sum", "sleep", "tar", "tr", "uname", "sh", "bash"]
# In place of `uname` and `getconf`: another machine.
FAKE = """#!/bin/sh
case $1 in -s) echo "{system}" ;; -m) echo "{machine}" ;; GNU_LIBC_VERSION) echo "{libc}" ;; LONG_BIT) echo "{bits}" ;; esac
"""


def heed_signals():
    """Lets a shell of a test heed signals: those of a background job, or under `nohup`, ignore some for ever."""
    for sign in (signal.SIGINT, signal.SIGHUP):
        signal.signal(sign, signal.SIG_DFL)


@unittest.skipUnless(sys.platform == "linux", "needs the tools of Linux")
class Installs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        artifacts = cls.folder / "artifacts"
        artifacts.mkdir()
        stand_ins.write(artifacts)
        cls.server = Server(artifacts)
        cls.addClassCleanup(cls.server.server_close)
        cls.addClassCleanup(cls.server.shutdown)
        done = stand_ins.prepare("installers", RELEASE_BASE=cls.server.url, ARTIFACTS=str(artifacts))
        assert done.returncode == 0, done.stderr
        cls.script = artifacts / "install.sh"
        cls.debian = cls.tools("debian", [*DEBIAN, "curl"])

    @classmethod
    def tools(cls, name, programs, fake=None):
        """Makes a folder for PATH with these programs alone, some of them those of another machine."""
        folder = cls.folder / f"bin-{name}"
        folder.mkdir()
        if programs == "busybox":
            subprocess.run([BUSYBOX, "--install", "-s", folder], check=True)
        else:
            for program in programs:
                if found := shutil.which(program):
                    (folder / program).symlink_to(found)
        # The script pauses before its second attempt.
        (folder / "sleep").unlink(missing_ok=True)
        (folder / "sleep").symlink_to(shutil.which("true"))
        if not fake and platform.machine() != "x86_64":
            fake = {"system": "Linux", "machine": "x86_64", "libc": "" if programs == "busybox" else "glibc 2.36"}
        for program in ["uname", "getconf"] if fake else []:
            (folder / program).unlink(missing_ok=True)
            (folder / program).write_text(FAKE.format(**{"libc": "", "bits": "64"} | fake))
            (folder / program).chmod(0o755)
        return folder

    def setUp(self):
        self.server.faults = {}
        self.server.waiting.clear()
        self.server.go_on.clear()
        self.home = Path(tempfile.mkdtemp(dir=self.folder))
        self.prefix = self.home / ".local"
        self.program = self.prefix / "bin/wf-run"

    def environment(self, tools):
        return {"HOME": str(self.home), "PATH": str(tools or self.debian), "LC_ALL": "C"}

    def start(self, *arguments, tools=None, shell=("dash",), **options):
        command = [shutil.which(shell[0]), *shell[1:], str(self.script), *arguments]
        options.setdefault("env", self.environment(tools))
        return subprocess.Popen(
            command, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True, preexec_fn=heed_signals, **options,
        )

    def run_script(self, *arguments, **options):
        process = self.start(*arguments, **options)
        process.out, process.err = process.communicate(timeout=60)
        return process

    def installed(self, target="linux-x86_64", **options):
        done = self.run_script(**options)
        self.assertEqual(done.returncode, 0, done.err)
        story = subprocess.run([self.program, "generate"], stdout=subprocess.PIPE, text=True, check=True).stdout
        self.assertEqual(story, f"{STORY} ({target})\n")
        return done

    def refused(self, *words, left=False, arguments=(), **options):
        """The script ends with these words and leaves nothing, or what was there before."""
        done = self.run_script(*arguments, **options)
        self.assertEqual(done.returncode, 1, done.out)
        for word in words:
            self.assertIn(word, done.err)
        self.assertEqual(self.program.exists(), left)
        self.clean()
        return done

    def clean(self):
        self.assertEqual(list(self.prefix.glob(".wf-run-install.*")), [])

    def old(self):
        """Puts an older version in place."""
        self.program.parent.mkdir(parents=True, exist_ok=True)
        self.program.write_text(stand_ins.PROGRAM.format(version="0.0.9", target="old"))
        self.program.chmod(0o755)

    def test_shells_and_tools_of_fresh_systems(self):
        wget = self.tools("wget", [*DEBIAN, "wget"])
        shells = [("dash",), ("bash", "--posix")]
        systems = [(shell, tools, "linux-x86_64") for shell in shells for tools in (self.debian, wget)]
        if BUSYBOX:
            # No getconf and no ldd, as in Alpine: the static program.
            systems.append(((BUSYBOX, "sh"), self.tools("alpine", "busybox"), "linux-x86_64-musl"))
        for shell, tools, target in systems:
            with self.subTest(shell=shell, tools=tools.name):
                shutil.rmtree(self.prefix, ignore_errors=True)
                done = self.installed(target, shell=shell, tools=tools)
                self.assertIn(f"wf-run {VERSION} is installed: {self.program}\n", done.out)
                self.assertIn(f'{self.program} generate "Tell me a story', done.out)
                self.assertIn(f'export PATH="{self.prefix}/bin:$PATH"', done.out)
                self.assertEqual(done.err, "")
                documents = sorted(p.name for p in (self.prefix / "share/doc/wf-run").iterdir())
                self.assertEqual(documents, sorted([*stand_ins.DOCUMENTS, f"wf-run-{VERSION}.cdx.json"]))
                self.clean()
                done = self.run_script("--uninstall", shell=shell, tools=tools)
                self.assertEqual((done.returncode, done.err), (0, ""))
                self.assertIn(f"{self.home}/.cache/huggingface/hub", done.out)
                self.assertEqual([p for p in self.prefix.rglob("*") if p.is_file()], [])
                done = self.run_script("--uninstall", shell=shell, tools=tools)
                self.assertEqual((done.returncode, done.out), (0, f"there is no wf-run in {self.prefix}\n"))

    def test_systems(self):
        linux = {"system": "Linux", "machine": "x86_64"}
        known = [
            (linux | {"libc": "glibc 2.28"}, "linux-x86_64"),
            (linux | {"libc": "glibc 2.27"}, "linux-x86_64-musl"),
            (linux | {"libc": "glibc 2.40", "bits": "32"}, "linux-x86_64-musl"),
            (linux | {"machine": "aarch64", "libc": "glibc 2.31"}, "linux-aarch64"),
            ({"system": "Darwin", "machine": "arm64"}, "macos-universal"),
            ({"system": "Darwin", "machine": "x86_64"}, "macos-universal"),
        ]
        unknown = [
            (linux | {"machine": "aarch64"}, "Linux on aarch64 without glibc 2.28"),
            (linux | {"machine": "aarch64", "libc": "glibc 2.36", "bits": "32"}, "32-bit programs"),
            (linux | {"machine": "riscv64", "libc": "glibc 2.39"}, "for Linux on riscv64"),
            (linux | {"machine": "i686", "libc": "glibc 2.39"}, "for Linux on i686"),
            ({"system": "FreeBSD", "machine": "amd64"}, "for FreeBSD on amd64"),
            ({"system": "MINGW64_NT-10.0", "machine": "x86_64"}, "install.ps1 | iex"),
        ]
        without = [name for name in DEBIAN if name != "ldd"]
        for number, (fake, expected) in enumerate([*known, *unknown]):
            with self.subTest(**fake):
                tools = self.tools(f"fake-{number}", [*without, "curl"], fake)
                shutil.rmtree(self.prefix, ignore_errors=True)
                if number < len(known):
                    self.installed(expected, tools=tools)
                else:
                    self.refused(expected, tools=tools)
                    self.assertFalse(self.prefix.exists())

    def test_faults_of_the_network(self):
        archive = f"wf-run-{VERSION}-linux-x86_64.tar.gz"
        for downloader in ["curl", "wget"]:
            tools = self.tools(f"faults-{downloader}", [*DEBIAN, downloader])
            for faults, *words in [
                ({archive: "changed"}, "is not what was published", "nothing was installed"),
                ({archive: "cut"}, f"could not download {self.server.url}/{archive}", "WF_BASE"),
                ({archive: "missing"}, f"could not download {self.server.url}/{archive}"),
                ({archive: "page"}, "is not what was published"),
                ({"SHA256SUMS": "page"}, f"SHA256SUMS has no line for {archive}"),
                ({"SHA256SUMS": "missing"}, f"could not download {self.server.url}/SHA256SUMS"),
            ]:
                with self.subTest(downloader=downloader, faults=faults):
                    self.server.faults = faults
                    shutil.rmtree(self.prefix, ignore_errors=True)
                    self.refused(*words, tools=tools)
                    self.old()
                    self.refused(*words, tools=tools, left=True)
                    self.assertIn("0.0.9", subprocess.getoutput(f"{self.program} --version"))
        self.server.faults = {}
        nobody = self.environment(None) | {"WF_BASE": "http://127.0.0.1:9"}
        self.refused("could not download http://127.0.0.1:9/SHA256SUMS", left=True, env=nobody)

    @unittest.skipUnless(BUSYBOX, "needs busybox")
    def test_faults_with_busybox(self):
        tools, archive = self.tools("faults-busybox", "busybox"), f"wf-run-{VERSION}-linux-x86_64-musl.tar.gz"
        for fault in ["changed", "cut"]:
            self.server.faults = {archive: fault}
            self.refused(archive, tools=tools, shell=(BUSYBOX, "sh"))

    def test_another_address(self):
        self.script_base = self.environment(None) | {"WF_BASE": f"{self.server.url}/"}
        self.installed(env=self.script_base)

    def test_missing_tools(self):
        for gone, *words in [
            (["curl"], "curl and wget are missing"), (["sha256sum"], "sha256sum, shasum and openssl are missing"),
            (["tar"], "tar is missing"), (["gzip"], "gzip is missing"),
        ]:
            tools = self.tools(f"without-{gone[0]}", [p for p in [*DEBIAN, "curl"] if p not in gone])
            self.refused(*words, tools=tools)
        for other in ["shasum", "openssl"]:
            if shutil.which(other):
                with self.subTest(other):
                    names = [p for p in [*DEBIAN, "curl", other, "perl"] if p != "sha256sum"]
                    self.installed(tools=self.tools(f"with-{other}", names))

    def test_an_older_version_is_replaced(self):
        self.old()
        done = self.installed()
        self.assertIn("(it replaces 0.0.9)", done.out)
        # Again, with the folder in PATH.
        self.program.parent.joinpath("note").write_text("of somebody else")
        tools = self.environment(None)
        done = self.installed(env=tools | {"PATH": f"{self.prefix}/bin:{tools['PATH']}"})
        self.assertIn("\n    wf-run generate", done.out)
        self.assertNotIn("export PATH", done.out)
        self.run_script("--uninstall")
        self.assertTrue(self.program.parent.joinpath("note").exists())

    def test_what_others_installed_stays(self):
        self.old()
        self.refused("was not installed by this script", arguments=["--uninstall"], left=True)
        self.program.unlink()
        self.program.mkdir()
        self.refused("is a folder", left=True)

    def test_another_program_of_that_name_comes_first(self):
        other = self.home / "other"
        other.mkdir()
        (other / "wf-run").symlink_to("/bin/true")
        path = f"{other}:{self.prefix}/bin:{self.debian}"
        done = self.installed(env=self.environment(None) | {"PATH": path})
        self.assertIn(f"{other}/wf-run comes first in PATH", done.out)

    def within(self, mount, *words, prefix="small"):
        """The script is refused in a folder that is mounted so."""
        place = self.home / prefix
        place.mkdir(exist_ok=True)
        script = f'mount {mount} "{place}" && exec dash "{self.script}" --prefix "{place}"'
        user = [] if os.geteuid() == 0 else ["--map-root-user"]
        done = subprocess.run(
            ["unshare", *user, "--mount", "sh", "-c", script], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        if done.returncode != 1 or "install.sh" not in done.stderr:
            self.assertIn("unshare", done.stderr, done)
            self.skipTest(f"no mounts here: {done.stderr}")
        for word in words:
            self.assertIn(word, done.stderr)

    def test_full_and_read_only_folders(self):
        if not shutil.which("unshare"):
            self.skipTest("needs unshare")
        self.within("-t tmpfs -o size=64k none", "is the disk full", "--prefix")
        # The archive fits, and not what is in it.
        self.within("-t tmpfs -o size=256k none", "is the disk full", "--prefix")
        self.within("-t tmpfs -o ro none", "cannot write to", "--prefix")
        self.refused("cannot write to /dev/null/x", arguments=["--prefix", "/dev/null/x"])
        # A program that may not run where it is put.
        self.within("-t tmpfs -o noexec none", "does not run here", "may programs run from")

    def test_arguments(self):
        self.refused("there is no option --force", arguments=["--force"])
        self.refused("--prefix wants a folder", arguments=["--prefix"])
        self.refused("HOME is not set", env={"PATH": str(self.debian)})
        done = self.run_script("--prefix", "a b", cwd=self.home)
        self.assertEqual(done.returncode, 0, done.err)
        self.assertTrue((self.home / "a b/bin/wf-run").is_file())
        self.assertIn(self.server.url, self.run_script("--help").out)

    def test_interrupted(self):
        self.old()
        self.server.faults = {f"wf-run-{VERSION}-linux-x86_64.tar.gz": "waits"}
        for sign, code in [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGKILL, -9)]:
            with self.subTest(sign.name):
                self.server.waiting.clear()
                process = self.start()
                self.assertTrue(self.server.waiting.wait(30))
                os.killpg(process.pid, sign)
                process.communicate(timeout=30)
                self.assertEqual(process.returncode, code)
                self.assertIn("0.0.9", subprocess.getoutput(f"{self.program} --version"))
                if sign != signal.SIGKILL:
                    self.clean()
        self.assertEqual(len(list(self.prefix.glob(".wf-run-install.*"))), 1)
        self.server.go_on.set()
        self.server.faults = {}
        self.installed()
        self.clean()

    def test_two_at_a_time(self):
        processes = [self.start() for _ in range(2)]
        for process in processes:
            _, error = process.communicate(timeout=60)
            self.assertEqual((process.returncode, error), (0, ""))
        self.clean()

    def test_a_script_that_was_cut_does_nothing(self):
        text = self.script.read_bytes()
        ends = range(200, len(text) - len(b'main "$@"\n'), 97)
        begin = time.monotonic()
        for end in ends:
            subprocess.run(
                [shutil.which("dash")], input=text[:end], env=self.environment(None), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        self.assertFalse(self.prefix.exists(), "something was installed")
        self.assertLess(time.monotonic() - begin, 30)
        done = subprocess.run([shutil.which("dash")], input=text, env=self.environment(None), stdout=subprocess.PIPE)
        self.assertEqual(done.returncode, 0)
        self.assertTrue(self.program.is_file())


if __name__ == "__main__":
    unittest.main()
