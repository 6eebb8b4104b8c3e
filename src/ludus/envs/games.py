"""Games as an environment: processes that call us, so they are described instead of made.

    games = Games(port=8000, obs={"shape": [4], "dtype": "float32"}, action={"discrete": 2})
    games.name                                              # game://127.0.0.1:8000
    games.spec                                              # what is seen and done there
    Games.parse("game://127.0.0.1:8000", games.arguments())  # the same again, from what a configuration holds

`obs` is an array, `{"shape": …, "dtype": …, "low": …, "high": …}`, or an object of them by key. `action` is one of
`{"discrete": 2}`, `{"multi_discrete": [3, 2]}` and `{"low": [-2], "high": [2]}`. Either may also be given as a spec of
`ludus.data`.
"""

from __future__ import annotations

import dataclasses
import json
import math
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from ludus import errors, spelling
from ludus.core import EnvSpec, VectorEnv
from ludus.data.actions import ActionSpec, Continuous, Discrete, MultiDiscrete
from ludus.data.nest import Nest
from ludus.data.spec import ArraySpec

__all__ = ["Games", "is_game", "make", "parse_spec", "plain_spec", "read_spec"]

_SCHEME = "game://"
_OF_FILE = ("obs", "action", "mask")
_OF_ARRAY = ("shape", "dtype", "low", "high")


def is_game(name: str) -> bool:
    return name.startswith(_SCHEME)


