"""`ludus serve`: a trained policy behind the gateway, from its trial's folder."""

from __future__ import annotations

import ssl
import sys
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from ludus import errors
from ludus.command_line import trial_command
from ludus.data.lookup import load_attribute
from ludus.experiment.player import open_policy
from ludus.experiment.saved_config import trust_config
from ludus.gateway.client import check_header
from ludus.gateway.router import Router
from ludus.gateway.session import FOLLOW
from ludus.models.definition import ModelFolder
from ludus.models.versions.store import LATEST, VersionStore
from ludus.serving import promotion
from ludus.serving.policy_actor import PolicyActor
from ludus.trial import trained
from ludus.trial.named.actor import RemoteActor
from ludus.trial.named.model import RemoteModel
from ludus.trial.trained import MODEL

__all__ = ["check_access", "load_actor", "publish_trained", "serve", "shares_of", "trust_trial"]


def publish_trained(folder: Path) -> RemoteModel:
    """The policy of a training run as a named model of its trial; see `trial.trained`."""
    trained.publish(folder)
    return RemoteModel(MODEL, local_mode=True)


def _open_policy(folder: Path, name: str) -> None:
    """Have a policy in the trial under this name: that of its training run, or one that a script made."""
    if name == MODEL and (folder / "config.json").is_file():
        publish_trained(folder)
        return
    try:
        open_policy(folder, name)
    except errors.ConfigError as error:
        raise errors.ConfigError(f"{error}. Whatever is not a policy is served by an --actor of your own") from None


def trust_trial(folder: Path) -> None:
    """The user agrees to run the code that the files of this trial contain or name."""
    if (folder / "config.json").is_file():
        trust_config(folder)
    models = folder / "models"
    for path in sorted(models.glob("*.definition")):
        ModelFolder(models, path.stem).trust()


def load_actor(text: str) -> Any:
    """`module:Class` or `path/to/file.py:Class`, so that workers in other processes can import it, too."""
    where, _, name = text.rpartition(":")
    if where.endswith(".py"):
        path = Path(where).resolve()
        if str(path.parent) not in sys.path:
            sys.path.insert(0, str(path.parent))
        text = f"{path.stem}:{name}"
    return load_attribute(text, what="actor")


def shares_of(version: str, canary: Mapping[str, float]) -> dict[str, float]:
    """What new sessions play: the canaries' shares, and `version` for the rest."""
    if version in canary:
        raise errors.ConfigError(
            f"{version!r} is a canary, and what the rest of the sessions plays. Give the canary a tag of its own, or "
            "another version for the rest"
        )
    rest = 1.0 - sum(canary.values())
    if rest < -1e-9 or min(canary.values(), default=0.0) < 0:
        raise errors.ConfigError(f"the canaries' shares {dict(canary)} are more than all sessions together")
    return {version: max(0.0, rest), **canary}


def serve(
    folder: Path,
    *,
    version: str = promotion.PRODUCTION,
    canary: Mapping[str, float] | None = None,
    model: str = MODEL,
    actor: str | None = None,
    actor_args: Mapping[str, Any] | None = None,
    trust: bool = False,
    **gateway: Any,
) -> RemoteActor:
    """Serve a trial that `ludus.init` was called for; `gateway` are the arguments of `RemoteActor`.

    A policy, of a training run or made by a script as a model, is served by a `PolicyActor`; whatever else needs an
    `actor` of its own, as `module:Class`. The tag `production` of `model` stands for the newest version, until
    `promote` or `rollback` moves it. `trust`: run code of the trial that was made by another user or on another
    machine, from now on. What is wrong raises `ConfigError` before any process is started.
    """
    shares = shares_of(version, canary or {})
    Router(shares)  # says whether these are shares
    check_access(token=gateway.get("token"), tls_cert=gateway.get("tls_cert"), tls_key=gateway.get("tls_key"))
    if trust:
        trust_trial(folder)
    if actor is None:
        _open_policy(folder, model)
        if not promotion.is_chosen(folder, model):
            promotion.promote(folder, model, by_default=True)
        made: Any = PolicyActor
        arguments: dict[str, Any] = {"model": model, **(actor_args or {})}
        route = shares
        _check_versions(folder, route, [model])
    else:
        made = load_actor(actor)
        arguments = dict(actor_args or {})
        route = shares if canary or version != promotion.PRODUCTION else {}
        _check_versions(folder, route, VersionStore(folder / "models").models())
    remote = RemoteActor(route=route, **gateway)
    remote.serve(made, **arguments)
    return remote


def _check_versions(folder: Path, wanted: Iterable[str], models: Collection[str]) -> None:
    """Each must be there of one of the models at least. A trial without any has them made by its actors, later."""
    store = VersionStore(folder / "models")
    tags = {model: store.tags(model) for model in models}
    numbers = {model: [each.number for each in store.versions(model)] for model in models}
    for each in wanted:
        if each in (LATEST, FOLLOW) or not models:
            continue
        number = int(each) if each.isdecimal() else None
        if not any((tags[model].get(each) if number is None else number) in numbers[model] for model in models):
            known = "; ".join(f"{model}: {', '.join(map(str, (*numbers[model], *tags[model])))}" for model in models)
            promote = trial_command("promote", folder, "--tag", each)
            give = "" if number is not None else f". Give a version that tag: {promote}"
            raise errors.ConfigError(
                f"there is no version {each!r} that sessions could play. There are of {known}{give}"
            )
        for model in models:
            wanted_here = tags[model].get(each) if number is None else number
            if wanted_here in numbers[model]:
                store.get(model, wanted_here)  # raises if it is damaged: now, not for each session


def check_access(*, token: str | None, tls_cert: str | None, tls_key: str | None) -> None:
    """Before anything is started. Raises `ConfigError` for a token that cannot be sent, a certificate of no use."""
    check_header("token", token)
    _check_certificate(tls_cert, tls_key)


def _check_certificate(cert: str | None, key: str | None) -> None:
    if not cert or not key:  # the gateway's options report one without the other
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password="")
    except OSError as error:
        raise errors.ConfigError(
            f"the certificate {cert} with the key {key} cannot be used: {error}. Both are PEM files, the key without a "
            "password, and made for each other"
        ) from None
