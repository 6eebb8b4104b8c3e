"""Signatures: what they cover, and how often they are good."""

import os

import pytest

from ludus.gateway.auth import Auth, sign
from ludus.gateway.http.wire import parse_step
from ludus.gateway.step import Step
from ludus.gateway.used_signatures import UsedSignatures


def request(time_ms, *, signed=None, **headers):
    """Headers of a signed start, and the step; `signed` are those beyond the usual that the signature knows of."""
    headers = {"session": "a", "step_kind": "start", **headers}
    token = sign(
        "S", key="k", time_ms=time_ms, session="a", step_kind="start", step=headers.get("step", ""), data=b"x",
        **(signed or {}),
    )  # fmt: skip
    sent = {"key": "k", "time": str(time_ms), "token": token, **headers}
    found = {name.encode(): value.encode() for name, value in sent.items()}
    return found, parse_step(found, b"x")


def code(auth, headers, step):
    refused = auth.check(headers, step) or auth.use(step)
    return None if refused is None else refused.code


def test_a_signature_of_a_request_without_them_is_made_as_ever():
    token = sign("S", key="k", time_ms=1, session="a", step_kind="tick", step="3", data=b"x")
    assert token == "0d3e8d0b880f3ecc367fbe1c52560cea90f7d762470747a7cd8f6d74ee3e328e"


@pytest.mark.parametrize(
    ("name", "value"), [("run", "2"), ("model", "m"), ("version", "7"), ("deadline_ms", "50"), ("deadline-ms", "50")]
)
def test_headers_that_decide_about_the_step_are_signed_if_they_are_there(name, value):
    auth = Auth(secret="S", now=lambda: 100.0)
    signed = {name.replace("-", "_"): value}
    assert code(auth, *request(100_000, step="0")) is None
    assert code(auth, *request(100_000, step="0", **{name: value})) == "unauthorised"
    assert code(auth, *request(100_000, step="0", signed=signed)) == "unauthorised", "it was taken away"
    assert code(auth, *request(100_000, step="0", signed=signed, **{name: value})) is None


def test_what_was_signed_ahead_of_the_clock_is_known_as_used_for_as_long_as_its_time_is_good():
    now = [100.0]
    auth = Auth(secret="S", now=lambda: now[0])
    ahead, start = request(129_000), request(129_000, step="0")
    assert code(auth, *ahead) is None
    assert auth.check(*start) is None
    assert auth.spend_start(start[1]) is None
    now[0] += 31
    other, other_start = request(131_000), request(131_000, step="0")
    assert code(auth, *other) is None
    assert auth.check(*other_start) is None
    assert auth.spend_start(other_start[1]) is None, "what is too old is forgotten when another is used"
    assert code(auth, *ahead) == "replayed"
    assert auth.check(*start) is None
    assert auth.spend_start(start[1]).code == "replayed"


def test_what_was_signed_before_the_server_began_is_good_for_numbered_steps_only():
    clock = [100.0]
    captured = request(99_500)
    first = Auth(secret="S", now=lambda: clock[0] - 10)
    clock[0] = 110.0
    assert code(first, *captured) is None
    assert code(first, *captured) == "replayed"
    successor = Auth(secret="S", now=lambda: clock[0] - 10)
    assert code(successor, *captured) == "replayed"
    assert code(successor, *request(99_500, step="0")) is None
    assert code(successor, *request(100_000)) is None


def test_used_signatures_are_known_to_a_successor_until_they_are_too_old_and_take_no_more_room(tmp_path):
    now = [100.0]
    path = tmp_path / "0.spent"

    def signature(number):
        return f"{number} {number:064x}"

    spent = UsedSignatures(60, now=lambda: now[0], path=path)
    for number in range(20_000):
        now[0] += 0.01
        spent.add(signature(number))
    assert path.stat().st_size < 2_500_000
    assert signature(19_999) in UsedSignatures(60, now=lambda: now[0], path=tmp_path / "1.spent", others=[path])
    now[0] += 30
    successor = UsedSignatures(60, now=lambda: now[0], path=path)
    assert signature(19_999) in successor
    assert path.stat().st_mode & 0o077 == 0
    now[0] += 60
    successor.add(signature(20_000))
    assert signature(19_999) not in successor
    spent.close()
    successor.close()


def test_a_start_that_cannot_be_noted_as_used_is_refused_and_may_be_sent_again(tmp_path):
    auth = Auth(secret="S", now=lambda: 100.0, path=tmp_path / "0.spent")
    headers, step = request(100_000, step="0")
    assert auth.check(headers, step) is None
    kept, nowhere = os.dup(auth._starts._fd), os.open("/dev/full", os.O_WRONLY)
    os.dup2(nowhere, auth._starts._fd)
    assert auth.spend_start(step).code == "overloaded"
    os.dup2(kept, auth._starts._fd)
    assert auth.spend_start(step) is None
    assert auth.spend_start(step).code == "replayed"
    for fd in (kept, nowhere):
        os.close(fd)
    auth.close()


def test_every_digit_of_a_signature_counts():
    auth = Auth(secret="S", now=lambda: 100.0)
    headers, step = request(100_000, step="0")
    token = headers[b"token"]
    assert len(token) == 64
    for at in range(len(token)):
        other = b"0" if token[at : at + 1] != b"0" else b"1"
        forged = {**headers, b"token": token[:at] + other + token[at + 1 :]}
        assert code(auth, forged, step) == "unauthorised", f"digit {at} was not looked at"
    for cut in (b"", token[:8], token[:-1], token + b"0"):
        assert code(auth, {**headers, b"token": cut}, step) == "unauthorised"
    assert code(auth, headers, step) is None


def test_every_letter_of_a_bearer_token_counts():
    auth = Auth(token="open sesame, please")
    step = Step("start", "a", b"")
    for wrong in (b"", b"open sesame", b"open sesame, pleasf", b"open sesame, please!", b"npen sesame, please"):
        assert code(auth, {b"authorization": b"Bearer " + wrong}, step) == "unauthorised"
    assert code(auth, {b"authorization": b"Basic open sesame, please"}, step) == "unauthorised"
    assert code(auth, {}, step) == "unauthorised"
    assert code(auth, {b"authorization": b"bearer open sesame, please"}, step) is None
