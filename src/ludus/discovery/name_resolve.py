"""The name service of this process, as functions: `name_resolve.add(key, address)`, `name_resolve.wait(key)`.

It is the one that the environment variable LUDUS_NAMES gives the url of, or else `memory://default`;
`reconfigure` chooses another. Each function is the method of `ludus.core.Names` of the same name.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

from ludus import discovery
from ludus.core import NameCallback, Names, Watch

__all__ = [
    "add",
    "clear_subtree",
    "default",
    "delete",
    "find_subtree",
    "get",
    "get_subtree",
    "reconfigure",
    "wait",
    "watch_names",
]

_default: Names | None = None
_choosing = threading.Lock()


def default() -> Names:
    """The connection behind the functions of this module, opened by the first use of it."""
    global _default
    with _choosing:
        if _default is None:
            _default = discovery.connect(os.environ.get("LUDUS_NAMES") or "memory://default")
        return _default


def reconfigure(url: str | None = None) -> None:
    """Use the name service at `url` from now on (`None`: the environment's choice again).

    The connection used so far is closed: its leases are removed and its watches end.
    """
    global _default
    new = None if url is None else discovery.connect(url)
    with _choosing:
        old, _default = _default, new
    if old is not None:
        old.close()


def add(name: str, value: str, *, ttl: float | None = None, replace: bool = False) -> None:
    default().add(name, value, ttl=ttl, replace=replace)


def get(name: str) -> str:
    return default().get(name)


def get_subtree(root: str) -> list[str]:
    return default().get_subtree(root)


def find_subtree(root: str) -> list[str]:
    return default().find_subtree(root)


def wait(name: str, timeout: float | None = None) -> str:
    return default().wait(name, timeout)


def watch_names(names: str | Sequence[str], callback: NameCallback) -> Watch:
    return default().watch_names(names, callback)


def delete(name: str) -> None:
    default().delete(name)


def clear_subtree(root: str) -> None:
    default().clear_subtree(root)
