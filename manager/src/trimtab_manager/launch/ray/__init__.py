"""Engines on a Ray cluster: one actor per engine node, on the bundles of a placement group.

What runs where:

    driver (the manager)                        node of the cluster
    RayLauncher ── placement group ──────────►  bundle: the GPUs
      RayEngine ── EngineNode actor (0 CPUs) ►    guard ── engine process, its log, its ports
      RayRun ───── marker actor

The actor does on its node what the local launcher does on this one, with the same parts. Everything is bound to the
life of the driver: groups, actors and markers are not detached, and an engine does not outlive its actor.

Ray is an extra (``trimtab-manager[ray]``) and imported only when a launcher is made.

Example:
    >>> launcher = ray_launcher(Path("/var/log/trimtab"), address="auto")
    >>> handle = await launcher.launch(request)
    >>> print(handle.url, handle.facts["nodes"])
    >>> await launcher.close()
"""

from trimtab_manager.launch.ray.factory import ray_launcher

__all__ = ["ray_launcher"]
