"""Bots that are code: run where this user has named them, and nowhere else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ludus.errors import ConfigError
from ludus.league import api, arena, code_bots
from ludus.league.live import open_league

from .games import GAME, SMALL

BOT = """
import pathlib
from ludus.data.actions import Discrete
from ludus.league.bots import RandomBot

def make():
    pathlib.Path(__file__).with_suffix(".ran").touch()
    return RandomBot(Discrete(9))
"""


def test_the_code_of_a_league_that_was_made_elsewhere_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LUDUS_STATE_DIR", str(tmp_path / "theirs"))
    (tmp_path / "bot.py").write_text(BOT)
    bot = f"{tmp_path / 'bot.py'}:make"
    settings = {**SMALL, "bots": (bot,), "project": str(tmp_path), "trial": "a", "steps": 400}
    name = next(each["name"] for each in api.league(GAME, **settings).standings if each["role"] == "bot")
    ran = tmp_path / "bot.ran"
    assert ran.exists()
    ran.unlink()
    monkeypatch.setenv("LUDUS_STATE_DIR", str(tmp_path / "mine"))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    with pytest.raises(ConfigError, match="nothing was run"):
        api.resume(tmp_path / "b", settings={"steps": 800})
    with pytest.raises(ConfigError, match="nothing was run"):
        arena.play_arena([f"{tmp_path / 'b'}@{name}", f"{tmp_path / 'b'}@main"], num_games=2)
    with open_league(tmp_path / "b") as league:
        assert name in {player["name"] for player in league.players()}
    assert not ran.exists()
    api.resume(tmp_path / "b", settings={"steps": 800, "bots": (bot,)})
    assert ran.exists()


def test_who_names_code_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUDUS_STATE_DIR", str(tmp_path / "state"))
    folder = tmp_path / "league"
    for own in ("random", "alphabeta:4", "minimax"):
        code_bots.expect_allowed(folder, own)
    with pytest.raises(ConfigError, match=r"a\.py:make"):
        code_bots.expect_allowed(folder, "a.py:make")
    code_bots.allow(folder, "a.py:make")
    code_bots.allow(folder, "b.py:make")
    code_bots.expect_allowed(folder, "a.py:make")
    (folder / "code_bots.json").write_text('["a.py:make", "c.py:make"]')
    with pytest.raises(ConfigError, match="nothing was"):
        code_bots.expect_allowed(folder, "a.py:make")
