"""The weights an engine serves, and the two places that name their version.

SGLang keeps the label twice. The HTTP side reports it in ``/model_info`` and ``meta_info.weight_version`` and moves it
when a call *succeeds*; the scheduler stamps the tokens (``meta_info.weight_versions``) and moves its label when the
weights *change*. An update whose flush is refused therefore leaves them apart, here as there. A complete answer is
labelled by its last token.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trimtab_manager.sim.tokens import fingerprint

SIMULATED = "sim://"
INITIAL_VERSION = "default"


@dataclass
class Weights:
    """Identity and labels. ``loaded`` is what computes tokens; the other fields are what is said about it."""

    model_path: str
    served_name: str
    version: str = INITIAL_VERSION
    token_version: str = INITIAL_VERSION
    loaded: int = 0

    def __post_init__(self) -> None:
        self.loaded = fingerprint(self.model_path)

    def load(self, path: str, version: str | None) -> None:
        """Other weights compute from the next step on. Without a version the tokens keep the old label."""
        self.loaded = fingerprint(path)
        if version is not None:
            self.token_version = version

    def lose(self) -> None:
        """Nothing sensible is computed until others are loaded."""
        self.loaded = 0

    def announce(self, path: str, version: str | None) -> None:
        """The update succeeded: the served model now has the name of the path, as in SGLang."""
        self.model_path = path
        self.served_name = path
        if version is not None:
            self.version = version

    def relabel(self, version: str) -> None:
        """Change only what is said about the weights."""
        self.version = version
        self.token_version = version


def loadable(path: str) -> bool:
    """Whether an update from this path succeeds: an existing folder, or any name under ``sim://``."""
    return path.startswith(SIMULATED) or Path(path).is_dir()
