"""How strong players of board games are: against bots, against perfect play, and their snapshots among each other.

Used by `board_games.py`, which trains them.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from board_solver import solver
from ludus import envs
from ludus.core import Rules
from ludus.envs.boards.perfect_play import PerfectPlay
from ludus.league import arena
from ludus.league.payoff import Record

__all__ = ["agreements", "by_bot", "interval", "open_player", "rating_curve", "unbeaten"]

_BATCH = 256


@dataclasses.dataclass(frozen=True)
class Fixed:
    """A player that is always greedy, or never, whatever the arena asks of the other."""

    player: Any
    greedy: bool

    @property
    def state_spec(self) -> Any:
        return self.player.state_spec

    @property
    def needs_boards(self) -> bool:
        return getattr(self.player, "needs_boards", False)

    def act(self, *args: Any, greedy: bool = False, **boards: Any) -> Any:
        return self.player.act(*args, greedy=self.greedy, **boards)


def open_player(trial: Path, name: str) -> tuple[arena.Contestant, Any]:
    """A player of a league, by its network alone: as a contestant, and ready to act."""
    [found] = arena.open_contestants([f"{trial}@{name}"])
    assert found.game is not None
    player = found.open(found.game)
    return found, player


def by_bot(
    trial: Path, name: str, bots: Sequence[str], *, games: int, random_moves: int, greedy: bool = True, seed: int = 1
) -> dict[str, dict[str, Any]]:
    """Against each bot, on both sides. Of equally good moves the bots play any one."""
    found, player = open_player(trial, name)
    config = _with_openings(found, random_moves)
    results = {}
    for bot in bots:
        own = arena.Contestant(name=name, game=found.game, open=lambda _config: Fixed(player, greedy))
        played = arena.play([own, *arena.open_contestants([bot])], config, num_games=games, seed=seed)
        results[bot] = interval(played.records[name, bot])
    return results


def _with_openings(found: arena.Contestant, random_moves: int) -> Any:
    assert found.game is not None
    train = dataclasses.replace(found.game.train, eval_env_args=f'{{"random_moves": {random_moves}}}')
    return dataclasses.replace(found.game, train=train)


def interval(record: Record) -> dict[str, Any]:
    """A draw counts half. `low` and `high`: Wilson's interval of 95 %."""
    low, high = record.interval()
    return {
        "win_rate": round(record.win_rate, 4),
        "low": round(low, 4),
        "high": round(high, 4),
        "wins": int(record.wins),
        "draws": int(record.draws),
        "losses": int(record.losses),
    }


def rating_curve(trial: Path, snapshots: Sequence[dict[str, Any]], bots: Sequence[str], *, games: int) -> list[Any]:
    """Elo of snapshots and bots, from a round-robin of all: `[name, step, mean, std]`, steps of bots are None."""
    if not snapshots:
        return []
    opened = [open_player(trial, each["name"]) for each in snapshots]
    contestants = [
        arena.Contestant(name=found.name, game=found.game, open=lambda _config, player=player: Fixed(player, False))
        for found, player in opened
    ]
    config = _with_openings(opened[0][0], 4)
    played = arena.play([*contestants, *arena.open_contestants(list(bots))], config, num_games=games, seed=2)
    zero = played.ratings[bots[0]].mean
    steps = {found.name: (each["name"], each["step"]) for (found, _), each in zip(opened, snapshots, strict=True)}
    curve = []
    for name, rating in played.ratings.items():
        shown, step = steps.get(name, (name, None))
        elo, std = round(rating.mean - zero, 1), round(rating.std, 1)
        curve.append({"name": shown, "step": step, "elo": elo, "std": std})
    return curve


# --- perfect play


def unbeaten(rules: Rules, player: Any) -> dict[str, int]:
    """A game small enough to be searched to its end: from every opening in which the player is to move and that perfect
    play does not lose, against every one of the best replies. An opening is any sequence of legal moves, of any length.
    """
    perfect = PerfectPlay(rules)
    openings = _positions(rules)
    actions = _choose(rules, openings, lambda *seen: player.act(*seen, greedy=True)[0])
    values = perfect.values(openings)
    chosen = {key: int(action) for key, action in zip(map(bytes, openings), actions, strict=True)}
    is_open = values.max(1) > -1e-9
    replies = {
        key: np.flatnonzero(each >= each.max() - 1e-12) for key, each in zip(map(bytes, openings), values, strict=True)
    }
    outcomes: dict[bytes, int] = {}

    def losses(state: NDArray[np.int64]) -> int:
        """Lost games from here, of all that the best replies allow."""
        key = bytes(state)
        if key not in outcomes:
            outcomes[key] = 0
            after, _reward, over = rules.step(state[None], np.array([chosen[key]]))
            if not over[0]:
                for reply in replies[bytes(after[0])]:
                    later, reward, ended = rules.step(after, np.array([reply]))
                    mover = int(rules.to_move(state[None])[0])
                    outcomes[key] += int(reward[0, mover] < 0) if ended[0] else losses(later[0])
        return outcomes[key]

    lost = [losses(state) for state in openings[is_open]]
    mover = rules.to_move(openings[is_open])
    return {
        "openings": int(is_open.sum()),
        "openings_first_side": int((mover == 0).sum()),
        "openings_second_side": int((mover == 1).sum()),
        "openings_lost": int(np.count_nonzero(lost)),
        "games_lost": int(np.sum(lost)),
    }


