"""OpenSpiel: games of Connect Four in which one torch network moves for both sides, as its examples play them.

OneGame(module).play()             # states and their methods, one game after the other, as its AlphaZero plays
ManyGames(module, 64).play()       # its own vectorised environments, one forward pass for all
"""

from __future__ import annotations

import numpy as np
import pyspiel
import torch
from open_spiel.python import rl_environment
from open_spiel.python.vector_env import SyncVectorEnv

__all__ = ["ManyGames", "OneGame"]

_CELLS = 2 * 6 * 7  # its third plane says what is empty: the network is that of the others, which do without
_MOVES = 7
_STEPS = 64


class OneGame:
    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module
        self._game = pyspiel.load_game("connect_four")
        self._rng = np.random.default_rng(1)

    def play(self) -> int:
        """One game."""
        state = self._game.new_initial_state()
        while not state.is_terminal():
            seen = torch.tensor(state.observation_tensor(), dtype=torch.float32)[None, :_CELLS]
            with torch.inference_mode():
                logits = self._module(seen)[0][0]
            legal = state.legal_actions()
            share = torch.softmax(logits[legal], 0).numpy()
            state.apply_action(legal[int(np.searchsorted(share.cumsum(), self._rng.random() * share.sum()))])
        state.returns()
        return 1


class ManyGames:
    def __init__(self, module: torch.nn.Module, num_envs: int) -> None:
        self._module = module
        self._envs = SyncVectorEnv([rl_environment.Environment("connect_four") for _ in range(num_envs)])
        self._steps = self._envs.reset()

    def play(self) -> int:
        """Some steps of all; how many games ended."""
        num = 0
        for _ in range(_STEPS):
            players = [step.current_player() for step in self._steps]
            infos = [step.observations for step in self._steps]
            seen = np.array(
                [info["info_state"][player][:_CELLS] for info, player in zip(infos, players, strict=True)], np.float32
            )
            legal = np.zeros((len(seen), _MOVES), np.bool_)
            for row, (info, player) in enumerate(zip(infos, players, strict=True)):
                legal[row, info["legal_actions"][player]] = True
            with torch.inference_mode():
                logits = self._module(torch.from_numpy(seen))[0].masked_fill(~torch.from_numpy(legal), -1e9)
                actions = torch.distributions.Categorical(logits=logits).sample().tolist()
            self._steps, _rewards, done, _final = self._envs.step(
                [_Output(action) for action in actions], reset_if_done=True
            )
            num += int(np.sum(done))
        return num


class _Output:
    """What its agents give."""

    def __init__(self, action: int) -> None:
        self.action = action
