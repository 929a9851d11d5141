"""Everything under tests/ runs with the kit's fixtures and its end-of-test check."""

from __future__ import annotations

pytest_plugins = ["tests.support.plugin", "tests.support.sglang"]
