"""Rules on paths and methods, and on what can be read by GET."""

from __future__ import annotations

from ludus.gateway.conformance.rule import HTTP, Rules
from ludus.gateway.conformance.subject import Subject, expect
from ludus.gateway.conformance.wire import Failed, Reply, Skipped, request_bytes

__all__ = ["RULES"]

RULES = Rules(doors=HTTP)
_SESSION_KEYS = ("session", "run", "worker", "age_s", "idle_s", "step", "versions")


@RULES.add("healthz")
def healthz(subject: Subject) -> None:
    """GET /healthz is answered 200, to everybody."""
    expect(subject.get("/healthz", token=""), 200, what="/healthz")


@RULES.add("readyz")
def readyz(subject: Subject) -> None:
    """GET /readyz is answered 200 or 503, to everybody."""
    reply = subject.get("/readyz", token="")
    if reply.status != 200:
        expect(reply, 503, what="/readyz")


@RULES.add("targets")
def targets(subject: Subject) -> None:
    """A path may have a query, and may be given as the whole address."""
    play = subject.play()
    place = subject.place
    for number, path in enumerate((f"{place.path}?trace=1", f"http://{place.authority}{place.path}")):
        headers = subject.signed(play.headers("start" if number == 0 else "end", number), subject.settings.data)
        with subject.connect() as wire:
            wire.send(request_bytes(place, headers, subject.settings.data, path=path))
            expect(wire.read(), 200, what=f"POST {path}")


@RULES.add("metrics")
def metrics(subject: Subject) -> None:
    """GET /metrics is Prometheus' text format."""
    reply = _guarded(subject, "/metrics")
    if reply.content_type != "text/plain":
        raise Failed(f"its type is {reply.content_type!r}, not text/plain")
    for line in reply.body.decode("utf-8", "replace").splitlines():
        words = line.rsplit(" ", 1)
        if line and not line.startswith("#") and (len(words) != 2 or not _is_number(words[1])):
            raise Failed(f"this line is no sample: {line[:120]!r}")


@RULES.add("sessions")
def sessions(subject: Subject) -> None:
    """GET /sessions lists live sessions, with their fields, and counts them."""
    _guarded(subject, "/sessions")
    play = subject.play(run="first")
    play.start()
    expect(play.step("tick", 1), 200, what="a tick")
    content = _guarded(subject, "/sessions").json()
    if content.get("num_sessions") != len(content.get("sessions", ())):
        raise Failed(f"num_sessions is {content.get('num_sessions')}; {len(content.get('sessions', ()))} are listed")
    found = [each for each in content["sessions"] if each.get("session") == play.session]
    if len(found) != 1:
        raise Failed(f"a live session is listed {len(found)} times")
    missing = [key for key in _SESSION_KEYS if key not in found[0]]
    if missing:
        raise Failed(f"a session is listed without {', '.join(missing)}")
    if (found[0]["run"], found[0]["step"]) != ("first", 1):
        raise Failed(f"run and step are {found[0]['run']!r} and {found[0]['step']}, not 'first' and 1")
    play.end(2)
    after = _guarded(subject, "/sessions").json()["sessions"]
    if any(each["session"] == play.session for each in after):
        raise Failed("a session that has ended is still listed")


@RULES.add("openapi")
def openapi(subject: Subject) -> None:
    """GET /openapi.json describes /step, to everybody."""
    content = expect(subject.get("/openapi.json", token=""), 200, what="/openapi.json").json()
    if "/step" not in content.get("paths", {}):
        raise Failed(f"it describes {', '.join(content.get('paths', {})) or 'no path'}, and not /step")


@RULES.add("head")
def head(subject: Subject) -> None:
    """HEAD, taken or refused, is answered without a body, so that the next answer is found."""
    with subject.connect() as wire:
        for path in ("/healthz", "/step"):
            wire.send(request_bytes(subject.place, {}, method="HEAD", path=path))
            wire.read(is_head=True)
            wire.send(request_bytes(subject.place, {}, method="GET", path="/healthz"))
            expect(wire.read(), 200, what=f"what is asked after HEAD {path}")


@RULES.add("not_found")
def not_found(subject: Subject) -> None:
    """Another path is answered 404 not_found."""
    expect(subject.get("/no/such/path"), 404, "not_found", what="/no/such/path")


@RULES.add("method")
def method(subject: Subject) -> None:
    """Another method is answered 405 method_not_allowed, and Allow names the right one."""
    for path, wrong, right in (("/step", "GET", "POST"), ("/step", "PUT", "POST"), ("/healthz", "POST", "GET")):
        reply = expect(subject.get(path, method=wrong), 405, "method_not_allowed", what=f"{wrong} {path}")
        if right not in reply.headers.get("allow", ""):
            raise Failed(f"{wrong} {path}: Allow is {reply.headers.get('allow')!r}, not {right}")


def _guarded(subject: Subject, path: str) -> Reply:
    reply = subject.get(path)
    if reply.status == 401 and subject.settings.token is None:
        raise Skipped(f"{path} needs a bearer token, and none was given")
    return expect(reply, 200, what=path)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
