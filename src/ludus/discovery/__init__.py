"""Discovery: names → addresses, on the backend that is at hand.

    own = discovery.connect("registry://…")              # or memory://, file://, redis://, etcd://, consul://
    own.add(names.worker("chess", "monday", "policy/0"), address, ttl=2.0)
    address = own.wait(names.worker("chess", "monday", "trainer/0"))

The contract is `ludus.core.Names`; docs/discovery.md says which backend to choose.
"""

from __future__ import annotations

import importlib
from urllib.parse import urlsplit

from ludus import errors
from ludus.core import Names
from ludus.discovery import names as spelling

__all__ = ["connect"]

# A backend is imported when it is first asked for: its library may not be installed.
_BACKENDS = {
    "memory": ("ludus.discovery.memory", "MemoryNames"),
    "registry": ("ludus.discovery.registry", "RegistryNames"),
    "file": ("ludus.discovery.file", "FileNames"),
    "redis": ("ludus.discovery.redis", "RedisNames"),
    "rediss": ("ludus.discovery.redis", "RedisNames"),
    "etcd": ("ludus.discovery.etcd", "EtcdNames"),
    "consul": ("ludus.discovery.consul", "ConsulNames"),
}


def connect(url: str) -> Names:
    """The name service at `url`; close it when done.

    `memory://name`, `registry://…` (a `RegistryServer`'s url), `file:///folder`, `redis://host:port/db`,
    `etcd://host:port`, `consul://host:port`. Raises `DiscoveryError` if the url makes no sense and
    `MissingExtra` if the backend's library is not installed. Whether anybody answers there is found out by
    the first call.
    """
    scheme, mark, _ = url.partition("://")
    if not mark:
        raise errors.DiscoveryError(f"{url!r} is not the url of a name service: write, say, memory://default")
    if scheme not in _BACKENDS:
        raise errors.DiscoveryError(
            f"{url!r}: no kind of name service is called {scheme!r}. {spelling.nearest(scheme, _BACKENDS)}"
        )
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises for one that is not a number
    except ValueError as error:
        raise errors.DiscoveryError(f"{url!r} is not the url of a name service: {error}") from None
    module, backend = _BACKENDS[scheme]
    opened: Names = getattr(importlib.import_module(module), backend).from_url(parts)
    return opened
