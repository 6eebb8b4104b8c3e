"""The port where games play matches of a league: where it listens, and what games must have to play.

port = match_port(config.league, {"token": "…"})   # None: none is wanted
port.check()                                       # before there is a trial
actor = RemoteActor(**port.arguments())
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ludus import secret as secrets
from ludus.errors import ConfigError
from ludus.league.config import LeagueConfig

__all__ = ["MatchPort", "match_port", "with_whole_paths", "without_secrets"]

_SECRETS = ("token", "secret")
"""Settings of one run: they are in no file of the trial, and are given again, or by a file that is named."""

_OF_PORT = ("serve_host", *_SECRETS, "token_file", "secret_file", "tls_cert", "tls_key")
"""What says something of the port only."""


@dataclass(frozen=True, kw_only=True)
class MatchPort:
    """`port` 0: any free one."""

    port: int
    host: str = "127.0.0.1"
    token: str | None = field(default=None, repr=False)
    secret: str | None = field(default=None, repr=False)
    tls_cert: str | None = None
    tls_key: str | None = None

    def arguments(self) -> dict[str, Any]:
        """Of a `RemoteActor`."""
        return {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}

    def check(self) -> None:
        """Raises what `ludus serve` does: `Unauthorised` beyond loopback without a token or a secret, `ConfigError`."""
        from ludus.gateway.gateway import GatewayOptions  # brings the libraries of gateways
        from ludus.serving.serve import check_access

        check_access(token=self.token, tls_cert=self.tls_cert, tls_key=self.tls_key)
        GatewayOptions(**self.arguments())


def match_port(config: LeagueConfig, given: Mapping[str, Any]) -> MatchPort | None:
    """By the league's configuration and what this run was `given`, which alone has secrets that are in no file."""
    named = [name for name in _OF_PORT if given.get(name) is not None]
    if config.serve is None:
        if named:
            option = f"--{named[0].replace('_', '-')}"
            raise ConfigError(f"{option} is for the port where games play matches, and there is none: add --serve PORT")
        return None
    found: dict[str, str | None] = {}
    for name in _SECRETS:
        own, file = given.get(name), f"{name}_file"
        is_replaced = own is not None and given.get(file) is None  # the file is of an earlier run
        found[name] = secrets.find(name, own, None if is_replaced else getattr(config, file))
    return MatchPort(
        port=config.serve, host=config.serve_host, tls_cert=config.tls_cert, tls_key=config.tls_key, **found
    )


def without_secrets(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that may be written down."""
    return {name: value for name, value in given.items() if name not in _SECRETS}


def with_whole_paths(config: LeagueConfig) -> LeagueConfig:
    """With files that are found from any folder in which the league goes on."""
    paths = {name: getattr(config, name) for name in ("token_file", "secret_file", "tls_cert", "tls_key")}
    whole: dict[str, Any] = {name: path and str(Path(path).absolute()) for name, path in paths.items()}
    return dataclasses.replace(config, **whole)
