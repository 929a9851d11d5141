"""Which GPUs of this host are free for engines that no plan has placed."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab_manager.launch.gpus import Gpu
from trimtab_manager.launch.types import LaunchError


class GpuPool:
    """GPUs that engines take and give back.

    Args:
        gpus: All that this process may give out.
    """

    def __init__(self, gpus: Sequence[Gpu]) -> None:
        self._gpus = tuple(gpus)
        self._holders: dict[Gpu, str] = {}

    def take(self, count: int, holder: str) -> tuple[Gpu, ...]:
        """The first ``count`` free ones.

        Raises:
            LaunchError: There are fewer; the message says who has the others.
        """
        free = [gpu for gpu in self._gpus if gpu not in self._holders]
        if len(free) < count:
            held = ", ".join(f"{gpu}: {who}" for gpu, who in self._holders.items()) or "none is taken"
            raise LaunchError(
                f"{holder} needs {count} GPUs, and {len(free)} of {len(self._gpus)} on this host are free ({held}). "
                f"Lower replicas or gpus_per_engine, or launch on more hosts"
            )
        taken = tuple(free[:count])
        self._holders |= dict.fromkeys(taken, holder)
        return taken

    def give_back(self, gpus: Sequence[Gpu]) -> None:
        """They are free again."""
        for gpu in gpus:
            self._holders.pop(gpu, None)

    def taken(self) -> dict[str, str]:
        """Who has which."""
        return {str(gpu): holder for gpu, holder in self._holders.items()}
