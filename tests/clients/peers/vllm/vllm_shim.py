"""Stands for vLLM's package in its tests: `RemoteOpenAIServer` starts `wf-run serve`, and a tokenizer asks it.

Other names of vLLM, PyTorch and transformers can be imported, but a test that uses one fails: it tests
classes and no server.
"""

import importlib.abc
import importlib.machinery
import os
import socket
import subprocess
import sys
import time
import types

import anthropic
import openai
import pytest
import requests

PACKAGES = ("vllm", "torch", "transformers", "PIL", "schemathesis", "prometheus_client", "fastapi")
# vLLM's options with the same meaning here.
VALUES = {
    "--max-model-len": "--context",
    "--max_model_len": "--context",
    "--max-num-seqs": "--max-sequences",
    "--served-model-name": "--served-model-name",
    "--api-key": "--api-key",
    "--chat-template": "--chat-template",
    "--seed": None,
}
# Options that change nothing here: number formats, graphs, parsers that the template's own sign selects,
# adapters whose tests are not portable.
DROPPED = {
    "--dtype", "--gpu-memory-utilization", "--tool-call-parser", "--reasoning-parser", "--lora-modules",
    "--max-lora-rank", "--max-cpu-loras", "--structured-outputs-config.backend", "--max-num-batched-tokens",
    "--attention-backend", "--runner", "--kv-cache-dtype", "--load-format", "--generation-config",
    "--reasoning-config", "--structured-outputs-config",
}
SWITCHES = {
    "--enforce-eager", "--enable-prompt-tokens-details", "--no-enable-prefix-caching", "--enable-lora",
    "--enable-auto-tool-choice", "--enable-tokenizer-info-endpoint", "--enable-chunked-prefill",
    "--enable-server-load-tracking", "--trust-remote-code", "--enable-prefix-caching",
    "--enable-per-request-metrics", "--enable-request-id-headers", "--no-enable-server-load-tracking",
    "--no-async-scheduling",
}


class Missing:
    """A name of a package that is not there."""

    def __init__(self, name):
        self._name = name

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Missing(f"{self._name}.{name}")

    def __call__(self, *args, **kwargs):
        pytest.fail(f"{self._name} is no part of a server")

    def __or__(self, other):
        return self

    __ror__ = __or__


class ShimModule(types.ModuleType):
    """A module whose names are missing, but for those that the tests need to talk to a server."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return KNOWN.get((self.__name__, name), Missing(f"{self.__name__}.{name}"))


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules of missing packages, and this one as the tests' `tests.utils`."""

    def find_spec(self, name, path=None, target=None):
        if name == "tests.utils" or name.split(".")[0] in PACKAGES:
            return importlib.machinery.ModuleSpec(name, self, is_package=name != "tests.utils")
        return None

    def create_module(self, spec):
        return sys.modules[__name__] if spec.name == "tests.utils" else ShimModule(spec.name)

    def exec_module(self, module):
        pass


class Platform:
    """A CPU."""

    def __getattr__(self, name):
        return lambda *args: name == "is_cpu"


class Tokenizer:
    """The tokenizer of the running server."""

    def _ask(self, path, **body):
        server = RemoteOpenAIServer.running
        reply = requests.post(server.url_for(path), json={"model": server.model, **body}, timeout=60)
        reply.raise_for_status()
        return reply.json()

    def encode(self, text, add_special_tokens=True):
        return self._ask("tokenize", prompt=text, add_special_tokens=add_special_tokens)["tokens"]

    def decode(self, tokens, skip_special_tokens=False):
        return self._ask("detokenize", tokens=list(tokens))["prompt"]

    def apply_chat_template(self, conversation, tokenize=True, **options):
        body = {"messages": conversation, **options}
        tokens = self._ask("tokenize", **body)["tokens"]
        return tokens if tokenize else self.decode(tokens)

    def convert_tokens_to_ids(self, token):
        return self.encode(token, add_special_tokens=False)[0]


