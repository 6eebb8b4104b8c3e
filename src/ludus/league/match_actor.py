"""Matches of games: a game outside plays by its own rules, and the server plays all sides that it owns.

    start   {"player": "main"}                 or {"role": "main"}: the server chooses the opponents
            {"opponent": "main-3", "own": [0], "as": "alice"}       the game plays side 0 itself, for a person say
    answer  {"match": "17", "players": ["alice", "main-3"]}         by side
    tick    {"side": 1, "obs": …, "mask": […]}                      → {"action": 3}
            {"sides": {"0": {"obs": …}, "1": {"obs": …}}}           → {"actions": {"0": 3, "1": 5}}
    end     {"scores": [1.0, -1.0]}                                 → {"counted": true}

A session that ends without scores, because the game is gone, aborts its match. Bodies are JSON or msgpack. A player
that looks ahead on the board itself (a search, `alphabeta`) cannot play: a game outside shows observations only.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
import math
import threading
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import numpy as np

from ludus import envs
from ludus.data import nest as nests
from ludus.data.nest import Nest
from ludus.errors import ConfigError, DataError, InvalidObservation, LudusError, RemoteError
from ludus.experiment.step_bodies import decode_body, expect_finite, mask_of, observation
from ludus.gateway.actor import Actor
from ludus.gateway.session import Session
from ludus.league import config as configs
from ludus.league.calls import LeagueCaller
from ludus.league.folder import FOLDER
from ludus.league.oracle import make_seats
from ludus.league.players import Player, PlayerPolicy, player_of
from ludus.league.pools import open_pool
from ludus.league.seats import NO_VERSION, GameSeats
from ludus.workers.remote import Remote

__all__ = ["MatchActor"]

_LOG = logging.getLogger(__name__)
_GUEST = "guest"
_KEEP_EVERY_S = 60.0
_MOST_TRIES = 8  # matches until one has players that are all still there
_OPENING = threading.Lock()  # sessions begin in several threads, and share what is open


class _Side:
    """A player that the server plays, in one session, by this version of its model to the end."""

    def __init__(self, player: Player, policy: PlayerPolicy, version: int) -> None:
        self.player = player
        self.policy = policy
        self.version = version  # `NO_VERSION`: a bot, or a learner that has learnt nothing yet
        spec = getattr(policy, "state_spec", None)
        self.state: Nest = nests.map(lambda leaf: None if leaf is None else leaf.allocate((1,)), spec)
        self.is_first = True


class MatchActor(Actor):
    """One match of a league for each session. `folder` is the league's trial, in which this process is a worker."""

    def __init__(self, folder: str, *, greedy: bool = False, seed: int = 0) -> None:
        self._league, self._seats, self._num_sides = _parts(folder)
        self._greedy = greedy
        self._seed = seed
        self._match: str | None = None
        self._owner = ""
        self._keep_at = 0.0
        self._sides: dict[int, _Side] = {}
        self._rng = np.random.default_rng(seed)
        self._session: Session | None = None

    async def start(self, session: Session, data: bytes) -> bytes:
        self._session = session
        self._rng = np.random.default_rng([self._seed, zlib.crc32(f"{session}/{session.run}".encode())])
        body, is_json = decode_body(data)
        own = _own_sides(body)
        self._owner, self._keep_at = f"game/{session}", time.monotonic() + _KEEP_EVERY_S
        try:
            names = await asyncio.to_thread(self._seat, body, own)
        except (ConfigError, DataError, RemoteError) as error:
            raise _refusal(error) from None
        for side in self._sides.values():
            if side.version != NO_VERSION:
                session.pin(quote(side.player.name, safe=""), side.version)  # a name that fits into a header
        return _encode({"match": self._match, "players": names}, is_json)

    def _seat(self, body: Mapping[str, Any], own: frozenset[int]) -> list[str]:
        """Begin a match whose players can all play here.

        Those who cannot are left out. A snapshot may be gone before it is opened: then the match is aborted and, if the
        game has not named its players, another one begins.
        """
        left_out = self._left_out()
        for name in (body.get("player"), body.get("opponent")):
            if isinstance(name, str) and name in left_out:
                raise left_out[name]
        for tries_left in reversed(range(1 if own else _MOST_TRIES)):
            match = self._begin(body, own, list(left_out))
            players = [player_of(each) for each in match["players"]]
            try:
                sides = {side: self._open(each) for side, each in enumerate(players) if side not in own}
            except LudusError:
                self._league.abort_match(match["id"])
                if not tries_left:
                    raise
                continue
            self._match, self._sides = str(match["id"]), sides
            return [player.name for player in players]
        raise AssertionError("the last try returns or raises")

    def _left_out(self) -> dict[str, LudusError]:
        """Players that cannot play in games outside, and why. Of networks none is opened for that."""
        found: dict[str, LudusError] = {}
        for each in self._league.players():
            if each["role"] == "bot" or each["search"]:
                try:
                    self._open(player_of(each))
                except LudusError as error:
                    found[each["name"]] = error
        return found

    def _begin(self, body: Mapping[str, Any], own: frozenset[int], left_out: list[str]) -> Any:
        if "opponent" in body:
            if not own:
                raise InvalidObservation("with an opponent, own says which sides the game plays itself, as [0]")
            if max(own) >= self._num_sides:
                raise InvalidObservation(f"own={sorted(own)}: the game has the sides 0 to {self._num_sides - 1}")
            guest = str(body.get("as", _GUEST))
            self._admit(guest)
            names = [guest if side in own else str(body["opponent"]) for side in range(self._num_sides)]
            return self._league.request_named(names, self._owner)
        if own:
            raise InvalidObservation("own sides need an opponent: name one")
        if "player" not in body and "role" not in body:
            raise InvalidObservation("start names a player, a role, or an opponent")
        return self._league.request_for(body.get("player"), body.get("role"), self._owner, left_out)

    def _keep(self) -> None:
        """A long match is not aborted while it is played. Off this thread: the league may be away for a while."""
        if self._match is None or time.monotonic() < self._keep_at:
            return
        self._keep_at = time.monotonic() + _KEEP_EVERY_S
        threading.Thread(target=_keep_matches, args=(self._league, self._owner), daemon=True).start()

    def _admit(self, guest: str) -> None:
        """A person is a player from its first match on; it may begin two at once."""
        roles = {player["name"]: player["role"] for player in self._league.players()}
        if guest not in roles:
            try:
                self._league.add_player({"name": guest, "role": "human"})
                return
            except LudusError:
                roles = {player["name"]: player["role"] for player in self._league.players()}
                if guest not in roles:
                    raise
        if roles[guest] != "human":
            raise InvalidObservation(f"as={guest!r} is a {roles[guest]} of this league: choose another name")

    def _open(self, player: Player) -> _Side:
        """Raises `ConfigError` for one that cannot play in games outside."""
        if player.search:
            raise _needs_boards(player)
        with _OPENING:
            version = self._seats.version_of(player)
            if version != NO_VERSION:
                player = dataclasses.replace(player, version=version)
            policy = self._seats.open(player)
        if getattr(policy, "needs_boards", False):
            raise _needs_boards(player)
        return _Side(player, policy, version)

    def tick(self, data: bytes) -> bytes:
        self._keep()
        body, is_json = decode_body(data)
        if "sides" not in body:
            return _encode({"action": self._act(body.get("side"), body)}, is_json)
        sides = body["sides"]
        if not isinstance(sides, dict):
            raise InvalidObservation("sides are an object: the number of a side, and what is seen from there")
        return _encode({"actions": {str(side): self._act(side, seen) for side, seen in sides.items()}}, is_json)

    def _act(self, number: Any, body: Any) -> Any:
        try:
            seat = self._sides[int(number)]
        except (KeyError, TypeError, ValueError):
            owned = ", ".join(map(str, sorted(self._sides)))
            raise InvalidObservation(f"side {number!r} is not one that the server plays; those are: {owned}") from None
        if not isinstance(body, dict) or body.get("obs") is None:
            raise InvalidObservation(f"side {number} has no obs")
        obs = observation(body["obs"], self._seats.obs, "obs")
        expect_finite(obs)
        mask = mask_of(body, self._seats.action.mask_size)
        action, _, seat.state = seat.policy.act(
            nests.map(lambda leaf: leaf[None], obs),
            seat.state,
            np.array([seat.is_first]),
            self._rng,
            None if mask is None else mask[None],
            greedy=self._greedy,
        )
        seat.is_first = False
        return action[0].tolist()

    async def end(self, data: bytes) -> bytes:
        match, self._match = self._match, None
        if match is None:
            return b""
        if not data:
            await asyncio.to_thread(self._league.abort_match, match)
            return b""
        try:
            body, is_json = decode_body(data)
            scores = body.get("scores")
            if not _are_scores(scores, self._num_sides):
                raise InvalidObservation(
                    f"end has the scores: one number for each of {self._num_sides} sides; the match is aborted"
                )
            counted = await asyncio.to_thread(self._league.report_series, [[match, [scores]]])
        except (DataError, RemoteError) as error:
            refused = _refusal(error)
            if isinstance(refused, InvalidObservation):
                await asyncio.to_thread(self._league.abort_match, match)
            raise refused from None
        return _encode({"counted": bool(counted[0])}, is_json)


