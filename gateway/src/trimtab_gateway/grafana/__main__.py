"""Prints the dashboard, ready to be imported."""

from __future__ import annotations

import sys
from importlib.resources import files

if __name__ == "__main__":
    sys.stdout.write(files("trimtab_gateway.grafana").joinpath("trimtab.json").read_text())
