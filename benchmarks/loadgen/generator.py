"""Builds and runs `loadgen.cpp`. Standard library only, like `harness`.

generator = LoadGenerator.build(folder)
metrics = generator.run("127.0.0.1", port, seconds=3.0, body_bytes=1024)
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from harness import BenchmarkError

SOURCE = Path(__file__).resolve().parent / "loadgen.cpp"
BUILD_S = 120.0
EXTRA_S = 60.0  # beyond the load itself: for sessions to start and to end


class LoadGenerator:
    """The program, and how it is called."""

    def __init__(self, program: Path) -> None:
        self.program = program

    @classmethod
    def build(cls, folder: Path) -> LoadGenerator:
        """Compiles it into the folder: two seconds."""
        program = folder / "loadgen"
        command = ["g++", "-std=c++17", "-O2", "-Wall", "-Wextra", "-o", str(program), str(SOURCE)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_S)
        except FileNotFoundError:
            raise BenchmarkError("`g++` is not installed; it builds the load generator") from None
        if done.returncode:
            raise BenchmarkError(f"the load generator does not build:\n{done.stderr}")
        return cls(program)

    def run(
        self,
        host: str,
        port: int,
        *,
        seconds: float,
        connections: int = 64,
        warmup_s: float = 0.3,
        body_bytes: int = 1024,
        body_file: Path | None = None,
        path: str = "/step",
        sessions: bool = True,
        rate: float | None = None,
        expect_echo: bool = False,
        expect_bytes: int | None = None,
    ) -> dict:
        """One load; its metrics, as the program prints them."""
        command = [str(self.program), host, str(port), "--connections", str(connections), "--seconds", str(seconds)]
        command += ["--warmup", str(warmup_s), "--body-bytes", str(body_bytes), "--path", path]
        command += ["--sessions"] if sessions else []
        command += ["--expect-echo"] if expect_echo else []
        for name, value in (("--body-file", body_file), ("--rate", rate), ("--expect-bytes", expect_bytes)):
            command += [] if value is None else [name, str(value)]
        limit_s = seconds + warmup_s + EXTRA_S
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise BenchmarkError(f"the load generator was not done after {limit_s:.0f} s") from None
        if done.returncode:
            raise BenchmarkError(f"the load did not run: {(done.stderr or done.stdout).strip()}")
        return json.loads(done.stdout.splitlines()[-1])