def get_tokenizer(*args, **kwargs):
    return Tokenizer()


class Hub:
    """The hub of adapters, which are not served."""

    def snapshot_download(self, **kwargs):
        return "none"


class Integers:
    """The range of PyTorch's integers."""

    min, max = -(2**63), 2**63 - 1


KNOWN = {
    ("vllm.platforms", "current_platform"): Platform(),
    ("vllm.tokenizers", "get_tokenizer"): get_tokenizer,
    ("vllm.transformers_utils.tokenizer", "get_tokenizer"): get_tokenizer,
    ("transformers", "AutoTokenizer"): types.SimpleNamespace(from_pretrained=get_tokenizer),
    ("vllm.transformers_utils.repo_utils", "hf_api"): Hub,
    ("torch", "iinfo"): lambda kind: Integers,
    ("torch", "long"): None,
}
ROCM_EXTRA_ARGS = []


def multi_gpu_only(**kwargs):
    return pytest.mark.skip(reason="several GPUs")


def multi_gpu_test(**kwargs):
    return pytest.mark.skip(reason="several GPUs")


def large_gpu_mark(**kwargs):
    return pytest.mark.skip(reason="a large GPU")


def requires_fp8(test):
    return pytest.mark.skip(reason="a GPU with FP8")(test)


def translated(given):
    """Returns `wf-run serve`'s arguments for vLLM's."""
    args, given = [], iter(given)
    for option in given:
        option, equal, value = option.partition("=")
        if option in SWITCHES:
            continue
        value = value if equal else next(given, None)
        if option in VALUES:
            args += [VALUES[option], value] if VALUES[option] else []
        elif option not in DROPPED:
            pytest.fail(f"{option} {value} is not known to this shim")
    return args


class RemoteOpenAIServer:
    """The server with the tests' model name, as vLLM's class of this name."""

    DUMMY_API_KEY = "token-abc123"
    running = None

    def __init__(self, model, vllm_serve_args, *, env_dict=None, max_wait_seconds=None, **_):
        self.model = model
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.host, self.port = free.getsockname()
        key = (env_dict or {}).get("VLLM_API_KEY")
        args = translated(vllm_serve_args)
        if "--served-model-name" not in args:
            args += ["--served-model-name", model]
        # A small model does not end its answers by itself.
        if "--context" not in args:
            args += ["--context", "1024"]
        if key:
            args += ["--api-key", key]
        program, file = os.environ["WF_RUN"], os.environ["WF_PEER_MODEL"]
        self.proc = subprocess.Popen([program, "serve", "--model", file, "--port", str(self.port), *args])
        end = time.monotonic() + (max_wait_seconds or 60)
        while not self._is_healthy():
            if self.proc.poll() is not None or time.monotonic() > end:
                self.__exit__()
                raise RuntimeError("the server does not start")
            time.sleep(0.1)
        RemoteOpenAIServer.running = self

    def _is_healthy(self):
        try:
            return requests.get(self.url_for("health"), timeout=5).status_code == 200
        except requests.ConnectionError:
            return False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.proc.terminate()
        self.proc.wait()

    @property
    def url_root(self):
        return f"http://{self.host}:{self.port}"

    def url_for(self, *parts):
        return "/".join([self.url_root, *(part.strip("/") for part in parts if part)])

    def _options(self, base, options):
        return {"base_url": base, "api_key": self.DUMMY_API_KEY, "max_retries": 0, "timeout": 600, **options}

    def get_client(self, **options):
        return openai.OpenAI(**self._options(self.url_for("v1"), options))

    def get_async_client(self, **options):
        return openai.AsyncOpenAI(**self._options(self.url_for("v1"), options))

    def get_client_anthropic(self, **options):
        return anthropic.Anthropic(**self._options(self.url_root, options))

    def get_async_client_anthropic(self, **options):
        return anthropic.AsyncAnthropic(**self._options(self.url_root, options))


sys.meta_path.insert(0, Finder())
