"""Rules on who may call, for a server with a token or a secret."""

from __future__ import annotations

import time

from ludus.gateway.conformance.rule import HTTP, Rules
from ludus.gateway.conformance.subject import Subject, expect
from ludus.gateway.conformance.wire import Failed, Reply, Skipped, request_bytes

__all__ = ["RULES"]

RULES = Rules()
_CLOCK_WINDOW_S = 30


@RULES.add("token")
def token(subject: Subject) -> None:
    """Without the right bearer token a step is answered 401 unauthorised."""
    if subject.settings.token is None:
        raise Skipped("no token was given")
    headers = subject.play().headers("start", 0)
    wrong = {
        "no token": {},
        "a wrong token": {"authorization": f"Bearer {subject.settings.token}x"},
        "an empty token": {"authorization": "Bearer "},
        "a token of another kind": {"authorization": f"Basic {subject.settings.token}"},
    }
    for what, extra in wrong.items():
        expect(_bare(subject, {**headers, **extra}), 401, "unauthorised", what=f"start with {what}")
    expect(_bare(subject, {**headers, **{"authorization": f"bearer {subject.settings.token}"}}), 200, what="bearer")
    subject.post({**headers, "step_kind": "end", "step": "1"})


@RULES.add("token_paths", doors=HTTP)
def token_paths(subject: Subject) -> None:
    """With a token, /sessions and /metrics need it; /healthz and /readyz do not."""
    if subject.settings.token is None:
        raise Skipped("no token was given")
    for path in ("/sessions", "/metrics"):
        expect(subject.get(path, token=""), 401, "unauthorised", what=f"{path} without a token")
        expect(subject.get(path), 200, what=f"{path} with the token")
    expect(subject.get("/healthz", token=""), 200, what="/healthz without a token")


@RULES.add("signature")
def signature(subject: Subject) -> None:
    """A signature that is missing or wrong, or is of another request, is answered 401 unauthorised."""
    _need_secret(subject)
    data = subject.settings.data
    play = subject.play()
    good = subject.with_signature(play.headers("start", 0), data)
    wrong = {
        "no signature": play.headers("start", 0),
        "no key": {name: value for name, value in good.items() if name != "key"},
        "no time": {name: value for name, value in good.items() if name != "time"},
        "no token": {name: value for name, value in good.items() if name != "token"},
        "a wrong token": {**good, "token": "0" * 64},
        "another key": {**good, "key": "somebody"},
        "another time": {**good, "time": str(int(good["time"]) + 1)},
        "another session": {**good, "session": f"{play.session}-other"},
        "another kind": {**good, "step_kind": "tick"},
        "no number": {name: value for name, value in good.items() if name != "step"},
        "a time that is no number": {**good, "time": "now"},
        "a run that is not signed": {**good, "run": "other"},
        "a model that is not signed": {**good, "model": "other"},
        "a version that is not signed": {**good, "version": "latest"},
        "a deadline that is not signed": {**good, "deadline_ms": "60000"},
    }
    for what, headers in wrong.items():
        if subject.can_send(headers):
            expect(_bare(subject, headers), 401, "unauthorised", what=f"start with {what}")
    expect(_bare(subject, good, data + b"!"), 401, "unauthorised", what="start with another body")
    expect(_bare(subject, good), 200, what="start with the right signature")
    expect(_bare(subject, {**good, "run": "other"}), 401, "unauthorised", what="the start again with another run")
    _bare(subject, subject.with_signature(play.headers("end", 1), data))


@RULES.add("signature_time")
def signature_time(subject: Subject) -> None:
    """A signature's time may be 30 s off the server's clock, and no more."""
    _need_secret(subject)
    play = subject.play()
    now = int(time.time() * 1e3)
    for off_s in (-_CLOCK_WINDOW_S - 15, _CLOCK_WINDOW_S + 15):
        late = subject.with_signature(play.headers("start", 0), subject.settings.data, time_ms=now + off_s * 1000)
        expect(_bare(subject, late), 401, "unauthorised", what=f"a time that is {off_s} s off")
    near = subject.with_signature(play.headers("start", 0), subject.settings.data, time_ms=now - 10_000)
    expect(_bare(subject, near), 200, what="a time that is 10 s off")
    _bare(subject, subject.with_signature(play.headers("end", 1), subject.settings.data))


@RULES.add("replayed")
def replayed(subject: Subject) -> None:
    """A signature is good once, except for a numbered step, which may be repeated as it is."""
    _need_secret(subject)
    data = subject.settings.data
    play = subject.play()
    start = subject.with_signature(play.headers("start", 0), data)
    first = expect(_bare(subject, start), 200, what="a signed start")
    again = expect(_bare(subject, start), 200, what="the signed start, repeated as it is")
    if again.body != first.body:
        raise Failed("the signed start, repeated as it is, gets other bytes")
    _bare(subject, subject.with_signature(play.headers("end", 1), data))
    play = subject.play()
    expect(_bare(subject, subject.with_signature(play.headers("start"), data)), 200, what="a start without a number")
    tick = subject.with_signature(play.headers("tick"), data)
    expect(_bare(subject, tick), 200, what="a signed tick without a number")
    expect(_bare(subject, tick), 401, "replayed", what="the signed tick without a number, repeated as it is")
    _bare(subject, subject.with_signature(play.headers("end"), data))


@RULES.add("replayed_paths", doors=HTTP)
def replayed_paths(subject: Subject) -> None:
    """With a secret alone, /sessions is signed like a stateless tick without a body, each time again."""
    _need_secret(subject)
    page = subject.with_signature({}, b"")
    expect(_page(subject, page), 200, what="/sessions with a signature")
    expect(_page(subject, page), 401, "replayed", what="/sessions with the same signature")


@RULES.add("replayed_episode")
def replayed_episode(subject: Subject) -> None:
    """A signed start begins one session, and a session takes no step that was signed before its start."""
    _need_secret(subject)
    data = subject.settings.data
    play = subject.play()
    steps = (("start", 0), ("tick", 1), ("end", 2))
    recorded = [subject.with_signature(play.headers(kind, number), data) for kind, number in steps]
    for (kind, _number), headers in zip(steps, recorded, strict=True):
        expect(_bare(subject, headers), 200, what=f"a signed {kind}")
    expect(_bare(subject, recorded[0]), 401, "replayed", what="the same start, after the session has ended")
    expect(_bare(subject, subject.with_signature(play.headers("start", 0), data)), 200, what="a start signed again")
    expect(_bare(subject, recorded[1]), 401, "replayed", what="a tick that was signed before the start")
    expect(_bare(subject, recorded[2]), 401, "replayed", what="an end that was signed before the start")
    expect(_bare(subject, subject.with_signature(play.headers("end", 1), data)), 200, what="an end")


def _need_secret(subject: Subject) -> None:
    if subject.settings.secret is None:
        raise Skipped("no secret was given")


def _bare(subject: Subject, headers: dict[str, str], data: bytes | None = None) -> Reply:
    """A step with these headers and no others."""
    body = subject.settings.data if data is None else data
    return subject.send(headers, body)


def _page(subject: Subject, headers: dict[str, str]) -> Reply:
    """What `/sessions` answers to these headers and no others."""
    with subject.connect() as wire:
        wire.send(request_bytes(subject.place, headers, method="GET", path="/sessions"))
        return wire.read()
