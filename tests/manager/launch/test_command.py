"""The command line of an engine."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.manager.launch.conftest import request
from trimtab_manager.launch.command import Place, server_command, shown
from trimtab_manager.launch.types import LaunchError

PLACE = Place("127.0.0.1", range(20_000, 20_016))
OWN = "--model-path models/tiny --served-model-name tiny --host 127.0.0.1 --port 20000"


def command(place: Place = PLACE, engine: str = "sglang", **fields: Any) -> str:
    """As one would type it."""
    return shown(server_command(request(engine, **fields), place, python="py"))


@pytest.mark.parametrize(
    ("arguments", "flags"),
    [
        ({}, ""),
        ({"max_running_requests": 8, "--dtype": "float32"}, " --max-running-requests 8 --dtype float32"),
        ({"sleep-on-idle": True, "disable-radix-cache": False, "chunked": None}, " --sleep-on-idle"),
        ({"lora-paths": ["a", "b c"]}, " --lora-paths a 'b c'"),
        ({"json-model-override-args": {"rope": 1}}, """ --json-model-override-args '{"rope": 1}'"""),
        ({"mem-fraction-static": 0.8}, " --mem-fraction-static 0.8"),
        ({"admin-api-key": "secret"}, ""),
    ],
)
def test_any_flag_passes_through(arguments: dict[str, Any], flags: str) -> None:
    """In every form of a name and a value; a key never does."""
    assert command(server_args=arguments) == f"py -m sglang.launch_server {OWN} --nccl-port 20001{flags}"


def test_ports_of_every_layout_come_from_the_block() -> None:
    """Plain data parallelism lets SGLang choose; with shared attention the rendezvous is ours; nodes have ranks."""
    assert "--nccl-port" not in command(server_args={"dp-size": 2})
    assert "--nccl-port 20001 --dist-init-addr 127.0.0.1:20002" in command(
        server_args={"dp_size": 2, "enable_dp_attention": True}
    )
    place = Place("0.0.0.0", range(20_016, 20_032), node=1, rendezvous="fe80::1", rendezvous_port=20_002, base_gpu=4)
    words = command(place, nodes=2)
    assert "--nnodes 2 --node-rank 1 --dist-init-addr '[fe80::1]:20002' --base-gpu-id 4" in words


def test_a_simulated_engine() -> None:
    """The manager's own interpreter; a list repeats the flag."""
    assert command(engine="sim", server_args={"fault": ["hold", "drip"]}) == (
        f"{sys.executable} -m trimtab_manager.sim.cli --model-path models/tiny --model-name tiny --host 127.0.0.1 "
        f"--port 20000 --fault hold --fault drip"
    )


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (
            {"server_args": {"port": 1, "model": "x"}},
            "policy/0: server_args sets model, port, which the launcher itself",
        ),
        ({"server_args": {"--nccl_port": 1}}, "server_args sets nccl-port"),
        ({"engine": "vllm"}, "unknown kind of engine 'vllm'; there are sglang and sim"),
    ],
)
def test_what_is_refused(fields: dict[str, Any], text: str) -> None:
    """What the launcher owns, and kinds that do not exist."""
    with pytest.raises(LaunchError, match=text):
        command(**fields)


def test_keys_and_a_configuration_file() -> None:
    """SGLang reads one file, so a second one is refused rather than ignored."""
    place = Place("127.0.0.1", range(20_000, 20_016), key_file="/tmp/key.yaml")
    assert command(place).endswith("--config /tmp/key.yaml")
    with pytest.raises(LaunchError, match="server_args sets config, and SGLang reads one file only"):
        command(place, server_args={"config": "mine.yaml"})
