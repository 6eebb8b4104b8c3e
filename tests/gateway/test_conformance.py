"""The conformance kit: our gateway keeps every rule, and servers that break one are found out."""

from __future__ import annotations

import itertools
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ludus import errors
from ludus.gateway import conformance
from ludus.gateway.conformance import RULES, Finding, Report
from ludus.gateway.gateway import GatewayOptions
from ludus.gateway.grpc import wire
from ludus.gateway.http.wire import Answer
from ludus.gateway.session_core import SessionCore
from ludus.gateway.step import Outcome, Step
from ludus.gateway.thread import GatewayThread
from ludus.grpc.library import StatusCode
from ludus.testing.gateways import CountingActor, EchoActor, serving

PROTOCOL = Path(__file__).parents[2] / "docs" / "protocol.md"


def test_our_gateway_keeps_every_rule() -> None:
    with serving(CountingActor, lease_s=1.0, request_s=0.5) as url:
        report = conformance.check(url, lease_s=1.0, slow=True, request_s=0.5)
    assert report.passed, report.text
    skipped = {finding.code for finding in report.findings if finding.outcome == "skip"}
    with_access = {
        "token", "token_paths", "signature", "signature_time", "replayed", "replayed_paths", "replayed_episode",
    }  # fmt: skip
    assert skipped == {"versions", *with_access}


@pytest.mark.parametrize("access", [{"token": "T"}, {"secret": "S"}, {"token": "T", "secret": "S"}])
def test_our_gateway_keeps_every_rule_with_access_checked(access: dict[str, str]) -> None:
    with serving(EchoActor, **access) as url:
        report = conformance.check(url, **access)
    assert report.passed, report.text
    checked = {finding.code for finding in report.findings if finding.outcome == "pass"}
    assert ("token" in checked) == ("token" in access)
    assert ({"signature", "signature_time", "replayed"} <= checked) == ("secret" in access)


