from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ludus import errors
from ludus.experiment import results
from ludus.page.app import make_app
from ludus.page.site import Site
from ludus.page.view import View
from ludus.page.views import registry
from ludus.page.views.registry import VIEWS

from .leagues import make_league
from .requests import ask

PART = {"x_ludus_part": "1"}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.close()


def make_trial(project: Path, name: str = "one") -> Path:
    folder = project / name
    (folder / "league").mkdir(parents=True)
    (folder / "league" / "config.json").write_text("{}")
    (folder / "config.json").write_text(json.dumps({"train": {"env": "board:tic_tac_toe", "algorithm": "ppo"}}))
    return folder


def show(monkeypatch: pytest.MonkeyPatch, build, **actions) -> None:
    view = View(name="mine", title="Mine", applies=lambda folder: True, build=build, actions=actions)
    monkeypatch.setattr(registry, "VIEWS", (view,))


def test_a_project_without_trials_says_how_to_start_one(site: Site) -> None:
    answer = ask(make_app(site), "/")
    assert answer.status == 200
    assert "There are no trials yet" in answer.text
    assert ask(make_app(site), "/newest").headers["location"] == "/"


def test_a_trial_opens_with_its_first_view(site: Site) -> None:
    make_trial(site.project)
    app = make_app(site)
    assert "one" in ask(app, "/").text
    assert ask(app, "/newest").headers["location"] == "/trials/one"
    assert ask(app, "/trials/one").headers["location"] == "/trials/one/standings"


def test_a_league_that_has_not_played_and_a_torn_file_say_so(site: Site) -> None:
    folder = make_trial(site.project)
    app = make_app(site)
    for content in (None, b"", b'{"players": [', b"[]"):
        if content is not None:
            (folder / "league" / "view.json").write_bytes(content)
        for view in ("standings", "payoff", "ratings", "lineage", "matches"):
            answer = ask(app, f"/trials/one/{view}")
            assert answer.status == 200
            assert "has played no match" in answer.text


def test_where_learners_were_reset_their_lines_are_marked(site: Site) -> None:
    make_league(site.project, "one", rounds=3, matches=2)
    text = ask(make_app(site), "/trials/one/lineage", **PART).text
    resets = [int(num) for num in re.findall(r"main exploiter, at step \w+, after reset (\d)", text)]
    assert set(resets) == {1}, "the learner, and no snapshot of before"
    assert "main, at step" in text
    lines = re.findall(r'<line class="([^"]+)"', text)
    num_reset = sum(kind.startswith("reset") for kind in lines)
    assert 0 < num_reset < len(lines), "exploiters are reset, main agents are not"


@pytest.mark.parametrize(
    "path", ["/trials/nowhere", "/trials/nowhere/standings", "/trials/%2e%2e/standings", "/nothing"]
)
def test_what_is_not_there_is_a_page_that_says_so(site: Site, path: str) -> None:
    answer = ask(make_app(site), path)
    assert answer.status == 404
    assert "<html" in answer.text


def test_a_trial_that_is_removed_while_it_is_looked_at_says_so(site: Site) -> None:
    folder = make_trial(site.project)
    app = make_app(site)
    assert ask(app, "/trials/one/standings", **PART).status == 200
    shutil.rmtree(folder)
    answer = ask(app, "/trials/one/standings", **PART)
    assert answer.status == 404
    assert "it was removed" in answer.text
    assert "<html" not in answer.text


DEEP = b"[" * 100_000


@pytest.mark.parametrize("name", ["trial.json", "config.json", "result.json", "metrics.jsonl", "league/view.json"])
@pytest.mark.parametrize("content", [None, DEEP, b"\xff\xfe\x00", b'{"train": {"steps": "many"}, "steps": [1]}'])
def test_a_trial_with_damaged_files_hides_no_other_one(site: Site, name: str, content: bytes | None) -> None:
    """Without content it is a FIFO: opening it would wait for a writer."""
    make_trial(site.project, "intact")
    bad = make_trial(site.project, "bad") / name
    bad.unlink(missing_ok=True)
    os.mkfifo(bad) if content is None else bad.write_bytes(content)
    app = make_app(site)
    assert "/trials/intact" in ask(app, "/").text
    for path in ("/compare?trial=bad&trial=intact", "/trials/bad", *(f"/trials/bad/{view.name}" for view in VIEWS)):
        assert ask(app, path).status in (200, 303, 404)


