"""Every contract of Ludus on one page.

How the parts meet:

    program = Program("demo")                            # nodes and handles: the topology as data
    policy = program.add("policy", Policy, replicas=3)   # a plain class with @register methods, or a Worker
    program.add("player", Player, policy)                # a handle given to a constructor is the edge
    launch.local(program)                                # an engine runs it

    # in each process the engine starts:
    names = discovery.connect(url)                       # Names: where is everybody?
    worker.configure(config)                             # phase by phase: configure → start → ... → exit
    names.add(key, server.address, ttl=2.0)              # a lease: it lapses when the process is killed
    while worker.is_running:
        server.handle_requests()                         # control commands and calls
        worker._poll()                                   # one short piece of work

How a policy meets an env:

    env = envs.make("CartPole-v1", num_envs=64)          # a `VectorEnv`: 64 copies, stepped together
    now = env.reset(seed=1)                              # TimeStep: what is seen, by row
    while True:
        action = policy(now.obs, now.mask)               # one for each row; ignored where now.active is false
        now = env.step(action)                           # ... .reward, .terminated, .truncated of what was just done

How a search meets the rules of a game:

    state = rules.start(64)                              # 64 boards, a row of integers each
    obs = rules.observe(state, rules.to_move(state))
    state, reward, is_over = rules.step(state, action)   # another array: the boards before the move are still there

How an algorithm meets a learner:

    policy = Policy(algorithm.policy_spec(env, network)) # a model, and a Head: what its outputs mean as actions
    action, logp, state = policy.act(...)                # one step of all rows, greedy or sampled
    update = learner.update(Sample(segment))             # algorithm.targets, .losses, .after_step; the next version

Users write services, workers, envs and, if they must, a `Names` backend; `ludus.testing` has the conformance kit for
each. They also write, each with its contract in the file named:

    Algorithm, and what it is given: View, Networks, Loss      learn/algorithms/algorithm.py
    SampleView, the whole sample that targets are made from    learn/algorithms/sample.py
    Head, a distribution over actions                          learn/ops/distributions/head.py
    a network                                                  learn/networks/model.py
    a trainer of their own, from advantages and losses         learn/ops/__init__.py
    Actor, what a game calls                                   gateway/actor.py
    Door, another protocol for games                           gateway/gateway.py
    Backend, what runs a model; Inference, who is asked        models/backends/backend.py, models/request.py
    Chooser, what picks the actions of a group of envs         services/simulator/chooser.py
    Flow, one update at a time                                 experiment/training.py
    Source, where a sync flow has experience from              experiment/flows/sync.py
    SegmentBuffer, what an async flow takes from               experiment/flows/async_.py
    Replay, what a replay flow draws from                      experiment/flows/replay.py
    ReplayAlgorithm, and what it is given: ReplayView          learn/algorithms/replay_algorithm.py
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ludus.data.actions import ActionSpec
from ludus.data.nest import Nest
from ludus.data.spec import ArraySpec

__all__ = [
    "EnvSpec",
    "HasHeuristic",
    "HasSymmetries",
    "NameCallback",
    "Names",
    "Rules",
    "TimeStep",
    "VectorEnv",
    "VectorEnvStats",
    "Watch",
    "WorkerStatus",
]

NameCallback = Callable[[str, "str | None"], None]
"""Called with `(name, value)` when a name appears or changes and `(name, None)` when it is gone."""


class Watch(Protocol):
    """A running `watch_names`; `close` ends it and returns once no callback will be made any more.

    It waits for a callback that is under way, so do not call it with a lock held that the callback takes. The
    callback itself may call it.
    """

    def close(self) -> None: ...


@runtime_checkable
class Names(Protocol):
    """Names → values: who is where. Names are paths such as `experiment/trial/kind/worker`; values are strings.

    Safe to use from several threads. A method that cannot reach its backend raises `DiscoveryError`.
    """

    def add(
        self,
        name: str,
        value: str,
        *,
        ttl: float | None = None,
        replace: bool = False,
        on_taken: Callable[[], None] | None = None,
    ) -> None:
        """Set `name`. Raises `NameTaken` if it exists and `replace` is false.

        With a `ttl` the name is a lease that this object keeps alive in the background until `delete` or `close`;
        when the process dies the name is gone within `ttl` seconds (or, where the backend cannot hold so short a
        lease, within the time that its log warns of). A lease that was lost, be it to an outage or to somebody
        else's `delete`, is put back; one that somebody else has taken since is let go, and `on_taken` is called, from
        a background thread. Without a `ttl` the name stays until deleted.
        """
        ...

    def get(self, name: str) -> str:
        """The value of `name`. Raises `NameNotFound`."""
        ...

    def get_subtree(self, root: str) -> list[str]:
        """The values of `root` and of every name below it, in the order of `find_subtree`."""
        ...

    def find_subtree(self, root: str) -> list[str]:
        """`root`, if it is a name, and every name below it, sorted. `a/b` is below `a`; `ab` is not."""
        ...

    def wait(self, name: str, timeout: float | None = None) -> str:
        """The value of `name`, once it is there. Raises `NameTimeout`; `None` means 60 seconds."""
        ...

    def watch_names(self, names: str | Sequence[str], callback: NameCallback) -> Watch:
        """Call `callback` at every change of these names; a name that ends in `/` stands for all names below it.

        The present state is reported first, as if it had just appeared (a plain name that does not exist as
        `None`). Callbacks come from one background thread, in order. Quick changes may be reported as one: the last.
        A callback that raises is logged and does not end the watch.
        """
        ...

    def delete(self, name: str) -> None:
        """Remove `name` and stop keeping it alive. Raises `NameNotFound`.

        What this object added and somebody else has replaced since is not there any more: it raises, and theirs stays.
        """
        ...

    def clear_subtree(self, root: str) -> None:
        """Remove `root` and every name below it, whosever they are. Removing nothing is not an error."""
        ...

    def close(self) -> None:
        """End watches and keep-alives and remove the leases this object holds. May be called twice."""
        ...


class WorkerStatus(enum.StrEnum):
    """Where a worker is in its life.

    created ──configure──▶ ready ──start──▶ running ◀──resume── paused
                                              │ └────pause────────▲
                         done ◀── _poll ends ─┤
                       failed ◀── it raised ──┤
                       exited ◀── exit, interrupt, SIGTERM
    """

    CREATED = "created"
    READY = "ready"
    RUNNING = "running"
    PAUSED = "paused"
    DONE = "done"
    FAILED = "failed"
    EXITED = "exited"

    @property
    def is_final(self) -> bool:
        return self in (WorkerStatus.DONE, WorkerStatus.FAILED, WorkerStatus.EXITED)


@dataclass(frozen=True, kw_only=True)
class EnvSpec:
    """What every agent of an env sees and can do. Agents that differ are padded to the largest by their adapter."""

    name: str
    obs: Nest  # a nest of `ArraySpec`s, of one agent
    action: ActionSpec
    agents: tuple[str, ...] = ("agent",)
    global_state: Nest = None  # a nest of `ArraySpec`s, if the env has a global state
    has_mask: bool = False


@dataclass(kw_only=True, slots=True)
class TimeStep:
    """One moment of all rows. Row `w * len(agents) + a` is agent `a` of env `w`.

    `reward`, `terminated` and `truncated` tell what the last action led to; all else is about now. When an episode
    ends, `obs` is its final observation and `active` is false; the step after that ignores the row's action, has no
    reward, and is the `first` of the next episode. In envs where agents take turns, or leave before the others,
    `active` is false for those who cannot act now; a reward that they get then counts for their last action.
    The arrays may be used again by the next `step`; copy what is to be kept.
    """

    obs: Nest  # [R, ...]
    reward: NDArray[np.float32]  # [R]
    terminated: NDArray[np.bool_]  # [R] the episode ended by the rules of the env
    truncated: NDArray[np.bool_]  # [R] it was cut off, by a time limit for example
    first: NDArray[np.bool_]  # [R] obs begins an episode
    active: NDArray[np.bool_]  # [R] the next action counts
    failed: NDArray[np.bool_]  # [R] the env raised and was restarted: what this row did lately is void
    mask: NDArray[np.bool_] | None = None  # [R, choices] which are allowed; never all false
    global_state: Nest = None  # [W, ...] of the whole env


@dataclass(frozen=True, kw_only=True)
class VectorEnvStats:
    """`num_failures` counts envs that raised and were restarted; `last_failure` has the seed and the step."""

    num_steps: int = 0
    num_episodes: int = 0
    num_failures: int = 0
    last_failure: str = ""


class VectorEnv(Protocol):
    """A group of `num_envs` copies of one env, stepped together; single-agent envs have one agent.

    `send` begins a step and `recv` ends it, so that another group can be served in between; `step` is both.
    """

    spec: EnvSpec
    num_envs: int

    @property
    def num_rows(self) -> int:
        """`num_envs * len(spec.agents)`."""
        ...

    def reset(self, seed: int) -> TimeStep:
        """Begin all episodes. The same seed and the same actions give the same steps."""
        ...

    def send(self, action: NDArray[Any]) -> None: ...

    def recv(self) -> TimeStep: ...

    def step(self, action: NDArray[Any]) -> TimeStep: ...

    def save(self) -> Nest:
        """Everything needed to go on exactly from here, as a nest for the codec; `None` if this env cannot tell."""
        ...

    def restore(self, saved: Nest) -> TimeStep:
        """Go on where `save` was called, in envs made with the same arguments. Raises `EnvError` if that fails."""
        ...

    def statistics(self) -> VectorEnvStats: ...

    def close(self) -> None:
        """Let go of everything. May be called twice."""
        ...


@runtime_checkable
class Rules(Protocol):
    """A board game: no chance, nothing hidden, one player moves at a time. A search looks ahead in it.

    It is played on N boards at once. A state is a row of integers, all there is to know of one board; only the rules
    can read it. No method writes into what it is given.
    """

    name: str
    num_players: int
    obs: ArraySpec  # of one player
    num_actions: int
    state: ArraySpec  # of one board, int64
    max_moves: int  # of one game

    def start(self, num: int) -> NDArray[np.int64]:
        """`[N, ...]` boards before the first move."""
        ...

    def step(
        self, state: NDArray[np.int64], action: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.bool_]]:
        """States after a move on each board, rewards `[N, players]`, and which games are over by it.

        Moves are legal, and on boards whose game is not over: the caller makes sure of it.
        """
        ...

    def legal(self, state: NDArray[np.int64]) -> NDArray[np.bool_]:
        """`[N, actions]` what the player to move may do; of a game that is over, anything."""
        ...

    def to_move(self, state: NDArray[np.int64]) -> NDArray[np.int64]:
        """`[N]` whose turn it is."""
        ...

    def observe(self, state: NDArray[np.int64], player: NDArray[np.int64]) -> NDArray[np.float32]:
        """`[N, ...]` what that player sees of each board."""
        ...

    def cells(self, state: NDArray[np.int64]) -> NDArray[np.int8]:
        """`[N, height, width]`, for people: 0 for an empty cell, `1 + player` for a piece. The top row first."""
        ...

    @property
    def cell_actions(self) -> NDArray[np.int64]:
        """`[height, width]` the move that is meant by pointing at a cell; -1: none."""
        ...


@runtime_checkable
class HasHeuristic(Protocol):
    """Rules of two players may also guess who is winning: for bots that look only some moves ahead."""

    def heuristic(self, state: NDArray[np.int64]) -> NDArray[np.float32]:
        """`[N]` how good a board is for the player to move, of games that are not over: less than 1, which is a win,
        and more than -1. The better for one player, the worse for the other.
        """
        ...


@runtime_checkable
class HasSymmetries(Protocol):
    """Rules whose games look alike in a mirror, or turned: what is learnt from one is learnt from the others."""

    @property
    def symmetries(self) -> Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Of each symmetry but the identity: `obs[..., places]` and `of_actions[..., actions]` are a flat observation
        and whatever is known of each action, as they look then.
        """
        ...
