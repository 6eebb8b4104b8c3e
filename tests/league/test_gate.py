"""The gate: what is surely so counts, not what may be."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ludus.league import config as configs
from ludus.league import gate
from ludus.league.arena import Contestant
from ludus.league.bots import make_bot
from ludus.league.gate_settings import GateSettings
from ludus.league.payoff import Record

from .games import GAME, SMALL

NARROW, CLEAR = Record(wins=55.0, losses=45.0), Record(wins=80.0, losses=20.0)


def contestant(name: str) -> Contestant:
    return Contestant(name=name, game=None, open=lambda config: make_bot("random", GAME))


@pytest.mark.parametrize(
    ("against", "exploited", "num_reasons"),
    [(CLEAR, Record(wins=20.0, losses=80.0), 0), (NARROW, CLEAR, 2), (CLEAR, NARROW, 1), (NARROW, Record(), 2)],
)
def test_who_may_be_weaker_or_may_be_exploited_is_refused(
    monkeypatch: pytest.MonkeyPatch, against: Record, exploited: Record, num_reasons: int
) -> None:
    monkeypatch.setattr(
        gate.arena, "play", lambda *_args, **_options: SimpleNamespace(records={("new", "old"): against})
    )
    monkeypatch.setattr(gate, "_exploit", lambda *_args: exploited)
    settings = GateSettings(min_win_rate=0.5, max_exploit=0.6, exploit_steps=1)
    config: Any = None  # of the game, which is not played
    verdict = gate._judge(contestant("new"), contestant("old"), config, settings, None)
    assert len(verdict.reasons) == num_reasons
    assert verdict.is_passed == (not num_reasons)


def test_what_exploits_a_candidate_is_what_the_exploiter_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    def play(contestants: list[Contestant], *_args: Any, **_options: Any) -> Any:
        exploiter, candidate = (each.name for each in contestants)
        return SimpleNamespace(
            records={(exploiter, candidate): Record(wins=1.0), (candidate, exploiter): Record(losses=1.0)}
        )

    monkeypatch.setattr(gate.arena, "play", play)
    config = configs.resolve(GAME, SMALL).training
    assert gate._exploit(contestant("main-1"), config, GateSettings(exploit_steps=1), None) == Record(wins=1.0)
