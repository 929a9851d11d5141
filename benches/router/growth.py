"""The gate on growth: what the pool's operations cost with little in the pool and with much, in instructions.

A turn with 1,000 backends and a million sessions may take half as many instructions again as one with 16 backends and
a thousand sessions, and so for the other operations: what grows faster scans something. Instructions are counted by
valgrind, so the result is the same on a busy machine. Run as ``python -m benches.router.growth``; it ends with an error
when an operation grows faster than that.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
BOUND = 1.5
SECTION = "growth::counted_section"

CASES = {
    "turn": ("acquire + settle, known session", "16 backends, 1,000 sessions", "1,000 backends, 1,000,000 sessions"),
    "new_session": ("acquire + settle + close, new session", "the same", "the same"),
    "sender_turn": ("the same with a request key", "and 1 sender", "and 1,000 senders"),
    "departure": ("a sender with 1,000 sessions departs", "the same", "the same"),
    "large_departure": ("a sender departs", "it has 2,000 sessions", "it has 50,000 sessions"),
    "eviction": ("a new session at the cap", "1,000 sessions", "100,000 sessions"),
    "park_wake": ("park, wake, claim, settle", "beside 100 waiters", "beside 50,000 waiters"),
    "wake_each": ("end of a fence, per waiter", "100 waiters", "50,000 waiters"),
}


@dataclass(frozen=True, slots=True)
class Growth:
    """Instructions per operation at both sizes."""

    case: str
    few: float
    many: float

    @property
    def ratio(self) -> float:
        """How much it grows."""
        return self.many / self.few


def build() -> str:
    """The path of the measured program, built as the benches are."""
    command = ["cargo", "bench", "--package", "router_core", "--locked", "--bench", "growth", "--no-run", "--quiet"]
    built = subprocess.run([*command, "--message-format=json"], cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True)
    for message in map(json.loads, built.stdout.splitlines()):
        if message.get("executable") and message["target"]["name"] == "growth":
            return str(message["executable"])
    raise SystemExit(f"cargo built no program called growth: {' '.join(command)}")


def counts(program: str) -> dict[tuple[str, str], float]:
    """Instructions per operation, by case and size."""
    with tempfile.TemporaryDirectory() as folder:
        counter = ["valgrind", "--quiet", "--tool=callgrind", f"--callgrind-out-file={folder}/count"]
        counter += [f"--toggle-collect={SECTION}", f"--dump-after={SECTION}"]
        ran = subprocess.run([*counter, program], stdout=subprocess.PIPE, check=True, text=True)
        labels = [line.split() for line in ran.stdout.splitlines()]
        # Callgrind numbers the counts by the order of the calls.
        files = [Path(f"{folder}/count.{number}") for number in range(1, len(labels) + 1)]
        if not labels or not all(file.exists() for file in files):
            raise SystemExit(f"callgrind found no function called {SECTION} in {program}: was it inlined?")
        return {
            (case, size): summary(file) / int(operations)
            for (case, size, operations), file in zip(labels, files, strict=True)
        }


def summary(file: Path) -> int:
    """Instructions in one of callgrind's files."""
    lines = file.read_text().splitlines()
    return int(next(line for line in lines if line.startswith("summary:")).split()[1])


def main() -> None:
    """Count, print the table, and judge."""
    if shutil.which("valgrind") is None:
        raise SystemExit(
            "the growth gate counts instructions with valgrind, which is not here: apt-get install valgrind"
        )
    measured = counts(build())
    grown = [Growth(case, measured[case, "few"], measured[case, "many"]) for case in CASES]
    print("| operation | few | many | instructions, few | many | growth |")
    print("|---|---|---|---:|---:|---:|")
    for growth in grown:
        print(f"| {' | '.join(CASES[growth.case])} | {growth.few:,.0f} | {growth.many:,.0f} | {growth.ratio:.2f} |")
    if failed := [growth for growth in grown if growth.ratio > BOUND]:
        cases = ", ".join(f"{growth.case} grows {growth.ratio:.2f}-fold" for growth in failed)
        raise SystemExit(f"{cases}: more than {BOUND}; see benches/router/growth.rs for what is in it")


if __name__ == "__main__":
    main()
