"""The simulated engine: an SGLang-compatible server without a model, for development, demos and tests.

Example:
    >>> from trimtab_manager.sim import SimConfig, running_engine
    >>> async with running_engine(SimConfig(max_running_requests=8)) as server:
    ...     print(server.url)

What it models and where it differs from SGLang: ``docs/simulated-engine.md``.
"""

from trimtab_manager.sim.config import SimConfig
from trimtab_manager.sim.engine import SimEngine
from trimtab_manager.sim.faults import Fault
from trimtab_manager.sim.server import SimServer, create_app, running_engine
from trimtab_manager.sim.stats import EngineStatistics

__all__ = ["EngineStatistics", "Fault", "SimConfig", "SimEngine", "SimServer", "create_app", "running_engine"]
