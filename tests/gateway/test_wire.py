"""Outcomes as HTTP has them, and steps as they come in headers."""

import json
import re
from pathlib import Path

import pytest

from ludus.gateway.http.wire import PROBLEMS, answer_of, head_of, parse_step, response
from ludus.gateway.session import Session
from ludus.gateway.step import BadStep, Outcome

PROTOCOL = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text()


def test_the_page_of_the_protocol_has_every_code_with_its_status():
    documented = re.findall(r"^\| `(\w+)` \| (\d{3}) \|", PROTOCOL, re.MULTILINE)
    assert documented == [(code, str(status)) for code, (status, _title) in PROBLEMS.items()]


@pytest.mark.parametrize("code", PROBLEMS)
def test_a_refusal_is_a_problem_document_with_its_members(code):
    answer = answer_of(Outcome.refused(code, "so it is", retry_after_s=3, expected=7))
    status, title = PROBLEMS[code]
    assert (answer.status, answer.headers) == (status, {b"retry-after": b"3"})
    assert json.loads(answer.body) == {
        "type": f"urn:ludus:problem:{code}", "code": code, "title": title, "status": status, "detail": "so it is",
        "expected": 7,
    }  # fmt: skip


def test_only_who_is_not_authorised_is_challenged():
    challenged = {code for code in PROBLEMS if b"www-authenticate" in answer_of(Outcome.refused(code, "")).headers}
    assert challenged == {"unauthorised"}


def test_an_answer_names_its_session_and_the_versions_that_it_was_made_by():
    session = Session("a")
    session.pin("m", 7)
    outcome = Outcome(b"xyz", session)
    before = response(answer_of(outcome), b"")
    assert before == (
        b"HTTP/1.1 200 OK\r\ncontent-type: application/octet-stream\r\nsession: a\r\nversion: m=7\r\n"
        b"content-length: 3\r\n\r\nxyz"
    )
    session.pin("n", 1)
    session.pin("m", 8)
    assert response(answer_of(outcome), b"") == before, "a repetition gets the same bytes"
    assert head_of(outcome) + b"3\r\n\r\nxyz" == before
    assert b"version: m=8,n=1\r\n" in head_of(Outcome(b"", session))
    assert b"session" not in head_of(Outcome(b"xyz"))


def test_outcomes_come_whole_to_another_worker():
    session = Session("a")
    session.pin("m", 7)
    for outcome in (
        Outcome(b"x", session),
        Outcome(b"x"),
        Outcome.refused("overloaded", "why", retry_after_s=2, id="i"),
    ):
        same = Outcome.from_message(outcome.to_message())
        assert response(answer_of(same), b"close") == response(answer_of(outcome), b"close")
        assert same.to_message() == outcome.to_message()


@pytest.mark.parametrize("name", [b"step_kind", b"step-kind", b"deadline_ms", b"game_id"])
@pytest.mark.parametrize("more", [{}, {b"accept": b"*/*"}])
def test_a_header_that_is_empty_is_not_one_that_is_absent(name, more):
    with pytest.raises(BadStep):
        parse_step({b"host": b"h", b"content-length": b"0", name: b"", **more}, b"")