def test_two_workers_on_one_port_keep_every_rule_together(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = GatewayOptions(port=port, folder=tmp_path, secret="S", token="T")
    workers = [GatewayThread(CountingActor, options, index=index, size=2) for index in range(2)]
    with workers[0] as one, workers[1]:
        report = conformance.check(one.url, token="T", secret="S")
        steps = [each.call(each.gateway.stats)["num_steps"] for each in workers]
    assert report.passed, report.text
    assert min(steps) > 0


def test_the_codes_that_the_protocol_names_are_rules() -> None:
    named = set(re.findall(r"\[`(\w+)`\]", PROTOCOL.read_text()))
    assert named
    assert named <= {rule.code for rule in RULES}


def test_every_rule_has_a_code_of_its_own_and_a_sentence() -> None:
    codes = [rule.code for rule in RULES]
    assert len(codes) == len(set(codes)) >= 40
    assert all(rule.sentence for rule in RULES)


def _forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that runs repetitions again."""
    counter = itertools.count()

    def run_again(self: Any, live: Any, step: Step, done: Any) -> None:
        done(Outcome(b"%d" % next(counter)))

    monkeypatch.setattr(SessionCore, "_do_repeat", run_again)


def _lax(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that takes any number."""
    original = SessionCore.step

    def any_number(self: Any, step: Step, done: Any) -> None:
        if step.kind in ("tick", "end") and step.session in self._live:
            step.number = self._live[step.session].expected
        original(self, step, done)

    monkeypatch.setattr(SessionCore, "step", any_number)


def _ageless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that never lets a game come back."""
    monkeypatch.setattr(SessionCore, "_do_replace", SessionCore._do_already_started)


def _own_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server whose problems are of its own kind."""
    monkeypatch.setattr("ludus.gateway.http.outbox.response", _plain_response)


def _own_statuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server whose problems have the wrong status."""
    wrong = dict.fromkeys(wire.STATUSES, StatusCode.INTERNAL)
    monkeypatch.setattr(wire, "STATUSES", wrong | {"unauthorised": StatusCode.UNAUTHENTICATED})


def _plain_response(answer: Answer, keep_alive: bool) -> bytes:
    head = f"HTTP/1.1 {answer.status} X\r\ncontent-type: text/html\r\ncontent-length: {len(answer.body)}\r\n\r\n"
    return head.encode() + answer.body


@pytest.mark.parametrize(
    ("spoil", "codes"),
    [
        (_forgetful, {"repeat", "repeat_same_connection", "repeat_after_break"}),
        (_lax, {"repeat", "gap", "older"}),
        (_ageless, {"came_back"}),
        (_own_problems, {"bad_headers", "gap", "not_found", "malformed", "large_body"}),
    ],
)
def test_a_server_that_breaks_a_rule_is_found_out(
    spoil: Callable[[pytest.MonkeyPatch], None], codes: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(monkeypatch)
    with serving(CountingActor) as url:
        report = conformance.check(url, only=[*codes, "healthz"], timeout_s=2.0)
    assert {finding.code for finding in report.failed} == codes
    assert all(finding.seen for finding in report.failed)


def test_a_server_without_the_token_that_was_given_is_found_out() -> None:
    with serving(EchoActor) as url:
        report = conformance.check(url, token="T", secret="S", only=["token", "token_paths", "signature", "replayed"])
    assert {finding.code for finding in report.failed} == {"token", "token_paths", "signature", "replayed"}


def test_a_server_that_takes_no_such_data_is_reported_so() -> None:
    class Picky(EchoActor):
        def start(self, session: Any, data: bytes) -> bytes:
            if data != b"right":
                raise ValueError("I do not take that")
            return data

    with serving(Picky) as url:
        wrong = conformance.check(url, only=["repeat"])
        assert "give data that it takes" in wrong.finding("repeat").seen
        assert conformance.check(url, only=["repeat"], data=b"right").passed


def test_a_server_that_answers_nothing_is_found_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        report = conformance.check(url, only=["healthz", "repeat"], timeout_s=0.2)
    assert len(report.failed) == 2
    assert "no answer in 0.2 s" in report.finding("healthz").seen


def test_nothing_there_is_an_error_of_its_own() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with pytest.raises(errors.Unreachable):
        conformance.check(f"http://127.0.0.1:{port}")


def test_a_rule_that_there_is_not_is_an_error() -> None:
    with pytest.raises(errors.ConfigError, match="no rule nonsense"):
        conformance.check("http://127.0.0.1:1", only=["nonsense"])


def test_a_report_counts_and_can_be_read_by_people_and_programs() -> None:
    findings = [
        Finding(code="one", rule="the first", outcome="pass"),
        Finding(code="two", rule="the second", outcome="fail", seen="something else"),
        Finding(code="three", rule="the third", outcome="skip", seen="not here"),
    ]
    report = Report(url="http://x", findings=findings)
    assert not report.passed
    assert [finding.code for finding in report.failed] == ["two"]
    assert "FAIL  two    the second" in report.text
    assert "1 passed, 1 failed, 1 skipped" in report.text
    assert report.to_json()["counts"] == {"pass": 1, "fail": 1, "skip": 1}
    with pytest.raises(KeyError):
        report.finding("four")


# --- over gRPC


def test_our_grpc_door_keeps_every_rule_that_is_not_of_http() -> None:
    with serving(CountingActor, grpc_port=0, lease_s=1.0) as url:
        report = conformance.check(url.grpc, lease_s=1.0)
    assert report.passed, report.text
    assert {finding.code for finding in report.findings} == {rule.code for rule in RULES if "grpc" in rule.doors}
    skipped = {finding.code for finding in report.findings if finding.outcome == "skip"}
    assert skipped == {"versions", "token", "signature", "signature_time", "replayed", "replayed_episode"}


@pytest.mark.parametrize("access", [{"token": "T"}, {"secret": "S"}, {"token": "T", "secret": "S"}])
def test_our_grpc_door_keeps_every_rule_with_access_checked(access: dict[str, str]) -> None:
    with serving(EchoActor, grpc_port=0, **access) as url:
        report = conformance.check(url.grpc, **access)
    assert report.passed, report.text
    checked = {finding.code for finding in report.findings if finding.outcome == "pass"}
    assert ("token" in checked) == ("token" in access)
    assert ({"signature", "signature_time", "replayed", "replayed_episode"} <= checked) == ("secret" in access)


@pytest.mark.parametrize(
    ("spoil", "codes"),
    [
        (_forgetful, {"repeat", "repeat_same_connection", "repeat_after_break", "grpc_stream_and_calls"}),
        (_lax, {"repeat", "gap", "older"}),
        (_ageless, {"came_back"}),
        (_own_statuses, {"bad_headers", "gap"}),
    ],
)
def test_a_grpc_server_that_breaks_a_rule_is_found_out(
    spoil: Callable[[pytest.MonkeyPatch], None], codes: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(monkeypatch)
    with serving(CountingActor, grpc_port=0) as url:
        report = conformance.check(url.grpc, only=[*codes, "grpc_health"], timeout_s=2.0)
    assert {finding.code for finding in report.failed} == codes
    assert all(finding.seen for finding in report.failed)


def test_a_grpc_server_without_the_token_that_was_given_is_found_out() -> None:
    with serving(EchoActor, grpc_port=0) as url:
        report = conformance.check(url.grpc, token="T", secret="S", only=["token", "signature", "replayed"])
    assert {finding.code for finding in report.failed} == {"token", "signature", "replayed"}


def test_nothing_there_is_an_error_of_its_own_over_grpc_too() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with pytest.raises(errors.Unreachable):
        conformance.check(f"grpc://127.0.0.1:{port}")
