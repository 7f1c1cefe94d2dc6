"""Tests that need no peers: `python3 -m unittest discover benches/peers`."""

import json
import sys
import unittest
from contextlib import redirect_stderr
from dataclasses import replace
from io import StringIO
from unittest.mock import patch

import disturbance
import report
import rounds
from disturbance import Disturbance
from programs import (
    Case,
    Failure,
    Program,
    Sample,
    Test,
    ik_llama_bench,
    litespark,
    llama_bench,
    read_llama_bench,
    read_wf_run,
    wf_run,
    wf_run_f32,
    wf_run_packed,
)

CASE = Case("small", "small", False, 2, Test("pp", 32), 3)
ANSWER = '[{"backend": "x", "tokens_per_second": 2}]'
PROC_STAT = "cpu  100 10 20 1000 50 5 5 30 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\n"


def stub(name, script, **more):
    """A program that is a line of Python."""
    return Program(name, [sys.executable, "-c", script], read_wf_run, **more)


class Programs(unittest.TestCase):
    def test_names_of_tests(self):
        self.assertEqual(Test.parse("pp512"), Test("pp", 512))
        self.assertEqual(str(Test.parse("tg16")), "tg16")
        self.assertEqual(Test.parse("tg16@2048"), Test("tg", 16, 2048))
        self.assertEqual(str(Test.parse("tg16@2048")), "tg16@2048")
        for wrong in ("pp", "pp0", "xx3", "tg-1", "512", "tg16@", "tg16@0", "@8", "tg16@x"):
            with self.assertRaises(ValueError):
                Test.parse(wrong)

    def test_all_are_asked_for_the_same(self):
        theirs, huge = llama_bench("llama-bench")
        asked = "-m small.gguf -p 32 -n 0 -t 2 -r 3 -o json".split()
        ours = (wf_run("wf-run"), wf_run("wf-run", "avx2"), wf_run_f32("wf-run"))
        for program in (*ours, theirs, huge):
            self.assertEqual(program.options(CASE), asked)
        packed = wf_run_packed("wf-run").options(CASE)
        self.assertEqual(packed, ["-m", "small.wf.safetensors", *asked[2:]])
        for program in ik_llama_bench("llama-bench"):
            self.assertEqual(program.options(CASE), ["-m", "small.iq2_bn.gguf", *asked[2:]])
        self.assertEqual(wf_run("wf-run", "avx2").environment, {"WF_ISA": "avx2"})

    def test_depths(self):
        case = replace(CASE, test=Test("tg", 16, 2048), repetitions=1)
        asked = "-m small.gguf -p 0 -n 16 -t 2 -r 1 -o json".split()
        self.assertEqual(wf_run("wf-run").options(case), [*asked, "--depth", "2048"])
        for program in llama_bench("llama-bench"):
            self.assertEqual(program.options(case), [*asked, "-fa", "on", "-d", "2048"])
        for program in (wf_run_packed("wf-run"), *litespark("python", "bench.py")):
            self.assertTrue(program.fits(replace(case, test=Test("tg", 16))))
            self.assertFalse(program.fits(case))

    def test_answers(self):
        ours = '[{"model": "m", "backend": "avx512", "test": "pp32", "tokens_per_second": 12.5}]'
        theirs = '[{"backends": "CPU", "n_prompt": 32, "avg_ts": 3.25, "samples_ts": [3.25]}]'
        self.assertEqual(read_wf_run(ours), Sample(12.5, "avx512"))
        self.assertEqual(read_llama_bench(theirs), Sample(3.25, "CPU"))

    def test_an_outer_isa_does_not_decide(self):
        script = """
import json, os
print(json.dumps([{"backend": os.environ.get("WF_ISA", "best"), "tokens_per_second": 1}]))"""
        with patch.dict("os.environ", WF_ISA="scalar"):
            self.assertEqual(stub("a", script).run(CASE).backend, "best")
            chosen = stub("a", script, environment={"WF_ISA": "avx2"})
            self.assertEqual(chosen.run(CASE).backend, "avx2")

    def test_failures_say_who_and_why(self):
        with self.assertRaisesRegex(Failure, "a ended with 1 at pp32: no such file"):
            stub("a", "raise SystemExit('no such file')").run(CASE)
        for answer in ("[]", "[{}]", "what?"):
            with self.assertRaisesRegex(Failure, "a answered pp32 with nonsense"):
                stub("a", f"print('{answer}')").run(CASE)


