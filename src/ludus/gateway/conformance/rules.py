"""All rules, and `check`, which examines a server by them."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Collection
from typing import Any

from ludus import errors
from ludus.gateway.conformance import access, malformed, numbers, over_grpc, paths, requests, sessions
from ludus.gateway.conformance.report import Finding, Outcome, Report
from ludus.gateway.conformance.rule import Rule, Rules
from ludus.gateway.conformance.subject import Settings, Subject
from ludus.gateway.conformance.wire import Failed, Skipped

__all__ = ["RULES", "check"]

RULES = Rules(
    rule
    for chapter in (paths, requests, numbers, sessions, access, malformed, over_grpc)
    for rule in chapter.RULES
)  # fmt: skip


def check(
    url: str,
    *,
    token: str | None = None,
    secret: str | None = None,
    only: Collection[str] = (),
    context: ssl.SSLContext | None = None,
    ca: str | None = None,
    on_finding: Callable[[Finding], None] | None = None,
    **settings: Any,
) -> Report:
    """Examine the server at `url`, by the door that it names: http(s) or grpc(s).

    `only`: the codes of the rules to check, if not all; `settings`: see `Settings`. Trusted are the certificates of
    `context` for https, those in the file `ca` for grpcs.

    Raises `Unreachable` if nothing listens there, `ConfigError` if there is no rule of a code in `only`.
    """
    unknown = set(only) - {rule.code for rule in RULES}
    if unknown:
        raise errors.ConfigError(f"there is no rule {', '.join(sorted(unknown))}; the report lists those there are")
    door = "grpc" if url.partition("://")[0] in ("grpc", "grpcs") else "http"
    known = Settings(token=token, secret=secret, **settings)
    if door == "grpc":
        from ludus.gateway.grpc.subject import GrpcSubject  # it brings grpc

        subject: Subject = GrpcSubject(url, known, ca=ca)
    else:
        subject = Subject(url, known, context=context)
    try:
        subject.reach()
    except OSError as error:
        raise errors.Unreachable(
            f"nothing answers at {url}: {error}. Is the server up, and is this its port?"
        ) from None
    findings = []
    for rule in RULES:
        if door in rule.doors and (not only or rule.code in only):
            findings.append(_examine(rule, subject))
            if on_finding is not None:
                on_finding(findings[-1])
    return Report(url=url, findings=tuple(findings))


def _examine(rule: Rule, subject: Subject) -> Finding:
    began = time.monotonic()
    outcome: Outcome = "pass"
    seen = ""
    try:
        rule.examine(subject)
    except Skipped as why:
        outcome, seen = "skip", str(why)
    except Failed as why:
        outcome, seen = "fail", str(why)
    except OSError as error:
        outcome, seen = "fail", f"the connection failed: {error}"
    seconds = round(time.monotonic() - began, 4)
    return Finding(code=rule.code, rule=rule.sentence, outcome=outcome, seen=seen, seconds=seconds)
