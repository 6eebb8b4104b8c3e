"""Shares of new sessions are exact, over processes and restarts."""

import subprocess
import sys
from collections import Counter

import pytest

from ludus.errors import ConfigError
from ludus.gateway.router import Router


@pytest.mark.parametrize("canary", [0.1, 1 / 3, 0.5, 0.0, 1.0])
def test_at_every_moment_the_share_is_exact_up_to_rounding(canary):
    router, counts = Router({"main": 1 - canary, "canary": canary}), Counter()
    for number in range(1, 301):
        counts[router()[""]] += 1
        assert abs(counts["canary"] - canary * number) < 1


def test_processes_that_share_a_port_share_the_count(tmp_path):
    script = (
        "import sys; from pathlib import Path; from ludus.gateway.router import Router\n"
        "router = Router({'main': 0.9, 'canary': 0.1}, Path(sys.argv[1]))\n"
        "for _ in range(250): router()"
    )
    running = [subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "routes")]) for _ in range(4)]
    assert [process.wait(60) for process in running] == [0] * 4
    assert Router({"main": 0.9, "canary": 0.1}, tmp_path / "routes").counts() == {"main": 900, "canary": 100}


def test_other_shares_are_counted_from_the_beginning(tmp_path):
    Router({"main": 0.5, "canary": 0.5}, tmp_path / "routes")()
    assert Router({"main": 0.9, "canary": 0.1}, tmp_path / "routes").counts() == {"main": 0, "canary": 0}


@pytest.mark.parametrize("shares", [{}, {"a": 0.5}, {"a": 1.5, "b": -0.5}])
def test_shares_that_are_not_one_together_are_refused(shares):
    with pytest.raises(ConfigError, match="1 together"):
        Router(shares)
