"""`memory://name`: names within one process. Every connection to the same name shares one table."""

from __future__ import annotations

import threading
from urllib.parse import SplitResult

from ludus.discovery.store_names import StoreNames
from ludus.discovery.table import Table

__all__ = ["MemoryNames"]

_tables: dict[str, Table] = {}  # they stay, as a server would, after the last connection is closed
_opening = threading.Lock()


class MemoryNames(StoreNames):
    """Names in this process; `MemoryNames("a")` and `MemoryNames("a")` see each other."""

    def __init__(self, name: str = "default") -> None:
        with _opening:
            table = _tables.setdefault(name, Table())
        super().__init__(table)

    @classmethod
    def from_url(cls, url: SplitResult) -> MemoryNames:
        return cls(f"{url.netloc}{url.path}" or "default")
