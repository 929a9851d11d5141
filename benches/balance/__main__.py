"""``python -m benches.balance``: see ``benches.balance.command``."""

from __future__ import annotations

import sys

from benches.balance import compiled

if __name__ == "__main__":
    if "--smoke" not in sys.argv:  # which takes a second, and compiling half a minute
        compiled.prefer()
    from benches.balance.command import main

    main()
