"""Fleet control over HTTP: ``POST /<role>/pause`` and its kin, carried out by the manager."""

from __future__ import annotations

from trimtab_gateway.control.fleet.routes import add_fleet_routes

__all__ = ["add_fleet_routes"]
