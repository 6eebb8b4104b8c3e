"""The versions of each model, which of them new sessions play, and buttons that promote one and take that back.

Those of a league that has them in Redis are shown as they are there: nothing serves them from there.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import htpy as h
from htpy import Node

from ludus import errors
from ludus.league.folder import is_league, refuse_policy_of_league
from ludus.models.pools import place
from ludus.models.versions.store import VersionStore
from ludus.page import parts
from ludus.page.frame import note
from ludus.page.pooled_versions import PooledModel, PooledVersions
from ludus.page.running import RunningTrials, Sessions
from ludus.page.spell import spell_age, spell_count
from ludus.page.trials import is_running
from ludus.page.version_files import VersionFile, versions_of
from ludus.page.view import View, Visit
from ludus.serving import promotion
from ludus.trial.trained import MODEL

__all__ = ["VIEW"]

_MOST_MODELS = 16
_MOST_VERSIONS = 12
_MOST_PORTS = 4
_MODELS = "models"


def build(visit: Visit) -> Node:
    found = visit.site.part(RunningTrials).sessions(visit.folder) if is_running(visit.folder) else None
    models = _models(visit.folder)
    shown: list[Node] = [_model(visit, model) for model in models[:_MOST_MODELS]]
    pool = visit.site.part(PooledVersions).look(visit.folder)
    if pool is not None:
        shown += [_pooled(model, pool.where) for model in pool.models]
    if pool is not None and pool.problem:
        shown.append(note(f"Versions in Redis are not shown: {pool.problem}", kind="warning"))
    return [
        _shares(found) if found is not None else None,
        shown or h.p(class_="quiet")["No version of a model has been published yet."],
    ]


def _models(folder: Path) -> list[str]:
    return VersionStore(folder / _MODELS).models()


def _model(visit: Visit, model: str) -> Node:
    store, now = VersionStore(visit.folder / _MODELS), time.time()
    versions = versions_of(visit.folder / _MODELS / model)
    tags = store.tags(model)
    by_number: dict[int, list[str]] = {}
    for tag, number in tags.items():
        by_number.setdefault(number, []).append(tag)
    named = [each for each in versions if each.number in by_number]
    shown = versions[:_MOST_VERSIONS]
    shown += [each for each in named if each not in shown][:_MOST_VERSIONS]
    rows = [_version(visit, model, each, by_number.get(each.number, []), now) for each in shown]
    is_of_league = model == MODEL and is_league(visit.folder)
    back = [] if is_of_league else promotion.history(visit.folder, model)
    return h.section(id=f"model-{model}")[
        h.h2[f"Versions of {model}"],
        parts.table(("Version", "Tags", "", "Made", "Size"), rows, label=f"versions of {model}", numeric=(3, 4))
        if rows
        else h.p(class_="quiet")["None is there."],
        h.p(class_="quiet")[
            "The champion of the league is served: ", h.code[f"ludus league promote {visit.folder.name} NAME"]
        ]
        if is_of_league
        else None,
        h.p(class_="quiet")[f"{len(shown)} of {len(versions)} versions."] if len(shown) < len(versions) else None,
        _confirmed(
            visit, "rollback", f"Take production back to version {back[-2]}", {"model": model}, short="Roll back"
        )
        if len(back) >= 2
        else None,
    ]


def _pooled(model: PooledModel, where: str) -> Node:
    now = time.time()
    rows = [
        (str(each.number), f"{spell_age(now - each.created)} ago", f"{spell_count(each.nbytes)} B")
        for each in model.newest
    ]
    return h.section(id=f"pooled-{model.name}")[
        h.h2[f"Versions of {model.name}"],
        parts.table(("Version", "Made", "Size"), rows, label=f"versions of {model.name}", numeric=(1, 2)),
        h.p(class_="quiet")[f"{len(rows)} of {model.num} versions, in {where}."],
    ]


def _version(visit: Visit, model: str, version: VersionFile, tags: list[str], now: float) -> tuple[Node, ...]:
    own = {f"{promotion.PRODUCTION}-{version.number}"}
    is_served = promotion.PRODUCTION in tags
    return (
        str(version.number),
        [h.span(class_=_badge(tag))[tag] for tag in tags if tag not in own],
        h.span(class_="quiet")["is served" if is_served else ""]
        if is_served or (model == MODEL and is_league(visit.folder))
        else _confirmed(
            visit,
            "promote",
            f"Have {promotion.PRODUCTION} be version {version.number} of {model}",
            {"model": model, "version": str(version.number)},
            short="Promote",
        ),
        f"{spell_age(now - version.made)} ago",
        f"{spell_count(version.num_bytes)} B",
    )


def _badge(tag: str) -> str:
    return "badge ended" if tag == promotion.PRODUCTION else "badge"


def _confirmed(visit: Visit, action: str, text: str, fields: Mapping[str, str], *, short: str) -> Node:
    """A button behind a button: the second says what will be done."""
    id = f"{action}-{'-'.join(fields.values())}"
    return h.details(id=id, class_="confirm")[
        h.summary[short],
        h.form(method="post", action=visit.do(action))[
            (h.input(type="hidden", name=name, value=value) for name, value in fields.items()),
            h.button(class_="primary")[text],
        ],
        h.p(class_="quiet")["Sessions that begin after that play it; those that are live keep theirs."],
    ]


def _promote(visit: Visit, fields: Mapping[str, str]) -> None:
    model, version = fields.get("model", ""), fields.get("version", "")
    if model not in _models(visit.folder) or not (version.isdecimal() and len(version) <= 18):
        raise errors.ConfigError(f"There is no version {version!r} of a model {model!r} here. Nothing was changed.")
    refuse_policy_of_league(visit.folder, model)
    promotion.promote(visit.folder, model, int(version))


def _rollback(visit: Visit, fields: Mapping[str, str]) -> None:
    model = fields.get("model", "")
    if model not in _models(visit.folder):
        raise errors.ConfigError(f"There is no model {model!r} here. Nothing was changed.")
    refuse_policy_of_league(visit.folder, model)
    promotion.rollback(visit.folder, model)


def _shares(found: Sessions) -> Node:
    """What sessions that begin play: of each port."""
    shown = [(port, shares) for port, shares in found.shares.items() if shares][:_MOST_PORTS]
    if not shown:
        return None
    rows = []
    for port, shares in shown:
        given = found.given.get(port, {})
        total = max(1, sum(given.values()))
        for tag, share in shares.items():
            sessions = given.get(tag, 0)
            rows.append((port, tag, parts.bar(share), f"{sessions:,}", f"{sessions / total:.1%}"))
    columns = ("Port", "Plays", "Share of new sessions", "Sessions so far", "Their share")
    return [
        h.h2["Shares of versions"],
        parts.table(columns, rows, label="shares of versions", numeric=(3, 4), wide=(4,)),
    ]


def applies(folder: Path) -> bool:
    return (folder / _MODELS).is_dir() or place.is_in_redis(folder)


VIEW = View(
    name="versions",
    title="Versions",
    applies=applies,
    build=build,
    actions={"promote": _promote, "rollback": _rollback},
)
