from collections.abc import Coroutine, Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import Any, Final, Literal, TypeAlias, TypedDict, final, type_check_only

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self, Unpack

__all__ = [
    "Chunk",
    "Completion",
    "Engine",
    "Error",
    "OpenError",
    "RequestError",
    "Stream",
    "ToolCall",
    "ToolCallChunk",
    "__version__",
    "load",
]
__version__: Final[str]
_Tokens: TypeAlias = Sequence[int] | NDArray[np.integer[Any]]

class Error(Exception): ...
class OpenError(Error): ...
class RequestError(Error): ...

@type_check_only
class _Options(TypedDict, total=False):
    max_tokens: int | None
    stop: str | Sequence[str] | None
    logprobs: int | None
    diffusing: bool | None
    context_shift: int | None
    suffix: str | None
    json_schema: Mapping[str, Any] | bool | None
    regex: str | None
    grammar: str | None
    best_effort: bool | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    typical_p: float | None
    top_n_sigma: float | None
    xtc_probability: float | None
    xtc_threshold: float | None
    mirostat: Literal[0, 1, 2] | None
    mirostat_tau: float | None
    mirostat_eta: float | None
    repetition_penalty: float | None
    frequency_penalty: float | None
    presence_penalty: float | None
    logit_bias: Mapping[int, float] | Mapping[str, float] | Sequence[tuple[int, float]] | None
    seed: int | None
    decode_mode: Literal["auto", "ar", "greedy", "iterative", "adaptive", "verify"] | None
    draft: Literal["denoise", "ngram", "mtp", "model"] | None
    draft_length: int | None
    draft_threshold: float | None
    row_cost: float | None
    block_size: int | None
    small_block_size: int | None
    selector: (
        Literal[
            "threshold",
            "factor",
            "entropy",
            "margin",
            "topk",
            "threshold-factor",
            "threshold-or-factor",
            "product",
        ]
        | None
    )
    threshold: float | None
    factor: float | None
    entropy_bound: float | None
    slots_per_pass: int | None
    mask_token_id: int | None
    block_attention: Literal["bidirectional", "causal"] | None
    logit_shift: Literal[0, 1] | None
    sub_block_cache: bool | None
    commit: Literal["clean", "fused"] | None

@type_check_only
class _ChatOptions(_Options, total=False):
    enable_thinking: bool | None
    reasoning_effort: (
        Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None
    )
    thinking_budget: int | None
    preserve_thinking: bool | None
    chat_template_kwargs: Mapping[str, Any] | None
    tools: Sequence[Mapping[str, Any]] | None
    tool_choice: Literal["none", "auto", "required"] | Mapping[str, Any] | None
    parallel_tool_calls: bool | None
    documents: Sequence[Mapping[str, Any]] | None

@type_check_only
class _Stats(TypedDict):
    running: int
    waiting: int
    free_pages: int
    idle_pages: int
    kv_pages: int
    preempted: int

_Reason: TypeAlias = Literal["stop", "length", "cancelled", "tool_calls"]

@final
class ToolCall:
    def __new__(cls, id: str, name: str, arguments: str) -> Self: ...
    def __getnewargs__(self) -> tuple[str, str, str]: ...
    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def arguments(self) -> str: ...
    def to_dict(self) -> dict[str, Any]: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class ToolCallChunk:
    @property
    def index(self) -> int: ...
    @property
    def id(self) -> str | None: ...
    @property
    def name(self) -> str | None: ...
    @property
    def arguments(self) -> str: ...

@final
class Chunk:
    @property
    def text(self) -> str: ...
    @property
    def reasoning(self) -> str: ...
    @property
    def tool_calls(self) -> list[ToolCallChunk]: ...
    @property
    def snapshot(self) -> str | None: ...
    @property
    def reasoning_snapshot(self) -> str | None: ...
    @property
    def token(self) -> int | None: ...
    @property
    def logprob(self) -> float | None: ...
    @property
    def top_logprobs(self) -> list[tuple[int, float]]: ...
    @property
    def finish_reason(self) -> _Reason | None: ...
    @property
    def prompt_tokens(self) -> int | None: ...
    @property
    def cached_tokens(self) -> int | None: ...
    @property
    def passes(self) -> int | None: ...

@final
class Completion:
    def __new__(
        cls,
        text: str,
        reasoning: str,
        tool_calls: Sequence[ToolCall],
        tokens: Sequence[int],
        logprobs: Sequence[float] | None,
        top_logprobs: Sequence[Sequence[tuple[int, float]]],
        finish_reason: _Reason,
        prompt_tokens: int,
        cached_tokens: int,
        passes: int,
    ) -> Self: ...
    def __getnewargs__(
        self,
    ) -> tuple[
        str,
        str,
        list[ToolCall],
        list[int],
        list[float] | None,
        list[list[tuple[int, float]]],
        _Reason,
        int,
        int,
        int,
    ]: ...
    @property
    def text(self) -> str: ...
    @property
    def reasoning(self) -> str: ...
    @property
    def tool_calls(self) -> list[ToolCall]: ...
    @property
    def tokens(self) -> list[int]: ...
    @property
    def logprobs(self) -> list[float] | None: ...
    @property
    def top_logprobs(self) -> list[list[tuple[int, float]]]: ...
    @property
    def finish_reason(self) -> _Reason: ...
    @property
    def prompt_tokens(self) -> int: ...
    @property
    def cached_tokens(self) -> int: ...
    @property
    def passes(self) -> int: ...

@final
class Stream:
    def __iter__(self) -> Self: ...
    def __next__(self) -> Chunk: ...
    def __aiter__(self) -> Self: ...
    def __anext__(self) -> Coroutine[Any, Any, Chunk]: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        value: BaseException | None = None,
        traceback: TracebackType | None = None,
        /,
    ) -> None: ...
    def cancel(self) -> None: ...

@final
class Engine:
    def generate(self, prompt: str | _Tokens, **options: Unpack[_Options]) -> Completion: ...
    def stream(self, prompt: str | _Tokens, **options: Unpack[_Options]) -> Stream: ...
    def chat(
        self, messages: Sequence[Mapping[str, Any]], **options: Unpack[_ChatOptions]
    ) -> Completion: ...
    def chat_stream(
        self, messages: Sequence[Mapping[str, Any]], **options: Unpack[_ChatOptions]
    ) -> Stream: ...
    def embed(
        self, text: str, *, pooling: Literal["mean", "last"] = "mean"
    ) -> NDArray[np.float32]: ...
    def logits(self, tokens: _Tokens) -> NDArray[np.float32]: ...
    def tokenize(self, text: str) -> list[int]: ...
    def detokenize(self, tokens: _Tokens) -> str: ...
    def stats(self) -> _Stats: ...
    @property
    def name(self) -> str: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def hidden_size(self) -> int: ...
    @property
    def context(self) -> int: ...

def load(
    model: str | PathLike[str] | None = None,
    *,
    revision: str = "main",
    threads: int | None = None,
    pinned: bool = False,
    context: int | None = None,
    max_sequences: int | None = None,
    kv_dtype: Literal["f32", "f16", "bf16", "fp8-e4m3", "fp8-e5m2", "int8"] = "bf16",
    logits: Literal["exact", "screened"] = "exact",
    activations: Literal["auto", "exact", "int8"] = "auto",
    layout: Literal["auto", "two-bit", "tight", "one-bit"] = "auto",
    allow_control_tokens: bool = False,
    draft_model: str | PathLike[str] | None = None,
    draft_layout: Literal["dflash", "dspark"] | None = None,
) -> Engine: ...
