"""The configuration of the simulated engine: every rule has its own message."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from trimtab_manager.sim import Fault, SimConfig


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("model_name", "", "model_name must not be empty"),
        ("model_path", "", "model_path must not be empty"),
        ("max_running_requests", 0, "max_running_requests must be a positive whole number, got 0"),
        ("max_running_requests", True, "max_running_requests must be a positive whole number, got True"),
        ("max_total_tokens", -1, "max_total_tokens must be a positive whole number, got -1"),
        ("context_length", 1.5, "context_length must be a positive whole number, got 1.5"),
        ("ends_every", 0, "ends_every must be a positive whole number, got 0"),
        ("vocab_size", 259, "vocab_size must be in"),
        ("vocab_size", 0x110000, "vocab_size must be in"),
        ("prefill_tokens_per_s", 0, "prefill_tokens_per_s must be positive"),
        ("decode_step_s", float("nan"), "decode_step_s must be a finite number"),
        ("decode_request_step_s", -0.1, "decode_request_step_s must be a finite number, not negative"),
        ("time_scale", float("inf"), "time_scale must be a finite number"),
        ("keep_alive_s", "5", "keep_alive_s must be a finite number"),
        ("api_key", "", "api_key must not be empty"),
    ],
)
def test_a_bad_value_is_refused_by_name(field: str, value: Any, message: str) -> None:
    """The message has the field, the rule and the value."""
    with pytest.raises(ValueError, match=message):
        SimConfig(**{field: value})


def test_defaults_are_valid_and_frozen() -> None:
    """No default breaks a rule; a configuration does not change after it was checked."""
    config = SimConfig()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.seed = 1  # type: ignore[misc]


def test_longest_prompt() -> None:
    """What context and cache can hold, less one token and the five that SGLang keeps for the output."""
    assert SimConfig(context_length=2_048, max_total_tokens=16_384).max_prompt_tokens == 2_042
    assert SimConfig(context_length=2_048, max_total_tokens=100).max_request_tokens == 99


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("hold", Fault(kind="hold")),
        ("reset@100:times=1", Fault(kind="reset", at_bytes=100, times=1)),
        ("drip:chunk_bytes=40,delay_s=0.05", Fault(kind="drip", chunk_bytes=40, delay_s=0.05)),
        ("crash@1:path=/generate", Fault(kind="crash", at_bytes=1, path="/generate")),
        ("status:status=500,path=*", Fault(kind="status", status=500, path="*")),
    ],
)  # fmt: skip
def test_short_form_of_a_fault(text: str, fault: Fault) -> None:
    """What the command line takes; JSON reads back what it wrote."""
    assert Fault.parse(text) == fault
    assert Fault.from_mapping(fault.to_mapping()) == fault


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("explode", "unknown fault 'explode'; the kinds are hold, delay"),
        ("reset@many", "at_bytes of a fault must be a number, got 'many'"),
        ("reset@-1", "at_bytes of fault reset must be a whole number, not negative, got -1"),
        ("drip:chunk_bytes=0", "chunk_bytes of fault drip must be a positive whole number, got 0"),
        ("delay:delay_s=-1", "delay_s of fault delay must be finite, not negative, got -1"),
        ("status:status=200", "status of fault status must be between 400 and 599, got 200"),
        ("hold:times=0", "times of fault hold must be a positive whole number, got 0"),
        ("hold:path=generate", "path of fault hold must begin with '/' or be"),
        ("hold:when=now", "when of a fault must be a number, got 'now'"),
        ("hold:when=1", "unknown field 'when' of a fault; the fields are"),
        ("hold:times", "'times' is not of the form name=value"),
    ],
)
def test_a_bad_fault_is_refused_with_the_rule(text: str, message: str) -> None:
    """One message per rule."""
    with pytest.raises(ValueError, match=message):
        Fault.parse(text)


def test_a_fault_without_a_kind_is_refused() -> None:
    """JSON needs it."""
    with pytest.raises(ValueError, match="a fault needs a kind"):
        Fault.from_mapping({"times": 1})
