"""A simulator's chooser for matches: every row is played by the player that has that side in the match of its env.

    chooser = MatchChooser(seats, book, policy, num_agents=2)
    simulator = Simulator(groups, chooser, ...)
    rollout = simulator.collect(version)
    episodes = chooser.settle(rollout.segment)         # only the learner's own steps are left to learn from

What the others do is in the segment, too, but is not `active` there.
"""

from __future__ import annotations

import dataclasses
import logging
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.core import TimeStep
from ludus.data import nest as nests
from ludus.data.nest import Nest
from ludus.data.segment import Segment
from ludus.errors import ConfigError, DataError
from ludus.league.match_book import MatchBook
from ludus.league.players import Player, PlayerPolicy
from ludus.league.seats import OpensPlayers
from ludus.services.simulator.chooser import Acted, Chooser
from ludus.services.simulator.episodes import Episode

__all__ = ["MatchChooser"]

_LOG = logging.getLogger(__name__)
_MOST_TRIES = 100


class MatchChooser:
    """`own` chooses for the learner of the book's matches, by the learner's present weights; for others, `seats`.

    `greedy`: those of `seats` play their likeliest actions.
    """

    is_remote = False

    def __init__(
        self,
        seats: OpensPlayers,
        book: MatchBook,
        own: Chooser | None,
        *,
        num_envs: int,
        num_agents: int,
        greedy: bool = False,
    ) -> None:
        self.book = book
        self._seats = seats
        self._own = own
        self._greedy = greedy
        self._num_agents = num_agents
        num_rows = num_envs * num_agents
        self._scores = np.zeros((num_envs, num_agents))
        self._lengths = np.zeros(num_envs, np.int64)
        # Of each row, the number of the player in `_players`; 0: the learner.
        self._who: NDArray[np.int64] = np.zeros(num_rows, np.int64)
        self._players: list[PlayerPolicy | None] = [None]
        self._numbers: dict[int, int] = {}  # id of a policy → its number
        self._states: list[Nest] = [None]
        self._remembers: NDArray[np.bool_] = np.zeros(1, np.bool_)  # by number: whether it has a state
        self._is_own_step: list[NDArray[np.bool_]] = []
        self._episodes: list[Episode] = []
        self._num_rows = num_rows

    @property
    def extra_spec(self) -> Nest:
        return None if self._own is None else self._own.extra_spec

    # --- of a simulator

    def begin(self, now: TimeStep, state: Nest, rows: slice) -> Any:
        assert rows.stop - rows.start == self._num_rows, "a simulator of matches has one group"
        if now.first.any():
            self._deal(now)
        self._scores += now.reward.reshape(self._scores.shape)
        is_own = self._who == 0
        self._is_own_step.append(is_own)
        self._lengths += now.active.reshape(self._scores.shape).any(1)
        return now, state, is_own, rows

    def finish(self, ticket: Any, rng: np.random.Generator) -> Acted:
        now, state, is_own, rows = ticket
        if self._own is not None and is_own.any():
            acted = self._choose_own(self._own, now, state, is_own, rows, rng)
        else:
            acted = None
        who = self._who
        plays = now.active | self._remembers[who]  # one that remembers sees what it does not act in, as when it learnt
        others = np.unique(who[plays & ~is_own]) if acted is not None else np.unique(who[plays])
        action = acted.action if acted is not None else None
        for number in others:
            player = self._players[number]
            assert player is not None
            chosen = np.flatnonzero((who == number) & plays)
            found = self._choose(player, number, now, chosen, rng)
            if action is None:
                action = np.zeros((self._num_rows, *found.shape[1:]), found.dtype)
            action[chosen] = found
        if action is None:  # nobody acts: all games are over, and begin again by themselves
            action = self._seats.action.array.allocate((self._num_rows,))
        if acted is None:
            return Acted(action, np.zeros(self._num_rows, np.float32), state)
        return acted._replace(action=action)

    def _choose_own(
        self, own: Chooser, now: TimeStep, state: Nest, is_own: NDArray[np.bool_], rows: slice, rng: np.random.Generator
    ) -> Acted:
        """All rows if most are the learner's, or if it remembers something: else those that it has to act in."""
        active = is_own & now.active
        chosen = np.flatnonzero(active)
        if state is not None or own.extra_spec is not None or len(chosen) > 0.75 * self._num_rows:
            return own.finish(own.begin(dataclasses.replace(now, active=active), state, rows), rng)
        action = self._seats.action.array.allocate((self._num_rows,))
        logp = np.zeros(self._num_rows, np.float32)
        if len(chosen):
            acted = own.finish(own.begin(_rows_of(now, chosen), None, slice(0, len(chosen))), rng)
            action[chosen], logp[chosen] = acted.action, acted.logp
        return Acted(action, logp, None)

    def _choose(
        self, player: PlayerPolicy, number: int, now: TimeStep, chosen: NDArray[np.int64], rng: np.random.Generator
    ) -> NDArray[Any]:
        states = self._states[number]
        state = nests.map(lambda leaf: None if leaf is None else leaf[chosen], states)
        boards = {}
        if getattr(player, "needs_boards", False):
            boards["boards"] = nests.map(lambda leaf: leaf[chosen // self._num_agents], now.global_state)
        action, _, after = player.act(
            nests.map(lambda leaf: leaf[chosen], now.obs),
            state,
            now.first[chosen],
            rng,
            None if now.mask is None else now.mask[chosen],
            greedy=self._greedy,
            **boards,
        )
        if states is not None:
            nests.map(lambda into, leaf: into.__setitem__(chosen, leaf), states, after)
        return action

    def use(self, own: Chooser) -> None:
        """Another chooser for the learner, whose games go on."""
        self._own = own

    # --- games and players

    def _deal(self, now: TimeStep) -> None:
        """Where a game begins, the one before is over: count it, and see who plays now."""
        first = now.first.reshape(self._scores.shape)[:, 0]
        failed = now.failed.reshape(self._scores.shape)[:, 0]
        for env in np.flatnonzero(first):
            if self._lengths[env]:
                self._end(int(env), is_void=bool(failed[env]))
            self._seat(int(env))
            self._scores[env] = 0.0
            self._lengths[env] = 0

    def _seat(self, env: int) -> None:
        """A match whose players can all play: one may have been removed since it was chosen, with its weights."""
        for tries_left in reversed(range(_MOST_TRIES)):
            match = self.book.match_of(env)
            try:
                for side, player in enumerate(match.players):
                    self._who[env * self._num_agents + side] = self._number_of(player)
            except (ConfigError, DataError) as error:
                self.book.drop(env)
                if not tries_left:
                    raise
                _LOG.info("the match %s is aborted: %s", match.id, error)
            else:
                return

    def _end(self, env: int, *, is_void: bool) -> None:
        scores = self._scores[env]
        self.book.end_game(env, None if is_void else scores.tolist())
        if is_void:
            return
        row = env * self._num_agents
        for side in range(self._num_agents):
            if self._who[row + side] == 0 and self._own is not None:
                self._episodes.append(Episode(float(scores[side]), int(self._lengths[env]), row + side))

    def _number_of(self, player: Player) -> int:
        if self._own is not None and player.name == self.book.learner:
            return 0
        policy = self._seats.open(player)
        number = self._numbers.get(id(policy))
        if number is None:
            number = self._numbers[id(policy)] = self._free_number()
            self._players[number] = policy
            state_spec = getattr(policy, "state_spec", None)
            self._states[number] = nests.map(
                lambda leaf: None if leaf is None else leaf.allocate((self._num_rows,)), state_spec
            )
            self._remembers = np.array([state is not None for state in self._states])
        return number

    def _free_number(self) -> int:
        """One that nobody plays with any more, or a new one."""
        playing = set(np.unique(self._who).tolist())
        for number in range(1, len(self._players)):
            if number not in playing:
                self._numbers = {policy: each for policy, each in self._numbers.items() if each != number}
                return number
        self._players.append(None)
        self._states.append(None)
        return len(self._players) - 1

    def forget_steps(self) -> None:
        """Where nothing is learnt, no segment is settled."""
        self._is_own_step = []
        self._episodes = []

    def settle(self, segment: Segment) -> list[Episode]:
        """After a segment was collected: only the learner's steps stay active in it; its episodes that ended.

        Where it ends while another is to move, the learner's last own observation of the game stands for what it sees
        then: of observations at which it does not act its value knows nothing.
        """
        for step, is_own in enumerate(self._is_own_step):
            segment.active[step] &= is_own
        segment.active[len(self._is_own_step)] &= self._who == 0
        self._is_own_step = []
        _end_with_own_observations(segment)
        self.book.flush()
        episodes, self._episodes = self._episodes, []
        return episodes


def _end_with_own_observations(segment: Segment) -> None:
    """In place, of rows that wait at the end of the segment and have acted in that game."""
    num_steps = len(segment.reward)
    steps = np.arange(num_steps)[:, None]
    last_act = np.where(segment.active[:-1], steps, -1).max(0)
    last_end = np.where(segment.terminated | segment.truncated, steps, -1).max(0)
    rows = np.flatnonzero(~segment.active[num_steps] & (last_act > last_end))
    nests.map(lambda leaf: leaf.__setitem__((num_steps, rows), leaf[last_act[rows], rows]), segment.obs)


def _rows_of(now: TimeStep, rows: NDArray[np.int64]) -> TimeStep:
    return TimeStep(
        obs=nests.map(lambda leaf: leaf[rows], now.obs),
        reward=now.reward[rows],
        terminated=now.terminated[rows],
        truncated=now.truncated[rows],
        first=now.first[rows],
        active=now.active[rows],
        failed=now.failed[rows],
        mask=None if now.mask is None else now.mask[rows],
    )
