"""What every bench writes into the documentation: its section, the machine and the date."""

from __future__ import annotations

import datetime as dt
import os
import platform
from pathlib import Path

DOCUMENT = Path(__file__).parents[2] / "docs" / "benchmarks.md"


def write(bench: str, section: str) -> None:
    """Put ``section`` between the markers of ``benches/<bench>``; without markers yet, at the end."""
    begin, end = f"<!-- benches/{bench}: begin -->", f"<!-- benches/{bench}: end -->"
    text = DOCUMENT.read_text()
    if begin not in text:
        text += f"\n{begin}\n{end}\n"
    head, _, rest = text.partition(begin)
    _, _, tail = rest.partition(end)
    DOCUMENT.write_text(f"{head}{begin}\n{section}\n{end}{tail}")


def machine() -> str:
    """Processor, cores, kernel, and how busy it is with everything."""
    info = Path("/proc/cpuinfo").read_text()
    model = next((line.partition(":")[2].strip() for line in info.splitlines() if line.startswith("model name")), "?")
    kernel = platform.release().partition("-")[0]
    return f"{model}, {os.cpu_count()} cores, Linux {kernel}, load average {os.getloadavg()[0]:.1f} at the start"


def today() -> str:
    """The date, in UTC."""
    return dt.datetime.now(dt.timezone.utc).date().isoformat()
