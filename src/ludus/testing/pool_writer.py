"""A process that puts versions into a model pool, for tests that kill it.

    with PoolWriter(where, prefix, "main", num_bytes=1 << 20) as writer:
        writer.number()                # of the version that it has put last
        writer.kill()

Version `n` of it has `num_bytes` of `w`, all equal to its own first byte, so that a torn one would be seen.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Self

import numpy as np

__all__ = ["PoolWriter", "filled"]


def filled(value: int, num_bytes: int) -> dict[str, np.ndarray[tuple[int], np.dtype[np.uint8]]]:
    """The weights that a writer puts."""
    return {"w": np.full(num_bytes, value % 256, np.uint8), "b": np.full(3, value % 256, np.uint8)}


class PoolWriter:
    """It begins at once, and puts version after version, `num_versions` in all."""

    def __init__(self, where: str, prefix: str, model: str, *, num_bytes: int, num_versions: int = 10**6) -> None:
        words = [sys.executable, "-m", __name__, where, prefix, model, str(num_bytes), str(num_versions)]
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE)

    def number(self) -> int:
        """Of the next version that it has put. Raises `RuntimeError` when it has ended."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the writer has ended: see its error above")
        return int(line)

    def numbers(self) -> list[int]:
        """Of all it puts from now on, when it has ended by itself."""
        assert self._process.stdout is not None
        return [int(line) for line in self._process.stdout]

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.kill()
        if self._process.stdout is not None:
            self._process.stdout.close()


def _main(where: str, prefix: str, model: str, num_bytes: str, num_versions: str) -> None:
    from ludus.models.pools.pool import open_pool

    pool = open_pool(where, prefix=prefix)
    for value in range(int(num_versions)):
        version = pool.put(model, filled(value, int(num_bytes)))
        sys.stdout.write(f"{version.number}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _main(*sys.argv[1:])
