"""Sampling parameters as SGLang checks them: first the schema of the HTTP body, then the values.

The two kinds of error look different on the wire: the schema's is ``{"error": "text"}``, the values' is
``{"error": {"message": "text"}}``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

DEFAULT_MAX_NEW_TOKENS = 128

_INTEGERS = frozenset(
    {"max_new_tokens", "top_k", "min_new_tokens", "n", "stream_interval", "sampling_seed", "beam_width"}
)
_NUMBERS = frozenset(
    {"temperature", "top_p", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty"},
)
_BOOLEANS = frozenset({"ignore_eos", "skip_special_tokens", "spaces_between_special_tokens", "no_stop_trim"})
_KNOWN = (
    "max_new_tokens", "stop", "stop_token_ids", "stop_regex", "temperature", "top_p", "top_k", "min_p",
    "frequency_penalty", "presence_penalty", "repetition_penalty", "min_new_tokens", "n", "json_schema", "regex",
    "ebnf", "structural_tag", "ignore_eos", "skip_special_tokens", "spaces_between_special_tokens", "no_stop_trim",
    "stream_interval", "logit_bias", "sampling_seed", "custom_params", "beam_width", "watermark", "choice",
)  # fmt: skip


class SchemaError(Exception):
    """The body does not fit SGLang's schema; answered with ``{"error": "<text>"}``."""


class RequestError(Exception):
    """The request cannot be served as it is; answered with ``{"error": {"message": "<text>"}}``."""


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """What shapes one output. Parameters that only a real model can honour are accepted and ignored.

    ``limit_given`` tells a named ``max_new_tokens`` from the default: only a named one must fit into the context, the
    default is shortened to what is left.
    """

    max_new_tokens: int | None = DEFAULT_MAX_NEW_TOKENS
    limit_given: bool = False
    min_new_tokens: int = 0
    temperature: float = 1.0
    n: int = 1
    stop: tuple[str, ...] = ()
    stop_token_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False
    no_stop_trim: bool = False
    sampling_seed: int | None = None

    @property
    def greedy(self) -> bool:
        """Whether the output is a function of weights and prompt alone."""
        return self.temperature == 0

    @classmethod
    def parse(cls, given: dict[str, Any]) -> SamplingParams:
        """Parameters from a body that passed ``check_schema``. Raises ``RequestError`` for a value out of range."""
        values = {name: value for name, value in given.items() if value is not None}
        _check_ranges(values, given.get("max_new_tokens", DEFAULT_MAX_NEW_TOKENS))
        stop = values.get("stop", ())
        return cls(
            max_new_tokens=given.get("max_new_tokens", DEFAULT_MAX_NEW_TOKENS),
            limit_given="max_new_tokens" in values,
            min_new_tokens=values.get("min_new_tokens", 0),
            temperature=values.get("temperature", 1.0),
            n=values.get("n", 1),
            stop=(stop,) if isinstance(stop, str) else tuple(stop),
            stop_token_ids=frozenset(values.get("stop_token_ids", ())),
            ignore_eos=values.get("ignore_eos", False),
            no_stop_trim=values.get("no_stop_trim", False),
            sampling_seed=values.get("sampling_seed"),
        )


def check_schema(given: dict[str, Any]) -> None:
    """Names and types. Raises ``SchemaError`` with the text of SGLang's schema check."""
    for name, value in given.items():
        if name not in _KNOWN:
            expected = ", ".join(f"`{known}`" for known in _KNOWN)
            raise SchemaError(f"unknown field `{name}`, expected one of {expected}")
        if value is None:
            continue
        if name in _INTEGERS and (isinstance(value, bool) or not isinstance(value, int)):
            raise SchemaError(f"invalid type: {_describe(value)}, expected i64")
        if name in _NUMBERS and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise SchemaError(f"invalid type: {_describe(value)}, expected f64")
        if name in _BOOLEANS and not isinstance(value, bool):
            raise SchemaError(f"invalid type: {_describe(value)}, expected a boolean")
        if name == "stop" and not _strings(value):
            raise SchemaError(f"invalid type: {_describe(value)}, expected a string or a list of strings")
        if name == "stop_token_ids" and not _integers(value):
            raise SchemaError(f"invalid type: {_describe(value)}, expected a list of integers")


def _check_ranges(values: dict[str, Any], high: int | None) -> None:
    temperature = values.get("temperature", 1.0)
    if not math.isfinite(temperature) or temperature < 0:
        raise RequestError(f"temperature must be a non-negative finite number, got {temperature}.")
    if not 0 < values.get("top_p", 1.0) <= 1:
        raise RequestError(f"top_p must be in (0, 1], got {values['top_p']}.")
    if not 0 <= values.get("min_p", 0.0) <= 1:
        raise RequestError(f"min_p must be in [0, 1], got {values['min_p']}.")
    if values.get("n", 1) < 1:
        raise RequestError(f"n must be at least 1, got {values['n']}.")
    top_k = values.get("top_k", -1)
    if top_k < 1 and top_k != -1:
        raise RequestError(f"top_k must be -1 (disable) or at least 1, got {top_k}.")
    low = values.get("min_new_tokens", 0)
    if low < 0:
        raise RequestError(f"min_new_tokens must be in [0, max_new_tokens], got {low}.")
    if high is None:
        return
    if high < 0:
        raise RequestError(f"max_new_tokens must be at least 0, got {high}.")
    if low > high:
        raise RequestError(f"min_new_tokens must be in [0, max_new_tokens({high})], got {low}.")


def _strings(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and all(isinstance(item, str) for item in value))


def _integers(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, int) and not isinstance(item, bool) for item in value)


def _describe(value: object) -> str:
    if isinstance(value, str):
        return f'string "{value}"'
    if isinstance(value, bool):
        return f"boolean `{str(value).lower()}`"
    if isinstance(value, int | float):
        return f"number `{value}`"
    return "map" if isinstance(value, dict) else "sequence"
