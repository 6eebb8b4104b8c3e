"""How names are spelled: `experiment/trial/kind/worker`. No other file of Ludus puts a key together.

key = names.worker("chess", "monday", "policy/0")    # 'chess/monday/worker/policy/0'
names.worker_name(key)                               # 'policy/0'
own.watch_names(names.below(names.worker_root("chess", "monday")), on_change)
"""

from __future__ import annotations

from ludus import errors
from ludus.spelling import nearest

__all__ = [
    "below",
    "check",
    "experiment_root",
    "held_up_root",
    "is_at_or_below",
    "key",
    "kind_root",
    "nearest",
    "trial_root",
    "worker",
    "worker_name",
    "worker_root",
]

WORKER = "worker"


def experiment_root(experiment: str) -> str:
    """Everything of an experiment is below it."""
    return _part(experiment, "an experiment")


def trial_root(experiment: str, trial: str) -> str:
    """Everything of a trial is below it."""
    return f"{experiment_root(experiment)}/{_part(trial, 'a trial')}"


def kind_root(experiment: str, trial: str, kind: str) -> str:
    """All names of one kind (`worker`, `topic`, …) in a trial are below it."""
    return f"{trial_root(experiment, trial)}/{_part(kind, 'a kind')}"


def key(experiment: str, trial: str, kind: str, name: str) -> str:
    """The key of one thing; `name` may have parts of its own, as `policy/0` has."""
    return f"{kind_root(experiment, trial, kind)}/{check(name)}"


def worker_root(experiment: str, trial: str) -> str:
    """All workers of a trial are below it."""
    return kind_root(experiment, trial, WORKER)


def worker(experiment: str, trial: str, worker_name: str) -> str:
    """The key of a worker's address; worker names look like `policy/0`."""
    return key(experiment, trial, WORKER, worker_name)


def held_up_root(experiment: str, trial: str) -> str:
    """Names of the workers of a trial whose loop does not turn just now are below it."""
    return kind_root(experiment, trial, "held-up")


def worker_name(key: str) -> str:
    """The inverse of `worker`: `policy/0` from its key. Raises `DiscoveryError` if the key is no worker's."""
    parts = check(key).split("/", 3)
    if len(parts) < 4 or parts[2] != WORKER:
        raise errors.DiscoveryError(f"{key!r} is not the key of a worker (experiment/trial/worker/name)")
    return parts[3]


def below(root: str) -> str:
    """`root` as `watch_names` wants it to mean every name below: with a `/` at its end."""
    return f"{check(root)}/"


def check(name: str) -> str:
    """`name` itself, if it is well formed; otherwise raises a `DiscoveryError` that says what is wrong."""
    if not isinstance(name, str) or not name:
        raise errors.DiscoveryError(f"{name!r} is not a name: it must be a string with at least one character")
    if name.startswith("/") or name.endswith("/"):
        raise errors.DiscoveryError(f"{name!r} is not a name: it begins or ends with '/'")
    if "//" in name:
        raise errors.DiscoveryError(f"{name!r} is not a name: it has an empty part between two '/'")
    if not name.isprintable():  # control characters, and halves of surrogate pairs that no backend can encode
        raise errors.DiscoveryError(f"{name!r} is not a name: it has characters that cannot be printed")
    return name


def is_at_or_below(name: str, root: str) -> bool:
    """Whether `name` is `root` or below it: `a` and `a/b` are, for the root `a`; `ab` is not."""
    return name == root or name.startswith(f"{root}/")


def _part(text: str, what: str) -> str:
    if "/" in check(text):
        raise errors.DiscoveryError(f"{text!r} cannot name {what}: it has a '/' in it")
    return text
