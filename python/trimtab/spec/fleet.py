"""The whole of a configuration file for ``trimtab up``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trimtab.spec.error import ConfigError, toml_key
from trimtab.spec.frozen import assign, frozen_table
from trimtab.spec.manager import ManagerSpec
from trimtab.spec.role import InferenceRoleSpec
from trimtab.spec.rules import refuse_duplicates
from trimtab.spec.write import table_of_fleet, toml_of_table

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class FleetSpec:
    """Everything that ``trimtab up`` runs. Valid once built, and nobody can change it.

    Attributes:
        roles: What is served; names are unique.
        manager: Deadlines and limits.
        gateway: The ``[gateway]`` table as it was written; the gateway validates it.
    """

    roles: tuple[InferenceRoleSpec, ...]
    manager: ManagerSpec = field(default_factory=ManagerSpec)
    gateway: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assign(self, roles=tuple(self.roles), gateway=frozen_table("gateway", self.gateway, "{port = 8080}"))
        if not self.roles:
            raise ConfigError("roles", "nothing to serve; give at least one role")
        refuse_duplicates("roles", "role", [role.role for role in self.roles])
        owners: dict[str, str] = {}
        for place, url in self.external_urls():
            first = owners.setdefault(url, place)
            if first != place:
                raise ConfigError(place, f"{url} is refused: {first} has the same address")

    def external_urls(self) -> Iterator[tuple[str, str]]:
        """Where each address of an engine that runs already stands, and the address."""
        for role in self.roles:
            for model in role.models:
                for index, group in enumerate(model.engine_groups):
                    for position, url in enumerate(group.urls):
                        groups = f"roles.{role.role}.models.{toml_key(model.name)}.engine_groups"
                        yield f"{groups}[{index}].urls[{position}]", url

    def to_table(self) -> dict[str, Any]:
        """The file as plain tables, every default written out; ``fleet_from_table`` reads it back."""
        return table_of_fleet(self)

    def to_json(self) -> str:
        """The same as JSON."""
        return json.dumps(self.to_table(), ensure_ascii=False, allow_nan=False)

    def to_toml(self) -> str:
        """The same as TOML. Raises :class:`ConfigError` for a ``null`` inside a table, for which TOML has no word."""
        return toml_of_table(self.to_table())

    @classmethod
    def from_json(cls, text: str) -> FleetSpec:
        """Read what ``to_json`` wrote. Raises :class:`ConfigError`."""
        from trimtab.spec.read import fleet_from_json

        return fleet_from_json(text)
