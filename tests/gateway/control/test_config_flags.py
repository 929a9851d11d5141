"""Configuration from flags: ``--engine ADDRESS[=CAPACITY]`` and what each mistake is called."""

from __future__ import annotations

import pytest

from trimtab_gateway import ConfigError, config_from_flags


def test_engines_take_a_capacity_after_the_equals_sign() -> None:
    """An address holds no '=', so IPv6 and URLs stay unambiguous."""
    config = config_from_flags(["10.0.0.1:30000=8", "http://[::1]:30000=2.5", "10.0.0.2:30000"], model="tiny")
    (role,) = config.roles
    (model,) = role.models
    assert (role.name, model.name, role.lenient_model) == ("rollout", "tiny", False)
    assert [(engine.url, engine.capacity) for engine in model.engines] == [
        ("http://10.0.0.1:30000", 8.0),
        ("http://[::1]:30000", 2.5),
        ("http://10.0.0.2:30000", 1.0),
    ]


def test_without_a_model_name_any_is_accepted() -> None:
    """A client's model string is not a reason to refuse when only one model is served."""
    (role,) = config_from_flags(["10.0.0.1:30000"]).roles
    assert role.lenient_model
    assert role.effective_default_model == "default"


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        ("10.0.0.1:30000=", "--engine 10.0.0.1:30000=: capacity: '' is refused: it must be a number"),
        ("10.0.0.1:30000=x", "--engine 10.0.0.1:30000=x: capacity: 'x' is refused: it must be a number"),
        ("10.0.0.1:30000=1=2", "--engine 10.0.0.1:30000=1=2: capacity: '1=2' is refused: it must be a number"),
        ("10.0.0.1:30000=0", "--engine 10.0.0.1:30000=0: capacity: "),
        ("10.0.0.1:30000=nan", "--engine 10.0.0.1:30000=nan: capacity: "),
        ("10.0.0.1:30000=-1", "--engine 10.0.0.1:30000=-1: capacity: "),
        ("10.0.0.1:30000/v1", "--engine 10.0.0.1:30000/v1: url: "),
        ("10.0.0.1", "--engine 10.0.0.1: url: "),
    ],
)
def test_a_bad_engine_is_named(engine: str, message: str) -> None:
    """Flag, value and rule."""
    with pytest.raises(ConfigError) as caught:
        config_from_flags([engine])
    assert str(caught.value).startswith(message)


def test_the_same_engine_twice_is_refused() -> None:
    """Both flags are named."""
    with pytest.raises(ConfigError) as caught:
        config_from_flags(["h:1=2", "http://h:1"])
    assert str(caught.value) == "--engine http://h:1: --engine h:1=2 has the same address http://h:1"


def test_other_flags_are_named_as_they_are_typed() -> None:
    """``--role``, ``--model``, ``--port``, not the field behind them."""
    for flag, knobs in {"--role": {"role": "A"}, "--model": {"model": ""}, "--port": {"port": -1}}.items():
        with pytest.raises(ConfigError) as caught:
            config_from_flags(["h:1"], **knobs)  # type: ignore[arg-type]
        assert str(caught.value).startswith(f"{flag}: ")


@pytest.mark.parametrize(
    ("engine", "message"),
    {
        "http://user:secret@h:1": "--engine http://***@h:1: url: engine address",
        "big=http://user:secret@h:1": "--engine big=http://***@h:1: capacity: 'http://***@h:1' is refused",
    }.items(),
)
def test_a_password_in_an_address_stays_out_of_the_message(engine: str, message: str) -> None:
    """The flag is named without it, also where the address stands in the place of the capacity."""
    with pytest.raises(ConfigError) as caught:
        config_from_flags([engine])
    assert str(caught.value).startswith(message)
    assert "secret" not in str(caught.value)