def _keep_matches(league: LeagueCaller, owner: str) -> None:
    try:
        league.keep(owner)
    except LudusError as error:
        _LOG.warning("the league does not answer: %s. Matches that last long may be aborted", error)


def _needs_boards(player: Player) -> ConfigError:
    return ConfigError(
        f"{player.name!r} looks ahead on the board itself, which a game outside does not show: name another player"
    )


def _are_scores(scores: Any, num_sides: int) -> bool:
    if not isinstance(scores, list) or len(scores) != num_sides:
        return False
    try:
        return all(isinstance(score, int | float) and math.isfinite(score) for score in scores)
    except OverflowError:  # an integer that no float can hold
        return False


def _refusal(error: LudusError) -> LudusError:
    """What the league refuses is the game's to correct; any other failure stays what it is."""
    if not isinstance(error, RemoteError):
        return InvalidObservation(str(error))
    is_refused = error.remote_type.rpartition(".")[2] in ("ConfigError", "DataError")
    return InvalidObservation(str(error.args[0])) if is_refused else error


def _own_sides(body: Mapping[str, Any]) -> frozenset[int]:
    own = body.get("own", [])
    if not isinstance(own, list) or not all(isinstance(side, int) and side >= 0 for side in own):
        raise InvalidObservation(f"own is a list of sides, as [0]; this one is {own!r}")
    return frozenset(own)


def _encode(answer: dict[str, Any], is_json: bool) -> bytes:
    return msgspec.json.encode(answer) if is_json else msgspec.msgpack.encode(answer)


@functools.cache
def _parts(folder: str) -> tuple[LeagueCaller, GameSeats, int]:
    """One of each for a process: what was opened stays open for the next session."""
    config = configs.load(Path(folder))
    env = envs.spec(config.game, **config.training.env_args)
    return LeagueCaller(Remote(FOLDER)), make_seats(config, open_pool(config, Path(folder))), len(env.agents)
