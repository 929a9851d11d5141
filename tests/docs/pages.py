"""The pages a user reads, and the code in them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")))


def blocks(page: str, *languages: str) -> list[str]:
    """The blocks of a page in one of the languages, in order."""
    found = re.findall(r"```(\w+)\n(.*?)```", (ROOT / page).read_text("utf-8"), flags=re.DOTALL)
    return [code for language, code in found if language in languages]


def commands(page: str) -> list[str]:
    """Every ``trimtab …`` that a page tells to type, on one line each."""
    lines = "".join(blocks(page, "bash", "sh", "console")).replace("\\\n", " ").splitlines()
    return [
        found[0] for line in lines if (found := re.search(r"(?<![\w/.-])trimtab [a-z-]+ .*|trimtab [a-z-]+$", line))
    ]
