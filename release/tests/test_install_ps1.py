"""install.ps1 against a local server. PowerShell and a program are only where Windows is."""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import stand_ins
from stand_ins import ROOT, VERSION, Server

ARCHIVE = f"wf-run-{VERSION}-windows-x86_64.zip"


@unittest.skipUnless(os.name == "nt", "needs Windows")
class Installs(unittest.TestCase):
    """Windows PowerShell 5, and PowerShell 7 where it is."""

    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        stand_ins.write(cls.folder, targets=["windows-x86_64"])
        cls.server = Server(cls.folder)
        done = stand_ins.prepare("installers", RELEASE_BASE=cls.server.url, ARTIFACTS=str(cls.folder))
        assert done.returncode == 0, done.stderr
        cls.shells = [shell for name in ["powershell", "pwsh"] if (shell := shutil.which(name))]

    def setUp(self):
        self.server.faults = {}
        self.prefix = Path(tempfile.mkdtemp(dir=self.folder)) / "with spaces"
        self.program = self.prefix / "wf-run.exe"

    def run_script(self, shell, *arguments, **environment):
        # Each runs in a process of its own, as users run it, and leaves the tester's PATH alone. A message is
        # printed as it is: PowerShell breaks the lines of errors.
        script = f"& '{self.folder / 'install.ps1'}' -Prefix '{self.prefix}' -KeepPath {' '.join(arguments)}"
        script = f"try {{ {script} }} catch {{ [Console]::Error.WriteLine($_.Exception.Message); exit 1 }}"
        command = [shell, "-NoProfile", "-ExecutionPolicy", "Bypass", "-Command", script]
        return subprocess.run(command, env=os.environ | environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def test_installs_replaces_and_removes(self):
        for shell in self.shells:
            with self.subTest(shell):
                for _ in range(2):
                    done = self.run_script(shell)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertIn(f"is installed: {self.program}", done.stdout)
                    self.assertEqual(subprocess.run([self.program, "--version"], stdout=subprocess.DEVNULL).returncode, 0)
                    names = {p.name for p in self.prefix.iterdir()}
                    self.assertEqual(names, {"wf-run.exe", f"wf-run-{VERSION}.cdx.json", *stand_ins.DOCUMENTS})
                done = self.run_script(shell, "-Uninstall")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertFalse(self.prefix.exists())
                self.assertIn("There is no wf-run", self.run_script(shell, "-Uninstall").stdout)

    def test_a_running_program_is_replaced(self):
        self.run_script(self.shells[0])
        # It waits for the rest of a file.
        self.server.faults = {ARCHIVE: "waits"}
        running = subprocess.Popen([self.program, "--silent", "--output", "NUL", f"{self.server.url}/{ARCHIVE}"])
        try:
            self.assertTrue(self.server.waiting.wait(30))
            self.server.faults = {}
            self.assertEqual(self.run_script(self.shells[0]).returncode, 0)
        finally:
            self.server.go_on.set()
            running.kill()
            running.wait()

    def test_what_goes_wrong_is_named_and_leaves_nothing(self):
        for shell in self.shells:
            for faults, word in [
                ({ARCHIVE: "changed"}, "is not what was published"), ({ARCHIVE: "cut"}, "could not download"),
                ({ARCHIVE: "missing"}, "could not download"), ({"SHA256SUMS": "page"}, "has no line for"),
            ]:
                with self.subTest(shell=shell, faults=faults):
                    self.server.faults = faults
                    done = self.run_script(shell)
                    self.assertEqual(done.returncode, 1, done.stdout)
                    self.assertIn(word, done.stderr)
                    self.assertEqual(list(self.prefix.iterdir()), [])
        self.server.faults = {}
        done = self.run_script(self.shells[0], PROCESSOR_ARCHITECTURE="x86", PROCESSOR_ARCHITEW6432="")
        self.assertIn("no archive of wf-run", done.stderr)

    def test_iex(self):
        for shell in self.shells:
            environment = {"WF_PREFIX": str(self.prefix), "WF_KEEP_PATH": "1"}
            command = [shell, "-NoProfile", "-Command", f"irm {self.server.url}/install.ps1 | iex; 'the shell goes on'"]
            done = subprocess.run(command, env=os.environ | environment, text=True, stdout=subprocess.PIPE)
            self.assertIn("the shell goes on", done.stdout)
            self.assertTrue(self.program.is_file())


class Text(unittest.TestCase):
    def test_it_never_closes_the_window(self):
        text = (ROOT / "release/install.ps1").read_text(encoding="ascii")
        code = [line.split("#")[0] for line in text.splitlines()]
        self.assertNotRegex("\n".join(code), r"(?m)(^|[;{])\s*exit\b")
        self.assertEqual(text.count("{"), text.count("}"))


if __name__ == "__main__":
    unittest.main()
