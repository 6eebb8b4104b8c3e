from __future__ import annotations

import pytest

from ludus import errors
from ludus.discovery import names


def test_keys_are_experiment_trial_kind_name() -> None:
    assert names.trial_root("chess", "monday") == "chess/monday"
    assert names.worker_root("chess", "monday") == "chess/monday/worker"
    assert names.worker("chess", "monday", "policy/0") == "chess/monday/worker/policy/0"
    assert names.key("chess", "monday", "topic", "weights") == "chess/monday/topic/weights"


def test_worker_name_is_the_inverse_of_worker() -> None:
    assert names.worker_name(names.worker("chess", "monday", "policy/0")) == "policy/0"


@pytest.mark.parametrize("key", ["chess/monday/topic/weights", "chess/monday/worker", "policy/0"])
def test_worker_name_refuses_what_is_no_workers_key(key: str) -> None:
    with pytest.raises(errors.DiscoveryError, match="not the key of a worker"):
        names.worker_name(key)


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        (("", "monday", "policy/0"), "at least one character"),
        (("chess", "mon/day", "policy/0"), "cannot name a trial"),
        (("chess/2", "monday", "policy/0"), "cannot name an experiment"),
        (("chess", "monday", "/policy/0"), "begins or ends with '/'"),
        (("chess", "monday", "policy/"), "begins or ends with '/'"),
        (("chess", "monday", "policy//0"), "empty part"),
        (("chess", "monday", "policy\x000"), "cannot be printed"),
        (("chess", "monday", "policy\ud800"), "cannot be printed"),
    ],
)
def test_a_malformed_part_is_refused_with_what_is_wrong(parts: tuple[str, str, str], says: str) -> None:
    with pytest.raises(errors.DiscoveryError, match=says):
        names.worker(*parts)


def test_what_is_below_a_root() -> None:
    assert names.is_at_or_below("a", "a")
    assert names.is_at_or_below("a/b", "a")
    assert not names.is_at_or_below("ab", "a")
    assert names.below("a/b") == "a/b/"


def test_nearest_says_what_was_probably_meant() -> None:
    assert names.nearest("polcy", ["policy", "trainer"]) == "Did you mean 'policy'?"
    assert names.nearest("zzz", ["policy", "trainer"]) == "There are: policy, trainer."
    assert names.nearest("zzz", map(str, range(20))).endswith(", ….")
    assert names.nearest("zzz", []) == "There are none."