def test_a_trial_that_cannot_be_read_is_a_row_that_says_so(site: Site, monkeypatch: pytest.MonkeyPatch, caplog) -> None:
    make_trial(site.project)
    monkeypatch.setattr(results, "summarise", lambda folder: 1 // 0)
    for _ in range(2):
        assert "damaged" in ask(make_app(site), "/").text
    assert caplog.text.count("ZeroDivisionError") == 1


@pytest.mark.parametrize(
    "path", [f"/trials/{'a' * 300}", "/trials/a\0b/standings", f"/compare?trial={'a' * 300}&trial=%00"]
)
def test_what_cannot_be_the_name_of_a_folder_is_not_there(site: Site, path: str) -> None:
    assert ask(make_app(site), path).status in (200, 404)


def test_a_query_may_have_any_names(site: Site) -> None:
    make_trial(site.project)
    answer = ask(make_app(site), "/trials/one/standings?self=1&view=%2F%2Fevil.example")
    assert "/trials/one/standings?self=1&amp;view=%2F%2Fevil.example" in answer.text


def test_what_has_not_changed_is_not_sent_again(site: Site) -> None:
    make_trial(site.project)
    app = make_app(site)
    first = ask(app, "/trials/one/standings", **PART)
    again = ask(app, "/trials/one/standings", **PART, if_none_match=first.headers["etag"])
    assert (again.status, again.text) == (304, "")


def test_an_error_in_a_view_is_shown_in_its_place(site: Site, monkeypatch: pytest.MonkeyPatch, caplog) -> None:
    make_trial(site.project)

    def fails(visit):
        raise {"no": errors.ConfigError("nothing <yet>"), "bug": KeyError("x")}[visit.query["how"]]

    show(monkeypatch, fails)
    assert "nothing &lt;yet&gt;" in ask(make_app(site), "/trials/one/mine?how=no").text
    assert not caplog.records
    answer = ask(make_app(site), "/trials/one/mine?how=bug")
    assert (answer.status, "This view failed: KeyError" in answer.text) == (200, True)
    assert "KeyError" in caplog.text
    num_records = len(caplog.records)
    ask(make_app(site), "/trials/one/mine?how=bug")
    assert len(caplog.records) == num_records  # it is refreshed every second


def test_what_a_view_is_given_is_escaped(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    make_trial(site.project, "a<b>")
    show(monkeypatch, lambda visit: visit.query["say"])
    answer = ask(make_app(site), "/trials/a<b>/mine?say=%3Cscript%3E")
    assert "&lt;script&gt;" in answer.text
    assert "<b>" not in answer.text


def test_a_form_is_an_action_of_its_view(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    make_trial(site.project)
    done = []

    def do(visit, fields):
        done.append((visit.folder.name, dict(visit.query), dict(fields)))

    def refuse(visit, fields):
        raise errors.ConfigError("not now")

    show(monkeypatch, lambda visit: "", do=do, refuse=refuse)
    app = make_app(site)
    plain = ask(app, "/trials/one/mine/do/do?a=1", method="POST", form={"b": "2"})
    assert (plain.status, plain.headers["location"]) == (303, "/trials/one/mine?a=1")
    assert done == [("one", {"a": "1"}, {"b": "2"})]
    assert ask(app, "/trials/one/mine/do/do", method="POST", **PART).text == "/trials/one/mine"
    assert ask(app, "/trials/one/mine/do/refuse", method="POST", **PART)[::2] == (409, "not now")
    assert ask(app, "/trials/one/mine/do/nothing", method="POST", **PART).status == 404
    assert ask(app, "/trials/one/mine/do/do").status == 405


def test_every_view_has_a_name_of_its_own() -> None:
    names = [view.name for view in registry.VIEWS]
    assert len(set(names)) == len(names)
    assert all(name.isidentifier() for name in names)
