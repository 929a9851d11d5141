"""Connecting to a cluster: what is said when there is none."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.sockets import silent_address

if TYPE_CHECKING:
    from tests.support.ray_cluster import RayCluster

pytestmark = [pytest.mark.ray, pytest.mark.slow]

DRIVER = """
import asyncio, sys
from pathlib import Path
from tests.ray_cluster.conftest import request
from trimtab_manager.launch.ray import connection, ray_launcher
from trimtab_manager.launch.types import LaunchError

async def main(address):
    connection.CONNECT_DEADLINE_S = 1.0
    launcher = ray_launcher(Path("logs"), address=address)
    try:
        await launcher.launch(request())
    except LaunchError as error:
        print(error)
    await launcher.close()

asyncio.run(main(sys.argv[1]))
"""


async def driver_says(address: str) -> str:
    """What a driver of its own prints."""
    driver = await asyncio.create_subprocess_exec(
        sys.executable, "-c", DRIVER, address, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    out, _ = await asyncio.wait_for(driver.communicate(), 60.0)
    return out.decode()


async def test_a_head_that_does_not_answer_is_an_error(cluster: RayCluster) -> None:
    """``ray.init`` would wait for ever: the launch fails at a deadline, and the process can end."""
    with silent_address() as address:
        said = await driver_says(address)
    assert f"the Ray cluster at {address} did not answer within 1 s" in said


async def test_ray_client_is_refused(cluster: RayCluster) -> None:
    """The address of a Ray Client says what to do instead."""
    assert "run the manager on a node of the cluster" in await driver_says("ray://127.0.0.1:10001")
