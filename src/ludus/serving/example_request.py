"""A request that can be pasted into a shell to try a policy that is served."""

from __future__ import annotations

import json
import math
import shlex

from ludus.data.nest import Nest
from ludus.data.spec import ArraySpec

__all__ = ["example_curl"]

_MAX_WRITTEN_OUT = 64  # numbers; larger observations are made by a line of Python


def example_curl(url: str, obs: Nest, *, has_token: bool = False, in_session: bool = False) -> str:
    """A tick with an observation of zeros, as one line: stateless, or the first one of a session, which is started
    before it. A token is taken from the variable TOKEN."""
    words = ["curl", *(_step("tick") if in_session else ()), "--data"]
    access = ' -H "authorization: Bearer $TOKEN"' if has_token else ""
    if in_session:
        start = shlex.join(["curl", *_step("start"), "-X", "POST"])
        return f"{start}{access} {url}/step && {_tick(url, obs, words, access)}"
    return _tick(url, obs, words, access)


def _step(kind: str) -> tuple[str, ...]:
    return "-H", "session: try", "-H", f"step_kind: {kind}"


def _tick(url: str, obs: Nest, words: list[str], access: str) -> str:
    if _size(obs) <= _MAX_WRITTEN_OUT:
        body = json.dumps(_zeros(obs) if not isinstance(obs, dict) else {"obs": _zeros(obs)})
        return f"{shlex.join([*words, body])}{access} {url}/step"
    code = _code(obs) if not isinstance(obs, dict) else f'{{"obs": {_code(obs)}}}'
    made = shlex.join(["python3", "-c", f"import json; print(json.dumps({code}))"])
    return f"{made} | {shlex.join([*words, '@-'])}{access} {url}/step"


def _size(spec: Nest) -> int:
    """How many numbers it has."""
    if isinstance(spec, dict):
        return sum(map(_size, spec.values()))
    if isinstance(spec, list | tuple):
        return sum(map(_size, spec))
    assert isinstance(spec, ArraySpec)
    return math.prod(spec.shape)


def _zeros(spec: Nest) -> object:
    """As plain lists."""
    if isinstance(spec, dict):
        return {key: _zeros(each) for key, each in spec.items()}
    if isinstance(spec, list | tuple):
        return [_zeros(each) for each in spec]
    assert isinstance(spec, ArraySpec)
    return spec.allocate(()).tolist()


def _code(spec: Nest) -> str:
    """The same, as Python that makes them: `[[0] * 84] * 84`."""
    if isinstance(spec, dict):
        return "{" + ", ".join(f"{json.dumps(key)}: {_code(each)}" for key, each in spec.items()) + "}"
    if isinstance(spec, list | tuple):
        return "[" + ", ".join(map(_code, spec)) + "]"
    assert isinstance(spec, ArraySpec)
    code = "0"
    for size in reversed(spec.shape):
        code = f"[{code}] * {size}"
    return code
