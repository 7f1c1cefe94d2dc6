"""Tests of the scripts next to it."""

import json
import re
import subprocess
import sys
import unittest
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER))


def script(name):
    loader = SourceFileLoader(name, str(FOLDER / name))
    module = module_from_spec(spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


class Licenses(unittest.TestCase):
    def test_one_of_each_or_and_all_of_an_and(self):
        choose = script("third_party").choose
        for expression, licenses in {
            "MIT": ["MIT"],
            "Apache-2.0 OR MIT": ["MIT"],
            "Apache-2.0/MIT": ["MIT"],
            "MIT OR Apache-2.0 OR LGPL-2.1-or-later": ["MIT"],
            "(MIT OR Apache-2.0) AND Unicode-3.0": ["MIT", "Unicode-3.0"],
            "Apache-2.0 WITH LLVM-exception OR Apache-2.0": ["Apache-2.0"],
            "MIT OR Apache-2.0 AND ISC": ["MIT"],
            "ISC AND MIT OR Apache-2.0": ["Apache-2.0"],
        }.items():
            self.assertEqual(choose(expression), licenses, expression)

    def test_others_are_refused(self):
        choose = script("third_party").choose
        for expression in ["GPL-3.0", "GPL-3.0 AND MIT", "", "MIT XOR ISC", "MIT)"]:
            with self.assertRaises(ValueError, msg=expression):
                choose(expression)


class UnsafeCrates(unittest.TestCase):
    def test_those_that_the_documentation_names_are_there_and_use_it(self):
        page = (FOLDER.parents[1] / "docs/security.md").read_text(encoding="utf-8")
        table = page.split("| bytes | crates |")[1].split("\n\n")[0]
        rows = [row.split("|")[2].split("(")[0] for row in table.splitlines()[2:]]
        named = {name for row in rows for name in re.findall("`([^`]+)`", row)}
        self.assertGreater(len(named), 15)
        counts = script("unsafe_crates").counts()
        self.assertLessEqual(named, {name for (name, _), uses in counts.items() if uses})
        self.assertEqual([uses for (name, _), uses in counts.items() if name == "rustls"], [0])


class Macos(unittest.TestCase):
    def test_no_crate_links_frameworks_which_other_systems_do_not_have_to_link_with(self):
        crates = script("sbom")
        packages, _ = crates.linked(crates.metadata("aarch64-apple-darwin"), crates.PRODUCTS["native"][0])
        named = {package["name"] for package in packages.values()}
        self.assertIn("rustix", named)
        frameworks = {"objc2", "core-foundation-sys", "security-framework-sys"}
        self.assertEqual(named & frameworks, set())


class BillOfMaterials(unittest.TestCase):
    def test_it_is_valid_and_complete(self):
        validator = JsonStrictValidator(SchemaVersion.V1_5)
        for product, root in [("native", "wf-run"), ("web", "wrinklefree-web")]:
            command = [FOLDER / "sbom", product]
            text = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            self.assertIsNone(validator.validate_str(text))
            bom = json.loads(text)
            self.assertEqual(bom["metadata"]["component"]["name"], root)
            known = {c["bom-ref"] for c in bom["components"]}
            known.add(bom["metadata"]["component"]["bom-ref"])
            self.assertEqual(known, {d["ref"] for d in bom["dependencies"]})
            for dependency in bom["dependencies"]:
                self.assertLessEqual(set(dependency["dependsOn"]), known)
            named = {c["name"] for c in bom["components"]}
            self.assertLessEqual({"wrinklefree", "tokenizers"}, named)
            self.assertNotIn("criterion", named, "benchmarks are not shipped")
            foreign = [c for c in bom["components"] if not c["name"].startswith(("wrinklefree", "wf-run"))]
            self.assertTrue(all("hashes" in c for c in foreign))


if __name__ == "__main__":
    unittest.main()