def _positions(rules: Rules) -> NDArray[np.int64]:
    """All that can come up and are not over."""
    level, found = rules.start(1), []
    while len(level):
        found.append(level)
        boards, actions = np.nonzero(rules.legal(level))
        after, _reward, over = rules.step(level[boards], actions)
        level = np.unique(after[~over], axis=0)
    return np.unique(np.concatenate(found), axis=0)


def _choose(rules: Rules, states: NDArray[np.int64], act: Callable[..., NDArray[np.int64]]) -> NDArray[np.int64]:
    """Actions of a network in these positions."""
    rng = np.random.default_rng(0)
    actions = []
    for start in range(0, len(states), _BATCH):
        part = states[start : start + _BATCH]
        seen = np.ascontiguousarray(rules.observe(part, rules.to_move(part)))
        actions.append(act(seen, None, np.zeros(len(part), np.bool_), rng, rules.legal(part)))
    return np.concatenate(actions)


# --- the perfect solver of Connect Four


def agreements(
    trial: Path, name: str, *, num_positions: int, simulations: Sequence[int], first_ply: int, seed: int = 3
) -> dict[str, dict[str, float]]:
    """How often its move is among the perfect ones, in positions of its own games: by the network alone, and by a
    search of so many simulations on top.
    """
    found, player = open_player(trial, name)
    assert found.game is not None
    rules = envs.rules(found.game.train.env, **found.game.env_args)
    assert rules is not None
    states = _played_positions(rules, player, num_positions, first_ply, seed)
    is_shown = sys.stderr.isatty()

    def show(done: int, total: int) -> None:
        if is_shown:
            print(f"\r  solved {done} of {total} positions", end="" if done < total else "\n", file=sys.stderr)

    values = solver.solve(states, on_progress=show)
    results = {"network": solver.agreement(values, _choose(rules, states, lambda *s: player.act(*s, greedy=True)[0]))}
    for num in simulations:
        results[f"search_{num}"] = solver.agreement(values, _searched(rules, player, states, num))
    return results


def _searched(rules: Rules, policy: Any, states: NDArray[np.int64], simulations: int) -> NDArray[np.int64]:
    from ludus.learn.search.evaluator import PolicyEvaluator
    from ludus.learn.search.search import TreeSearch
    from ludus.learn.search.settings import SearchSettings

    search = TreeSearch(rules, SearchSettings(simulations=simulations))
    evaluate = PolicyEvaluator(policy, rules)
    rng = np.random.default_rng(0)
    parts = [states[start : start + _BATCH] for start in range(0, len(states), _BATCH)]
    return np.concatenate([search(part, evaluate, rng, noise=False).choose(rng, temperature=0.0) for part in parts])


def _played_positions(rules: Rules, player: Any, num_positions: int, first_ply: int, seed: int) -> NDArray[np.int64]:
    """Different positions of games that it plays against itself, its moves drawn, after four random ones; of each game
    those from `first_ply` moves on are equally likely.
    """
    rng = np.random.default_rng(seed)
    found: list[NDArray[np.int64]] = []
    state = rules.start(_BATCH)
    num = 0
    while num < 40 * num_positions:
        legal = rules.legal(state)
        seen = np.ascontiguousarray(rules.observe(state, rules.to_move(state)))
        own = player.act(seen, None, np.zeros(len(state), np.bool_), rng, legal, greedy=False)[0]
        anything = np.where(legal, rng.random(legal.shape), -1.0).argmax(1)
        state, _reward, over = rules.step(state, np.where(state[:, 2] < 4, anything, own))
        state[over] = rules.start(int(over.sum()))
        later = state[state[:, 2] >= first_ply]
        found.append(later.copy())
        num += len(later)
    positions = np.unique(np.concatenate(found), axis=0)
    return positions[rng.choice(len(positions), size=min(num_positions, len(positions)), replace=False)]