@dataclass(frozen=True, kw_only=True)
class Games:
    """Where games call, and what they see and do; given to `ludus.train` in the place of an environment.

    grpc_port: games may call by gRPC, too, there.
    mask: steps may say which discrete actions are allowed, and the policy learns with that.
    lease_s: a session without a step for so long is over; what it played is learnt from as an episode that was cut off.
    eval_wait_s: when no greedy session has made a step for so long, the evaluation at the end is over.
    max_sessions: at a time, in each gateway worker.
    token_file, secret_file: beyond loopback one of them is needed, or LUDUS_TOKEN or LUDUS_SECRET; docs/protocol.md.

    Raises `ConfigError`, which names the field, for what cannot be.
    """

    port: int
    obs: Any
    action: Any
    host: str = "127.0.0.1"
    grpc_port: int | None = None
    mask: bool = False
    lease_s: float = 60.0
    eval_wait_s: float = 60.0
    max_sessions: int = 10_000
    token_file: str | None = None
    secret_file: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None

    def __post_init__(self) -> None:
        if type(self.port) is not int or not 1 <= self.port <= 65535:
            raise errors.ConfigError(f"games: port must be a number from 1 to 65535; it is {self.port!r}.")
        if self.grpc_port is not None and (type(self.grpc_port) is not int or not 1 <= self.grpc_port <= 65535):
            raise errors.ConfigError(f"games: grpc_port must be a number from 1 to 65535; it is {self.grpc_port!r}.")
        for name in ("lease_s", "eval_wait_s", "max_sessions"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise errors.ConfigError(f"games: {name} must be a number above 0; it is {value!r}.")
        if not isinstance(self.mask, bool):
            _refuse("mask", "must be true or false", self.mask)
        spec = self.spec
        if self.mask and not spec.action.mask_size:
            _refuse("mask", "is for discrete actions; these are continuous", self.mask)

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def name(self) -> str:
        return f"{_SCHEME}{self.address}"

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec(
            name=self.name, obs=_obs_spec(self.obs, "obs"), action=_action_spec(self.action), has_mask=self.mask
        )

    def arguments(self) -> dict[str, Any]:
        """All but the address, as JSON can hold it."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        for name in ("token_file", "secret_file", "tls_cert", "tls_key"):
            fields[name] = fields[name] and str(Path(fields[name]).absolute())
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        given = {name: value for name, value in fields.items() if value is not defaults[name]}
        spec = self.spec
        plain = {"obs": _plain_obs(spec.obs), "action": _plain_action(spec.action)}
        return {**{name: given[name] for name in given if name not in ("host", "port")}, **plain}

    @classmethod
    def parse(cls, name: str, arguments: Mapping[str, Any]) -> Games:
        """From `game://HOST:PORT` and the arguments. Raises `ConfigError`."""
        try:
            parts = urllib.parse.urlsplit(name)
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
        if not host or not port or parts.path.strip("/") or parts.query:
            raise errors.ConfigError(
                f"{name!r} is not where games call: write game://HOST:PORT, as game://127.0.0.1:8000"
            )
        known = {field.name for field in dataclasses.fields(cls)} - {"host", "port"}
        for key in arguments:
            if key not in known:
                raise errors.ConfigError(f"games have no setting {key!r}. {spelling.nearest(key, sorted(known))}")
        if "obs" not in arguments or "action" not in arguments:
            raise errors.ConfigError(
                f"what games at {name} see and do is not known: give a file that says so, --spec game.json, such as "
                '{"obs": {"shape": [4], "dtype": "float32"}, "action": {"discrete": 2}}'
            )
        return cls(host=host, port=port, **arguments)


def read_spec(path: str) -> dict[str, Any]:
    """What a file of a game's spec says, checked. Raises `ConfigError`, which names the file and the field."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise errors.ConfigError(f"spec={path} cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise errors.ConfigError(f"spec={path} is not JSON: {error}.") from None
    if not isinstance(content, dict):
        raise errors.ConfigError(f"spec={path} must be a JSON object with obs and action.")
    for key in content:
        if key not in _OF_FILE:
            raise errors.ConfigError(
                f"spec={path} has {key!r}, which is no field of a spec. {spelling.nearest(key, _OF_FILE)}"
            )
    for key in ("obs", "action"):
        if key not in content:
            raise errors.ConfigError(f"spec={path} does not say {key}: it is needed.")
    try:
        Games(port=1, **content)
    except errors.ConfigError as error:
        raise errors.ConfigError(f"spec={path}: {error}") from None
    return content


def parse_spec(content: Mapping[str, Any], *, name: str = "game") -> EnvSpec:
    """What `obs`, `action` and `mask` of a spec's file say. Raises `ConfigError`, which names the field."""
    return dataclasses.replace(Games(port=1, **content).spec, name=name)


def plain_spec(spec: EnvSpec) -> dict[str, Any]:
    """`obs`, `action` and `mask` as such a file has them. Raises `ConfigError` for what it cannot say."""
    return {"obs": _plain_obs(spec.obs), "action": _plain_action(spec.action), "mask": spec.has_mask}


def make(name: str, num_envs: int, *, num_threads: int, kwargs: Mapping[str, Any]) -> VectorEnv:
    """Games cannot be stepped from here."""
    raise errors.EnvError(
        f"{name} is where games call: they cannot be stepped from here. Serve the policy (`ludus serve TRIAL`), and "
        "let games play it."
    )


# --- from plain data, and back


def _obs_spec(value: Any, path: str) -> Nest:
    if isinstance(value, ArraySpec):
        return value
    if not isinstance(value, Mapping) or not value:
        _refuse(path, 'must be an array such as {"shape": [4], "dtype": "float32"}, or an object of arrays', value)
    if not any(key in value and not isinstance(value[key], Mapping | ArraySpec) for key in _OF_ARRAY):
        return {str(key): _obs_spec(each, f"{path}/{key}") for key, each in value.items()}
    for key in value:
        if key not in _OF_ARRAY:
            _refuse(f"{path}/{key}", f"is no field of an array. {spelling.nearest(str(key), _OF_ARRAY)}", value[key])
    shape = value.get("shape")
    if not isinstance(shape, list | tuple) or any(type(dim) is not int or dim < 1 for dim in shape):
        _refuse(f"{path}/shape", "must be a list of counts, such as [84, 84, 3]", shape)
    try:
        dtype: np.dtype[Any] = np.dtype(value.get("dtype", "float32"))
    except TypeError:
        dtype = np.dtype(object)
    if dtype.kind not in "biuf":
        _refuse(f"{path}/dtype", "must be the name of a dtype of numbers, such as float32 or uint8", value["dtype"])
    low, high = (_bound(value.get(key), dtype, tuple(shape), f"{path}/{key}") for key in ("low", "high"))
    if low is not None and high is not None and bool(np.any(np.asarray(low) > np.asarray(high))):
        _refuse(f"{path}/low", "must not be above high", value["low"])
    return ArraySpec(shape, dtype, low, high)


def _bound(value: Any, dtype: np.dtype[Any], shape: tuple[int, ...], path: str) -> Any:
    if value is None:
        return None
    try:
        array = np.asarray(value, np.float64 if dtype.kind == "f" else np.int64)
        np.broadcast_to(array, shape)
    except (ValueError, TypeError, OverflowError):
        _refuse(path, f"must be a number, or numbers in the shape {list(shape)}", value)
    return array if np.isfinite(array).all() else None


def _action_spec(value: Any) -> ActionSpec:
    if isinstance(value, Discrete | MultiDiscrete | Continuous):
        return value
    kinds = '{"discrete": 2}, {"multi_discrete": [3, 2]} or {"low": [-2], "high": [2]}'
    if not isinstance(value, Mapping) or set(value) not in ({"discrete"}, {"multi_discrete"}, {"low", "high"}):
        _refuse("action", f"must be one of {kinds}", value)
    if "discrete" in value:
        if type(value["discrete"]) is not int or value["discrete"] < 1:
            _refuse("action/discrete", "must be the number of choices, at least 1", value["discrete"])
        return Discrete(value["discrete"])
    if "multi_discrete" in value:
        choices = value["multi_discrete"]
        if not isinstance(choices, list | tuple) or not choices or any(type(n) is not int or n < 1 for n in choices):
            _refuse("action/multi_discrete", "must be a list of numbers of choices, such as [3, 2]", choices)
        return MultiDiscrete(tuple(choices))
    low, high = (_limits(value[key], sign, f"action/{key}") for key, sign in (("low", -math.inf), ("high", math.inf)))
    if len(low) != len(high) or any(a >= b for a, b in zip(low, high, strict=True)):
        _refuse(
            "action/low", f"must have as many numbers as action/high, each below it; high is {list(high)}", value["low"]
        )
    return Continuous(low, high)


def _limits(value: Any, unbounded: float, path: str) -> tuple[float, ...]:
    is_list = isinstance(value, list | tuple) and bool(value)
    if not is_list or any(isinstance(n, bool) or not isinstance(n, int | float | None) for n in value):
        _refuse(path, "must be a list of numbers, or null where there is no bound", value)
    return tuple(unbounded if number is None else float(number) for number in value)


def _plain_obs(spec: Nest) -> Any:
    if isinstance(spec, dict):
        return {key: _plain_obs(each) for key, each in spec.items()}
    if not isinstance(spec, ArraySpec):
        _refuse("obs", "must be made of arrays and dicts of arrays", spec)
    plain: dict[str, Any] = {"shape": list(spec.shape), "dtype": spec.dtype.name}
    for key, bound in (("low", spec.minimum), ("high", spec.maximum)):
        if bound is not None and np.isfinite(np.asarray(bound)).all():
            plain[key] = np.asarray(bound).tolist()
    return plain


def _plain_action(spec: ActionSpec) -> dict[str, Any]:
    match spec:
        case Discrete():
            return {"discrete": spec.num_choices}
        case MultiDiscrete():
            return {"multi_discrete": list(spec.num_choices)}
    low, high = ([bound if math.isfinite(bound) else None for bound in bounds] for bounds in (spec.low, spec.high))
    return {"low": low, "high": high}


def _refuse(path: str, must: str, value: Any) -> NoReturn:
    raise errors.ConfigError(f"{path} {must}; it is {value!r}.")
