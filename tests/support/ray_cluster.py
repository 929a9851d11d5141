"""A real Ray cluster on this machine: a head and two raylets, each on a loopback address of its own.

Ray takes 127.0.0.1 for a mistake and replaces it, so the nodes are 127.0.0.2 and up. That also gives each an address
of its own, as real ones have. Imported by tests that have Ray only.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from tests.support.waiting import DEADLINE_S

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCES = tuple(str(REPOSITORY / folder) for folder in ("python", "gateway/src", "manager/src", "."))
STORE_BYTES = 80 * 2**20
GPUS_PER_NODE = 2
VISIBLE = (None, "4,5")
"""``CUDA_VISIBLE_DEVICES`` of each node: one shows Ray all of its GPUs, the other two of eight."""


class RayCluster:
    """A running cluster, to which this process is connected. Workers import the checkout, as the driver does."""

    def __init__(self) -> None:
        import ray
        from ray.cluster_utils import Cluster

        # Every process of the cluster inherits it.
        os.environ["PYTHONPATH"] = os.pathsep.join(SOURCES)
        os.environ["RAY_DEDUP_LOGS"] = "0"
        small = {"object_store_memory": STORE_BYTES, "include_dashboard": False}
        self._cluster = Cluster(
            initialize_head=True, head_node_args={"node_ip_address": "127.0.0.2", "num_cpus": 1, "num_gpus": 0, **small}
        )
        self.nodes = [
            self._cluster.add_node(
                node_ip_address=f"127.0.0.{3 + index}",
                num_cpus=4,
                num_gpus=GPUS_PER_NODE,
                object_store_memory=STORE_BYTES,
                env_vars={} if visible is None else {"CUDA_VISIBLE_DEVICES": visible},
            )
            for index, visible in enumerate(VISIBLE)
        ]
        self.address: str = self._cluster.address
        ray.init(address=self.address, log_to_driver=False, namespace="tests")

    def close(self) -> None:
        """End every process of it."""
        import ray

        ray.shutdown()
        self._cluster.shutdown()

    def groups(self) -> set[str]:
        """Names of the placement groups that exist."""
        from ray.util import placement_group_table

        return {entry["name"] for entry in placement_group_table().values() if entry["state"] != "REMOVED"}

    def actors(self) -> list[str]:
        """Classes of the actors that live."""
        from ray._private.state import actors

        return sorted(
            str(entry.get("ActorClassName") or entry.get("Name"))
            for entry in actors().values()
            if entry["State"] != "DEAD"
        )

    def settled_actors(self) -> list[str]:
        """The same, once a kill had time to be noticed."""
        deadline = time.monotonic() + DEADLINE_S
        while (alive := self.actors()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return alive

    def free_gpus(self) -> float:
        """GPUs that no placement group holds."""
        import ray

        return float(ray.available_resources().get("GPU", 0.0))

    def group(self, bundles: list[dict[str, float]], **options: Any) -> Any:
        """A placement group of somebody else, placed."""
        from ray.util import placement_group

        made = placement_group(bundles, **options)
        assert made.wait(DEADLINE_S), "the group is not placed"
        return made
