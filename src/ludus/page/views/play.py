"""The board to play on: choose a player and a side, then click cells, or use the keys."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from pathlib import Path

import htpy as h
from htpy import Node

from ludus.errors import ConfigError
from ludus.page.board_game import BoardGame
from ludus.page.frame import note
from ludus.page.opponents import board_game_of
from ludus.page.tables import Phase, Table, Tables
from ludus.page.view import View, Visit

__all__ = ["VIEW"]

_SOON_S = 0.2
_SEARCHES = (0, 50, 200, 800)
_SIDES = {"0": "first", "1": "second", "any": "any"}
_NAME = re.compile(r"[\w .@-]{1,40}")
_MOST_KEYS = 9
_MOST_DIGITS = 9


def build(visit: Visit) -> Node:
    id = visit.query.get("game")
    if id is None:
        return _form(visit)
    table = visit.site.part(Tables).find(id)
    if table is None or table.folder != visit.folder:
        return [
            note("This game is not there any more: it was left for too long, or the page was restarted."),
            _form(visit),
        ]
    with table.lock:
        return _table(visit, table)


def _form(visit: Visit) -> Node:
    listed = visit.site.part(Tables).opponents(visit.folder).listed()
    if not listed:
        return note("There is nobody to play against yet.")
    given = visit.query
    has_networks = any(player.role != "bot" for player, _ in listed)
    return h.form("#start", method="post", action=visit.do("start"), class_="settings", data_keep="start")[
        _field("Play against", "opponent", {player.name: f"{player.name} ({what})" for player, what in listed}, given),
        _field("You move", "side", _SIDES, given),
        _field("It searches", "search", {str(num): f"{num} positions a move" if num else "not at all"
                                         for num in _SEARCHES}, given) if has_networks else None,
        h.div[h.label(for_="person")["Your name"],
              h.input("#person", name="person", value=given.get("person", "guest"), required=True, maxlength="40")],
        h.button(class_="primary")["Start"],
    ]  # fmt: skip


def _field(label: str, name: str, options: Mapping[str, str], given: Mapping[str, str]) -> Node:
    return h.div[
        h.label(for_=name)[label],
        h.select(f"#{name}", name=name)[
            (h.option(value=value, selected=given.get(name) == value)[text] for value, text in options.items())
        ],
    ]


def _table(visit: Visit, table: Table) -> Node:
    waits = table.is_counting or table.phase in (Phase.SETTING_UP, Phase.THINKING)
    return h.div("#table", data_soon=str(_SOON_S) if waits else None)[
        h.p(class_="players")[
            _seat(table, 0),
            " against ",
            _seat(table, 1),
        ],
        h.p("#turn", role="status", class_=f"turn {table.phase.name.lower()}")[_turn(table)],
        _board(visit, table.game, is_open=table.phase is Phase.PLAYING) if table.game is not None else None,
        h.p(class_="quiet")[_keys(table.game)] if table.phase is Phase.PLAYING and table.game is not None else None,
        _after(visit, table),
    ]


def _seat(table: Table, side: int) -> Node:
    name = table.person if side == table.side else table.opponent
    return [h.span(class_=f"disc p{side}", aria_hidden="true"), f"{name}{' (you)' if side == table.side else ''}"]


def _turn(table: Table) -> str:
    match table.phase:
        case Phase.SETTING_UP:
            return f"Setting up the board for {table.opponent} …"
        case Phase.THINKING:
            return f"{table.opponent} is thinking …"
        case Phase.PLAYING:
            return "Your turn."
        case Phase.FAILED:
            return f"The game cannot go on: {table.problem}"
        case Phase.OVER:
            assert table.game is not None
            assert table.game.rewards is not None
            score = table.game.rewards[table.side]
            result = "You won" if score > 0 else "You lost" if score < 0 else "A draw"
            record = "Counting the result …" if table.is_counting else table.record
            return f"{result} after {table.game.num_moves} moves. {record}".strip()


def _board(visit: Visit, game: BoardGame, *, is_open: bool) -> Node:
    """Every cell is a button; of the cells that mean the same move one is in the order of Tab."""
    cells, actions, legal = game.cells, game.rules.cell_actions, game.legal
    height, width = cells.shape
    first_of: dict[int, tuple[int, int]] = {}
    for row in range(height):
        for column in range(width):
            first_of.setdefault(int(actions[row, column]), (row, column))
    has_keys = game.rules.num_actions <= _MOST_KEYS

    def cell(row: int, column: int) -> Node:
        action, piece = int(actions[row, column]), int(cells[row, column])
        is_legal = is_open and action >= 0 and bool(legal[action])
        is_first = first_of[action] == (row, column)
        owner = "empty" if not piece else "yours" if piece - 1 == game.human else "theirs"
        is_last = bool(game.last_cells[row, column])
        return h.button(
            f"#cell-{row}-{column}",
            class_=f"cell v{piece}{' last' if is_last else ''}",
            name="action",
            value=str(action),
            aria_disabled=None if is_legal else "true",  # not `disabled`, which would lose the focus
            tabindex=None if is_first else "-1",
            aria_label=f"row {row + 1}, column {column + 1}: {owner}{', the last move' if is_last else ''}",
            data_key=str(action + 1) if has_keys and is_first and action >= 0 else None,
        )

    return h.form(
        "#board", class_=f"board w{min(width, 20)}", method="post", action=visit.do("move"), data_width=str(width),
        aria_label="board",
    )[((cell(row, column) for column in range(width)) for row in range(height))]  # fmt: skip


def _keys(game: BoardGame) -> str:
    if game.rules.num_actions > _MOST_KEYS:
        return "Click a cell, or move with the arrow keys and press Enter."
    is_column = game.rules.num_actions == game.cells.shape[1]
    what = "column" if is_column else "cell"
    return f"Click a {what}, or press its number, 1 to {game.rules.num_actions}."


def _after(visit: Visit, table: Table) -> Node:
    if table.phase not in (Phase.OVER, Phase.FAILED):
        return h.form(class_="row", method="post", action=visit.do("leave"))[h.button["Leave the game"]]
    side = table.side if table.phase is Phase.FAILED else 1 - table.side if table.side < 2 else table.side
    hidden: dict[str, object] = {
        "opponent": table.opponent,
        "side": side,
        "search": table.search,
        "person": table.person,
    }
    return h.div(class_="row")[
        h.form(method="post", action=visit.do("start"))[
            (h.input(type="hidden", name=name, value=str(value)) for name, value in hidden.items()),
            h.button(class_="primary")["Play again" if table.phase is Phase.FAILED else "Play again, other side"],
        ],
        h.a(href=visit.url(None, **hidden))["Another opponent"],
    ]


def _start(visit: Visit, fields: Mapping[str, str]) -> str:
    person, side, search = fields.get("person", "").strip(), fields.get("side", ""), fields.get("search", "0")
    if not _NAME.fullmatch(person):
        raise ConfigError("Your name has 1 to 40 letters, digits, spaces or . @ _ -")
    if side not in _SIDES:
        raise ConfigError(f"Choose who moves first: {', '.join(_SIDES.values())}.")
    if search not in map(str, _SEARCHES):
        raise ConfigError(f"A search looks at {', '.join(map(str, _SEARCHES))} positions a move.")
    table = visit.site.part(Tables).open(
        visit.folder,
        opponent=fields.get("opponent", ""),
        side=random.randrange(2) if side == "any" else int(side),
        person=person,
        search=int(search),
    )
    return visit.url(game=table.id)


def _move(visit: Visit, fields: Mapping[str, str]) -> None:
    action = fields.get("action", "")
    if not (action.isdecimal() and len(action) <= _MOST_DIGITS):
        raise ConfigError("Choose a cell.")
    visit.site.part(Tables).move(visit.query.get("game", ""), int(action))


def _leave(visit: Visit, fields: Mapping[str, str]) -> str:
    del fields
    visit.site.part(Tables).leave(visit.query.get("game", ""))
    return visit.url()


def _applies(folder: Path) -> bool:
    return board_game_of(folder) is not None


VIEW = View(
    name="play",
    title="Play",
    applies=_applies,
    build=build,
    actions={"start": _start, "move": _move, "leave": _leave},
)
