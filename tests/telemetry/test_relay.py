from __future__ import annotations

import logging
from pathlib import Path

import pytest

from ludus.telemetry.relay import RelayHandler, WarningRelay


class HeldClock:
    """Only `now` is asked for."""

    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> float:
        return self.at

    def wait(self, event: object, timeout_s: float) -> bool:
        raise NotImplementedError


@pytest.fixture
def clock() -> HeldClock:
    return HeldClock()


@pytest.fixture
def relay(clock: HeldClock) -> WarningRelay:
    return WarningRelay(Path("there/logs"), clock=clock)


def line(name: str, level: int, text: str, **options: object) -> list[bytes]:
    """What a worker sends for one record."""
    sent: list[bytes] = []
    handler = RelayHandler(sent.append)
    record = logging.LogRecord(name, level, __file__, 1, text, (), options.get("exc_info"))
    if record.levelno >= handler.level:
        handler.handle(record)
    return sent


def test_a_warning_has_its_level_logger_and_the_name_of_its_worker(
    relay: WarningRelay, caplog: pytest.LogCaptureFixture
) -> None:
    [sent] = line("ludus.envs.failures", logging.ERROR, "it raised (seed 7, step 12)")
    relay.take("simulator/0", sent)
    assert caplog.record_tuples == [
        ("ludus.envs.failures", logging.ERROR, "simulator/0: it raised (seed 7, step 12)"),
    ]


def test_a_traceback_comes_with_it(relay: WarningRelay, caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise RuntimeError("of the user's own")
    except RuntimeError as error:
        [sent] = line("ludus.envs", logging.ERROR, "it raised", exc_info=(type(error), error, error.__traceback__))
    assert b"\n" not in sent
    relay.take("simulator/0", sent)
    assert "Traceback (most recent call last):" in caplog.text
    assert f'File "{__file__}"' in caplog.text


def test_only_what_ludus_warns_of_is_sent_and_not_how_the_worker_ended() -> None:
    assert line("ludus.envs", logging.WARNING, "this")
    assert not line("ludus.envs", logging.INFO, "this")
    assert not line("matplotlib", logging.WARNING, "this")
    assert not line("ludusus", logging.WARNING, "this")
    assert not line("ludus.launch.child", logging.ERROR, "the driver says so itself")


def test_the_same_text_is_shown_once_a_minute_from_any_source(
    relay: WarningRelay, clock: HeldClock, caplog: pytest.LogCaptureFixture
) -> None:
    [sent] = line("ludus.x", logging.WARNING, "again and again")
    for at in (0.0, 1.0, 59.0, 61.0):
        clock.at = at
        relay.take("simulator/0", sent)
        relay.take("simulator/1", sent)
    assert [record.getMessage() for record in caplog.records] == ["simulator/0: again and again"] * 2


def test_a_flood_is_cut_off_with_a_word_and_may_pass(
    relay: WarningRelay, clock: HeldClock, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(1000):
        [sent] = line("ludus.x", logging.WARNING, f"number {number}")
        relay.take("simulator/0", sent)
    assert 20 <= len(caplog.records) <= 60
    assert "they are in there/logs" in caplog.records[-1].getMessage()
    caplog.clear()
    clock.at = 4000.0
    [sent] = line("ludus.x", logging.WARNING, "much later")
    relay.take("simulator/0", sent)
    assert "much later" in caplog.text


def test_a_long_text_is_shortened_in_the_middle(relay: WarningRelay, caplog: pytest.LogCaptureFixture) -> None:
    [sent] = line("ludus.x", logging.WARNING, "begins" + "." * 1_000_000 + "ends")
    assert len(sent) < 20_000
    relay.take("simulator/0", sent)
    assert "begins" in caplog.text
    assert "ends" in caplog.text


@pytest.mark.parametrize("junk", [b"", b"{}", b"[1, 2]", b"7", b'[30, 5, "x"]', b"\xff"])
def test_what_no_worker_sent_is_refused(junk: bytes, relay: WarningRelay) -> None:
    with pytest.raises(ValueError, match=r"."):
        relay.take("simulator/0", junk)
