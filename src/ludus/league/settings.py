"""The settings of a league as plain data, as a command or a file gives them; and changes of them while it runs.

    changed(settings, {"min_games": 10, "roles": {"main": {"matchmaking": {"pfsp:squared": 0.8, "self_play": 0.2}}}})

What is not named stays as it is. The names of matchmaking rules are those of `MATCHMAKING`; PFSP's weighting stands
after a colon. A rule with numbers of its own has them beside its share: `{"self_play": {"share": 0.2, "least": 0.4}}`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from ludus.data.nest import Nest
from ludus.errors import ConfigError
from ludus.league.league import LeagueSettings
from ludus.league.matchmaking import (
    ExploitMain,
    Itself,
    Latest,
    MatchmakingRule,
    Mixed,
    Pfsp,
    SelfPlay,
    Uniform,
    Verification,
)
from ludus.league.players import LEARNING
from ludus.league.psro.meta_strategy import META_SOLVERS, MetaStrategy
from ludus.league.roles import DEFAULT_RULES, TARGETS, RoleRules
from ludus.spelling import nearest

__all__ = ["MATCHMAKING", "changed", "matchmaking", "merged"]

MATCHMAKING: Mapping[str, Callable[[], MatchmakingRule]] = MappingProxyType(
    {
        "pfsp": Pfsp,
        "pfsp:variance": lambda: Pfsp("variance"),
        "pfsp:linear": lambda: Pfsp("linear"),
        "pfsp:capped": lambda: Pfsp("capped"),
        "pfsp:squared": lambda: Pfsp("squared"),
        "uniform": Uniform,
        "latest": Latest,
        "itself": Itself,
        "meta_strategy": MetaStrategy,
        **{f"meta_strategy:{name}": functools.partial(MetaStrategy, name) for name in META_SOLVERS},
        "self_play": SelfPlay,
        "exploit_main": ExploitMain,
        "verification": Verification,
    }
)

_OF_ROLE = ("matchmaking", "snapshot", "reset", "share", "targets")


def changed(settings: LeagueSettings, change: Nest) -> LeagueSettings:
    """With what is named in `change`. Raises `ConfigError`, with the nearest name for what there is not."""
    values = _mapping(change, "the settings of a league")
    plain = {field.name for field in dataclasses.fields(LeagueSettings)} - {
        "rules",
        "teams",
        "meta",
        "evaluates_learners",
    }
    if "teams" in values:
        raise ConfigError(f"the teams of a league stay as they are: {settings.teams or 'each side alone'}")
    for name in values:
        if name not in {*plain, "roles"}:
            raise ConfigError(f"a league has no setting {name!r}. {nearest(name, [*plain, 'roles'])}")
    rules = dict(settings.rules)
    for role, of_role in _mapping(values.get("roles", {}), "roles").items():
        if role not in LEARNING:
            raise ConfigError(f"rules for the role {role!r}, which does not learn: {nearest(role, LEARNING)}")
        rules[role] = _changed_role(rules.get(role) or DEFAULT_RULES[role], role, of_role)
    numbers = {name: _number(value, name) for name, value in values.items() if name in plain}
    if "num_sides" in numbers and numbers["num_sides"] != settings.num_sides:
        raise ConfigError(f"num_sides={numbers['num_sides']}: a league's games have {settings.num_sides} sides")
    numbers.pop("num_sides", None)
    return dataclasses.replace(settings, rules=rules, **numbers)


def matchmaking(shares: Nest) -> MatchmakingRule:
    """A rule by its name, or several with their shares."""
    if isinstance(shares, str):
        shares = {shares: 1.0}
    found: dict[MatchmakingRule, float] = {}
    for name, given in _mapping(shares, "matchmaking").items():
        if name not in MATCHMAKING:
            raise ConfigError(f"there is no matchmaking rule {name!r}. {nearest(name, MATCHMAKING)}")
        numbers = dict(_mapping(given, f"the numbers of {name}")) if isinstance(given, Mapping) else {"share": given}
        if "share" not in numbers:
            raise ConfigError(
                f"the rule {name} has no share. What is given replaces all rules: say which, and how often"
            )
        share = _number(numbers.pop("share"), f"the share of {name}")
        found[_with_numbers(MATCHMAKING[name](), name, numbers)] = share
    return Mixed(found)


def merged(settings: Nest, change: Nest) -> Nest:
    """What `changed` takes to make both changes, the second after the first."""
    if not isinstance(settings, Mapping) or not isinstance(change, Mapping):
        return change
    joined = dict(settings)
    for name, value in change.items():
        joined[name] = value if name == "matchmaking" else merged(joined.get(name), value)
    return joined


def _with_numbers(rule: MatchmakingRule, name: str, numbers: Mapping[str, Any]) -> MatchmakingRule:
    known = [field.name for field in dataclasses.fields(rule) if field.type == "float"]  # type: ignore[arg-type]
    for number in numbers:
        if number not in known:
            raise ConfigError(f"the matchmaking rule {name} has no {number!r}. {nearest(number, ['share', *known])}")
    given = {number: _number(value, number) for number, value in numbers.items()}
    return dataclasses.replace(rule, **given)  # type: ignore[type-var]


def _changed_role(rules: RoleRules, role: str, change: Nest) -> RoleRules:
    values = _mapping(change, f"the rules of {role}")
    for name in values:
        if name not in _OF_ROLE:
            raise ConfigError(f"the rules of {role} have no {name!r}. {nearest(name, _OF_ROLE)}")
    new: dict[str, Any] = {name: _number(values[name], name) for name in ("reset", "share") if name in values}
    if "targets" in values:
        targets = str(values["targets"])
        if targets not in TARGETS:
            raise ConfigError(f"there are no targets {targets!r} for {role}. {nearest(targets, TARGETS)}")
        new["targets"] = TARGETS[targets]
    if "matchmaking" in values:
        new["matchmaking"] = matchmaking(values["matchmaking"])
    if "snapshot" in values:
        of_snapshot = _mapping(values["snapshot"], f"the snapshot rule of {role}")
        known = [field.name for field in dataclasses.fields(rules.snapshot)]
        for name in of_snapshot:
            if name not in known:
                raise ConfigError(f"the snapshot rule of {role} has no {name!r}. {nearest(name, known)}")
        numbers = {name: _number(value, name) for name, value in of_snapshot.items()}
        new["snapshot"] = dataclasses.replace(rules.snapshot, **numbers)
    return dataclasses.replace(rules, **new)


def _mapping(value: Nest, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise ConfigError(f"{what} are given by name, not as {value!r}")
    return value


def _number(value: Any, name: str) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ConfigError(f"{name}={value!r} must be a number")
    return value
