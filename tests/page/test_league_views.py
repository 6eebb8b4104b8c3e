"""What the page shows of a league, without a browser."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ludus.league.league import League, LeagueSettings
from ludus.league.players import Player
from ludus.league.view import VIEW_FILE, write_view
from ludus.page.app import make_app
from ludus.page.site import Site

from .requests import ask

URL = "/trials/league/payoff"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.close()


def write(project: Path, *, num_sides: int = 2) -> Path:
    """`main` wins where it is first, and half of its games elsewhere; nobody has met `new`."""
    league = League(LeagueSettings(num_sides=num_sides))
    names = ["main", *(f"other-{number}" for number in range(1, num_sides))]
    for name in (*names, "new"):
        league.add(Player(name, role="bot", model="random"))
    for turn in range(8):
        sides = names[turn % num_sides :] + names[: turn % num_sides]
        wins = sides[0] == "main" or turn % 4 == 1
        scores = [float(name == "main") if wins else float(name != "main") for name in sides]
        league.report(league.begin(league.choose_named(sides)).id, scores)
    path = project / "league" / "league" / VIEW_FILE
    path.parent.mkdir(parents=True)
    for config in (path.parent / "config.json", path.parent.parent / "config.json"):
        config.write_text(json.dumps({"train": {"env": "board:tic_tac_toe", "algorithm": "ppo"}}))
    write_view(path, league)
    return path


def cells(text: str) -> dict[tuple[str, str], str]:
    """(player, opponent) → per cent won, of those that have met."""
    found = re.findall(r'title="(\S+) won [^"]* against ([^"]+)">([^<]+)<', text)
    return {(one, two): per_cent for one, two, per_cent in found}


def links(text: str) -> dict[str, str]:
    """Of the choice of a side: text → address; one that is chosen is marked."""
    nav = re.search(r'<nav id="sides".*?</nav>', text)
    assert nav is not None
    found = re.findall(r'<a href="([^"]*)"( aria-current="true")?>([^<]*)</a>', nav[0])
    return {f"{name}{' *' * bool(chosen)}": html.unescape(url) for url, chosen, name in found}


def test_a_payoff_is_shown_over_both_sides_or_of_one_by_a_link(site: Site) -> None:
    write(site.project)
    app = make_app(site)
    both = ask(app, f"{URL}?player=other-1").text
    assert cells(both) == {("main", "other-1"): "75", ("other-1", "main"): "25"}
    assert list(links(both)) == ["both sides *", "as first", "as second"]
    first = ask(app, links(both)["as first"]).text
    assert cells(first) == {("main", "other-1"): "100", ("other-1", "main"): "50"}
    assert list(links(first)) == ["both sides", "as first *", "as second"]
    second = ask(app, links(first)["as second"]).text
    assert cells(second) == {("main", "other-1"): "50", ("other-1", "main"): "0"}
    assert "other-1 against the others" in second, "the player that was chosen stays"
    assert cells(ask(app, links(second)["both sides"]).text) == cells(both)
    assert cells(ask(app, f"{URL}?side=7").text) == cells(both)


def test_a_chosen_player_has_its_results_by_side_in_words(site: Site) -> None:
    write(site.project)
    text = ask(make_app(site), f"{URL}?player=main").text
    row = re.search(r"<tr><th scope=\"row\">other-1</th>(.*?)</tr>", text)
    assert row is not None
    assert re.findall(r">([^<]+)</td>", row[1]) == ["75.0%", "100.0%", "50.0%", "8"]
    assert "It has met nobody yet." in ask(make_app(site), f"{URL}?player=new").text


def test_sides_of_a_game_of_more_than_two_are_numbered(site: Site) -> None:
    write(site.project, num_sides=4)
    assert list(links(ask(make_app(site), URL).text)) == [
        "all sides *",
        "as side 0",
        "as side 1",
        "as side 2",
        "as side 3",
    ]


def test_a_view_from_before_there_were_sides_is_shown_without_them(site: Site) -> None:
    path = write(site.project)
    view = json.loads(path.read_text())
    del view["payoff"]["by_side"]
    path.write_text(json.dumps(view))
    text = ask(make_app(site), f"{URL}?side=0&player=main").text
    assert cells(text)["main", "other-1"] == "75"
    assert "as first" not in text
