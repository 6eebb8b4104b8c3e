from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ludus.models.pools.folder_pool import FolderPool
from ludus.testing.model_pools import ModelPoolConformance


class TestFolderPool(ModelPoolConformance):
    @pytest.fixture
    def where(self, tmp_path: Path) -> str:
        return str(tmp_path / "models")

    def damage(self, pool: Any, model: str, number: int) -> None:
        (path,) = (pool.store.folder / model).glob(f"{number:09d}-*.weights")
        content = bytearray(path.read_bytes())
        content[-1] ^= 0xFF
        status = path.stat()
        path.write_bytes(content)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))


def test_all_readers_map_one_file(tmp_path: Path) -> None:
    pool = FolderPool(tmp_path)
    pool.put("main", {"w": np.zeros(1 << 18)})
    one, other = pool.get("main")[1]["w"], FolderPool(tmp_path).get("main")[1]["w"]
    assert one is not other
    lines = [line for line in Path("/proc/self/maps").read_text().splitlines() if str(tmp_path) in line]
    mapped = {line.split()[4] for line in lines if line.endswith(".weights")}
    assert len(mapped) == 1, "one inode, so one copy in memory"
    assert "FolderPool" in repr(pool)
