"""``trimtab demo``: the main job in half a minute, on simulated engines.

Only ``click`` is imported here; servers and the live view load when the demo starts, so that ``--help`` stays quick.

Parts: ``workload`` plans sessions from a seed, ``client`` sends one turn, ``driver`` keeps a window of sessions going,
``tally`` counts what the clients saw, ``fleet`` runs engines and gateway, ``view`` shows them live, ``reconcile``
compares the three books, ``summary`` says how it went, ``run`` puts it all together and ``entry`` is the command line.
"""

from __future__ import annotations

from trimtab.cli.demo.entry import command

__all__ = ["command"]
