from __future__ import annotations

import fractions
import os
import pickle
import random
from typing import Any

import cloudpickle
import pytest

from ludus.models import pickle_names


class Calls:
    """A pickle of it calls `function`."""

    def __init__(self, function: Any, *args: Any) -> None:
        self._call = function, args

    def __reduce__(self) -> Any:
        return self._call


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_names_are_found_in_every_protocol(protocol: int) -> None:
    body = pickle.dumps([Calls(os.getpid), {"posix": (1, 2.5)}, Calls(os.getpid), fractions.Fraction], protocol)
    assert pickle_names.describe(body) == "it names fractions.Fraction, posix.getpid"


def test_a_name_whose_strings_were_memoised_or_copied_is_found() -> None:
    module, name = b"\x8c\x05posix", b"\x8c\x06system"
    memoised = b"\x80\x04" + module + b"\x94" + name + b"\x94" + b"00" + b"h\x00h\x01\x93."
    assert pickle_names.describe(memoised) == "it names posix.system"
    copied = b"\x80\x04" + module + b"20" + name + b"\x93."
    assert pickle_names.describe(copied) == "it names posix.system"
    marked = b"\x80\x04(" + module + b"1" + module + b"(0" + name + b"\x93."
    assert pickle_names.describe(marked) == "it names posix.system"


def test_a_name_that_is_computed_is_said_to_be() -> None:
    body = b"\x80\x04\x8c\x05posixcbuiltins\nstr\n)R\x93."
    assert pickle_names.describe(body) == "it names builtins.str, posix.<computed>"


def test_of_many_names_the_first_are_listed_and_the_usual_ones_are_last() -> None:
    usual = b"ccollections\nOrderedDict\n"
    own = b"".join(b"cmine\nNet%d\n" % number for number in range(9))
    listed = ", ".join(f"mine.Net{number}" for number in range(8))
    assert pickle_names.describe(usual + own + b".") == f"it names {listed} and 2 more"
    assert pickle_names.describe(usual + b"cmine\nNet\n.") == "it names mine.Net, collections.OrderedDict"


def test_what_a_class_that_is_sent_whole_calls_is_among_the_first_names() -> None:
    class Own:
        def __init__(self) -> None:
            self.call = Calls(os.getpid)

        def __call__(self) -> int:
            return os.getpid()

    listed = pickle_names.describe(cloudpickle.dumps(Own())).partition(" and ")[0]
    assert "posix.getpid" in listed
    assert "cloudpickle.cloudpickle._make_function" in listed  # it brings code of its own


def test_a_name_cannot_write_to_the_terminal() -> None:
    said = pickle_names.describe(b"\x80\x04\x8c\x05a\n\x1b[2\x8c\x01b\x93.")
    assert said == r"it names 'a\n\x1b[2.b'"
    assert len(pickle_names.describe(b"ca\n" + b"b" * 1000 + b"\n.")) < 100


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "it names nothing, up to where it cannot be read as a pickle"),
        (b"\x93.", "it names nothing, up to where it cannot be read as a pickle"),
        (b"cposix\nmkdir\n\xff", "it names posix.mkdir, up to where it cannot be read as a pickle"),
        (b"cposix\nmkdir\n1.", "it names posix.mkdir, up to where it cannot be read as a pickle"),
        (b"cposix\nmkdir\nRR.", "it names posix.mkdir, up to where it cannot be read as a pickle"),
        (b"cposix\nmkdir\nh\x09.", "it names posix.mkdir, up to where it cannot be read as a pickle"),
        (b"N.", "it names nothing"),
    ],
)
def test_bytes_that_are_no_pickle_are_described_up_to_there(body: bytes, said: str) -> None:
    assert pickle_names.describe(body) == said


def test_random_changes_of_a_pickle_never_raise() -> None:
    chance = random.Random(1)
    whole = pickle.dumps([Calls(os.getpid), {"a": (1, 2.5, b"x")}, fractions.Fraction])
    for _ in range(2000):
        body = bytearray(whole[: chance.randrange(len(whole) + 1)])
        for _ in range(min(len(body), 3)):
            body[chance.randrange(len(body))] = chance.randrange(256)
        assert pickle_names.describe(bytes(body)).startswith("it names ")
