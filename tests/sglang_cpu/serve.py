#!/usr/bin/env python3
"""Become a real SGLang server on the CPU, on loopback.

usage: serve.py MODEL_FOLDER PORT [--python PYTHON] [--die-with PID] [any SGLang flag ...]

The process replaces itself by SGLang (``exec``), so its pid, its signals and its exit status are the server's. Why each
flag and variable is there: README.md beside this file.
"""

import argparse
import ctypes
import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

HERE = Path(__file__).resolve().parent
DEFAULT_PYTHON = HERE.parents[1] / ".venvs" / "sglang" / "bin" / "python"
PR_SET_PDEATHSIG = 1

ENVIRONMENT = {
    "SGLANG_USE_CPU_ENGINE": "1",
    "PYTHONPATH": str(HERE / "shim"),
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    # One thread per server: with more, two servers on two cores spend their time waiting for each other.
    "OMP_NUM_THREADS": "1",
    # A crash is reported after a second, not after the half minute that the post-mortem dumps take.
    "SGLANG_PYSPY_DUMP_BEFORE_CRASH": "0",
    "SGLANG_CUDA_COREDUMP_BEFORE_CRASH": "0",
}
FLAGS = {
    "--served-model-name": "tiny",
    "--device": "cpu",
    "--attention-backend": "torch_native",
    "--dtype": "float32",
    # Without a limit the KV cache takes most of the machine's memory.
    "--max-total-tokens": "16384",
    "--max-running-requests": "8",
    "--host": "127.0.0.1",
}
SWITCHES = ("--sleep-on-idle", "--enable-metrics")


def die_with(parent: int) -> None:
    """Ask the kernel to kill this process when ``parent`` ends, however it ends (Linux; survives ``exec``)."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    # The parent may have ended before the call above.
    if os.getppid() != parent:
        sys.exit(f"the parent {parent} is gone")


def command_line(python: str, model: Path, port: int, extra: list[str]) -> list[str]:
    """The full command; flags in ``extra`` come last and win over the defaults."""
    command = [python, "-m", "sglang.launch_server", "--model-path", str(model), "--port", str(port)]
    for flag, value in FLAGS.items():
        command += [flag, value]
    return [*command, *SWITCHES, *extra]


def main() -> NoReturn:
    """Entry point of the script: replace this process by SGLang."""
    parser = argparse.ArgumentParser(description="A real SGLang server on the CPU.", allow_abbrev=False)
    parser.add_argument("model", type=Path, help="folder written by make_tiny_model.py")
    parser.add_argument("port", type=int)
    parser.add_argument("--python", default=str(DEFAULT_PYTHON), help="interpreter of the SGLang environment")
    parser.add_argument("--die-with", type=int, metavar="PID", help="be killed when this parent process ends")
    arguments, extra = parser.parse_known_args()
    if arguments.die_with is not None:
        die_with(arguments.die_with)
    environment = {**os.environ, **ENVIRONMENT}
    environment.pop("PYTHONHOME", None)
    os.execve(arguments.python, command_line(arguments.python, arguments.model, arguments.port, extra), environment)


if __name__ == "__main__":
    main()
