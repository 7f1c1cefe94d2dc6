"""Replaces what differs from run to run: ids, times, speeds, random seeds, facts about the machine, last digits."""

import re

# Values of these keys are times, speeds or facts about the machine. So are the passes of the libraries,
# where drafts are as long as measured costs let them be.
MASKED = {
    "created", "created_at", "completed_at", "modified_at", "expires_at", "loaded_at", "date", "commit",
    "total_duration", "load_duration", "prompt_eval_duration", "eval_duration", "start_time",
    "prompt_ms", "prompt_per_token_ms", "prompt_per_second", "predicted_ms", "predicted_per_token_ms",
    "predicted_per_second", "ttft_ms", "queue_ms", "tokens_per_second", "time_to_first_token",
    "cpu", "cores", "memory", "isa", "kernels", "kernels_chosen", "kernels_available", "instruction_sets", "n_written", "n_read", "version", "build_info", "digest", "uptime", "system_fingerprint", "passes",
}  # fmt: skip
# So are those of keys with these ends.
MASKED_ENDS = ("_per_second", "_ms", "_seconds", "_bytes", "_per_token")
# A seed that nobody chose has up to 64 bits.
CHOSEN = 1 << 32
# Sizes and speeds in texts.
FIGURE = re.compile(r"\b\d+(\.\d+)? ([KMG]iB|tok/s)")
# The line of `inspect` about instruction sets.
KERNELS = re.compile(r"(?m)^(kernels  +).*")
# Build that `--version` names.
BUILD = re.compile(r"\bwf-run \d+\.\d+\.\d+\S* \(.*?\)")
# The last line of tables: processor, instruction sets, program, time.
MACHINE = re.compile(r".*; wf-run <version>; <time>")
# An id of the server; its end may be the number of a part.
ID = re.compile(r"\b([a-z]{2,8}[-_])?([0-9a-f]{32})(?![0-9a-f])")
TIME = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.\d]*(Z|[+-]\d\d:\d\d)?")


class Masks:
    """Masks of one case: an id has the same number in all its answers."""

    def __init__(self, texts=()):
        self.ids = {}
        # Fixed texts, such as folders, with their names.
        self.texts = dict(texts)

    def text(self, text):
        """Masks a text."""
        for found, name in self.texts.items():
            text = text.replace(found, name)
        text = BUILD.sub("wf-run <version>", text)
        text = TIME.sub("<time>", ID.sub(self._id, text))
        text = MACHINE.sub("<machine>; wf-run <version>; <time>", text)
        return KERNELS.sub(r"\1…", FIGURE.sub(r"… \2", text))

    def _id(self, match):
        number = self.ids.setdefault(match[2], len(self.ids) + 1)
        return f"<{match[1] or 'id-'}{number}>"

    def restored(self, text):
        """Returns a request with the real ids instead of their masks."""
        for real, number in self.ids.items():
            text = re.sub(rf"<([a-z]{{2,8}}[-_]){number}>", rf"\g<1>{real}", text)
        return text

    def value(self, value, key=""):
        """Masks JSON. Floats keep two digits, so rounding of other kernels changes few."""
        if (key in MASKED or key.endswith(MASKED_ENDS)) and value not in (None, "", [], {}):
            return "…"
        if key == "seed" and isinstance(value, int) and value >= CHOSEN:
            return "<seed>"
        if isinstance(value, dict):
            return {self.text(k): self.value(v, k) for k, v in value.items()}
        if isinstance(value, list):
            return [self.value(v) for v in value]
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, float) and not value.is_integer():
            return float(f"{value:.2g}")
        return value
