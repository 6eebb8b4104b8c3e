from __future__ import annotations

import argparse
from dataclasses import dataclass

import pytest

from ludus.cli import options
from ludus.options import option


@dataclass(frozen=True, kw_only=True)
class Settings:
    name: str = option("walker", help="what it is called")
    num_steps: int = option(100_000, help="at most 100% of them", minimum=1)
    learning_rate: float = option(3e-4, help="step size", minimum=0.0)
    hidden: tuple[int, ...] = option((64, 64), help="sizes of layers", minimum=1)
    anneal: bool = option(True, help="slow down")
    shared: bool | None = option(None, help="share; none: as fits")
    stop_at: float | None = option(None, help="end there")
    flow: str = option("sync", help="in turns or at once", choices=("sync", "async"))


def _parse(*words: str) -> dict[str, object]:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    options.add_options(parser, Settings())
    return options.given_options(parser.parse_args(words), Settings())


def test_what_was_not_given_leaves_no_trace() -> None:
    assert _parse() == {}


def test_every_field_is_a_typed_option() -> None:
    given = _parse(
        "--name", "x", "--num-steps", "2_000", "--learning-rate", "1e-3", "--hidden", "32,16", "--stop-at", "475",
        "--flow", "async",
    )  # fmt: skip
    assert given == {
        "name": "x",
        "num_steps": 2000,
        "learning_rate": 1e-3,
        "hidden": (32, 16),
        "stop_at": 475.0,
        "flow": "async",
    }
    assert isinstance(given["stop_at"], float)


def test_whole_numbers_may_be_written_with_an_exponent_and_negative_ones_are_values() -> None:
    assert _parse("--num-steps", "1e6") == {"num_steps": 1_000_000}
    assert _parse("--stop-at", "-90") == {"stop_at": -90.0}


def test_what_is_yes_or_no_has_two_options() -> None:
    assert _parse("--anneal", "--no-shared") == {"anneal": True, "shared": False}
    assert _parse("--no-anneal", "--shared") == {"anneal": False, "shared": True}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--num-steps", "many"], "num_steps='many' is not a whole number"),
        (["--num-steps", "0"], "num_steps=0 is less than 1"),
        (["--hidden", "64,x"], "hidden='64,x' is not a list such as 64,64"),
        (["--flow", "asinc"], "Did you mean 'async'?"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_the_reason(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        _parse(*words)
    assert message in capsys.readouterr().err


def test_help_shows_what_each_is_and_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        _parse("--help")
    out = " ".join(capsys.readouterr().out.split())
    assert "--num-steps N at most 100% of them (default: 100_000)" in out
    assert "--hidden N,N,… sizes of layers (default: 64,64)" in out
    assert "--anneal, --no-anneal slow down (default: yes)" in out
    assert "--flow {sync,async} in turns or at once (default: sync)" in out
    assert "--stop-at X end there (default: none)" in out


def test_fields_can_be_left_out_and_those_added_are_reported() -> None:
    parser = argparse.ArgumentParser()
    added = options.add_options(parser, Settings(), without=("name", "flow"))
    assert added == ["num_steps", "learning_rate", "hidden", "anneal", "shared", "stop_at"]


def test_a_misspelt_option_is_answered_with_the_nearest() -> None:
    parser = argparse.ArgumentParser()
    options.add_options(parser, Settings())
    assert options.unknown_option(parser, ["--num-steps", "1", "--no-anneal", "--", "--whatever"]) is None
    assert options.unknown_option(parser, ["--num-stpes=5"]) == (
        "there is no option --num-stpes. Did you mean '--num-steps'?"
    )
    assert options.unknown_option(parser, ["--zzz"]) == "there is no option --zzz. See --help for those there are."