class Disturbances(unittest.TestCase):
    def test_busy_and_stolen(self):
        busy, stolen = disturbance.cpu_seconds(PROC_STAT)
        self.assertEqual((busy * disturbance.TICK, stolen * disturbance.TICK), (140, 30))

    def test_a_name_may_hold_anything(self):
        stat = "17 (a) b (c) S 1 17 17 0 -1 0 0 0 0 0 200 100 7 7 20 0 1 0 5 0 0"
        self.assertEqual(disturbance.process_seconds(stat), ("a) b (c", 300 / disturbance.TICK))

    def test_culprits(self):
        before = {"1": ("rustc", 5.0), "2": ("idle", 1.0)}
        after = {"1": ("rustc", 9.0), "2": ("idle", 1.0), "3": ("rustc", 1.0)}
        said = disturbance.name(before, after, unseen=8.0, stolen=1.0, total=20.0)
        self.assertEqual(said, "rustc 25 %, processes that have ended 15 %, the hypervisor 5 %")

    def test_what_our_children_use_is_ours(self):
        work = f"sum(range(10 ** 7)); print('{ANSWER}')"
        before = disturbance.own_seconds()
        stub("a", work).run(CASE)
        self.assertGreater(disturbance.own_seconds() - before, 0.02)


class Rounds(unittest.TestCase):
    programs = [stub(name, f"print('{ANSWER}')") for name in "ab"]

    def measure(self, shares, allow_noise=False):
        noises = [Disturbance(share, "rustc 40 %") for share in shares]
        with (
            patch("rounds.wait_for_quiet"),
            patch("rounds.Watch") as watch,
            redirect_stderr(StringIO()) as said,
        ):
            watch.return_value.stop.side_effect = noises
            return rounds.measure(self.programs, [CASE], 1, allow_noise), said.getvalue()

    def test_a_disturbed_round_is_repeated(self):
        (result,), said = self.measure([0.01, 0.4, 0.02, 0.01])
        self.assertEqual(result.samples, {"a": [2], "b": [2]})
        self.assertEqual(result.worst, 0.02)
        self.assertIn("rustc 40 %", said)

    def test_and_given_up_with_the_culprit(self):
        with self.assertRaisesRegex(rounds.Disturbed, "40 % of the cores .rustc 40 %"):
            self.measure([0.4] * rounds.TRIES)

    def test_unless_noise_is_allowed(self):
        (result,), _ = self.measure([0.4, 0.2], allow_noise=True)
        self.assertEqual(result.worst, 0.4)

    def test_a_program_is_asked_for_its_kind_only(self):
        self.programs = [self.programs[0], stub("c", "raise SystemExit(1)", kinds=("tg",))]
        (result,), _ = self.measure([0.0])
        self.assertEqual(list(result.samples), ["a"])


class Report(unittest.TestCase):
    def setUp(self):
        self.result = rounds.Measured(CASE)
        for ours, theirs in ((30.0, 10.0), (100.0, 40.0), (44.0, 11.0)):
            samples = {"wrinklefree": Sample(ours, "avx512"), "llama.cpp": Sample(theirs, "CPU")}
            self.result.add(samples, 0.01)

    def test_ratios_are_of_the_same_round(self):
        self.assertEqual(report.ratios([30, 100], [10, 40]), [3, 2.5])
        with self.assertRaises(ValueError):
            report.ratios([1], [1, 2])

    def test_table(self):
        ours = ["wrinklefree", "wrinklefree, x"]
        lines = report.markdown([self.result], ours).splitlines()
        self.assertEqual(lines[0], "### small")
        head = "| test | threads | program | kernels | tok/s | wrinklefree is | wrinklefree, x is |"
        self.assertEqual(lines[2], head)
        self.assertEqual(lines[4], "| pp32 | 2 | wrinklefree | avx512 | 44.0 (30.0 – 100) |  |  |")
        theirs = "| pp32 | 2 | llama.cpp | CPU | 11.0 (10.0 – 40.0) | 3.00 (2.50 – 4.00) × |  |"
        self.assertEqual(lines[5], theirs)

    def test_json(self):
        found = json.loads(report.as_json([self.result], ["wrinklefree"], {"rounds": 3}))
        programs = found["results"][0]["programs"]
        self.assertEqual(programs["llama.cpp"]["ours_is_faster"], {"wrinklefree": [3.0, 2.5, 4.0]})
        self.assertNotIn("ours_is_faster", programs["wrinklefree"])
        self.assertEqual(found["rounds"], 3)


if __name__ == "__main__":
    unittest.main()
