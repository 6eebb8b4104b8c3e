"""The one door to OpenSpiel's games: from a name and parameters to a game in which players take turns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ludus.errors import EnvError, MissingExtra
from ludus.spelling import nearest

try:
    import pyspiel
except ImportError as error:
    raise MissingExtra("open_spiel", extra="openspiel") from error

__all__ = ["has_info_states", "load", "observe", "tensor_shape"]


def load(name: str, parameters: Mapping[str, Any]) -> Any:
    """A `pyspiel.Game`. One whose players act at once becomes one of turns, in which they do not see what was chosen.

    Raises `EnvError`, with the nearest name, if there is none, or if its players cannot be shown what they know.
    """
    short = name.rpartition(":")[2]
    if short not in pyspiel.registered_names():
        raise EnvError(f"OpenSpiel has no game {short!r}. {nearest(short, pyspiel.registered_names())}")
    try:
        game = pyspiel.load_game(short, dict(parameters))
        kind = game.get_type()
        if kind.dynamics == pyspiel.GameType.Dynamics.SIMULTANEOUS:
            game = pyspiel.convert_to_turn_based(game)
            kind = game.get_type()
    except (pyspiel.SpielError, TypeError) as error:
        raise EnvError(f"{name} cannot be made with {dict(parameters)}: {error}") from error
    if kind.dynamics != pyspiel.GameType.Dynamics.SEQUENTIAL:
        raise EnvError(f"{name} is a mean-field game; only games in which players act in turn can be played")
    if kind.chance_mode == pyspiel.GameType.ChanceMode.SAMPLED_STOCHASTIC:
        raise EnvError(f"{name} draws its own random numbers, so its episodes cannot be repeated. Choose another game")
    if not (kind.provides_information_state_tensor or kind.provides_observation_tensor):
        raise EnvError(f"{name} has neither information states nor observations as tensors. Choose another game")
    return game


def has_info_states(game: Any) -> bool:
    """Whether players see their information states, with all they remember, rather than observations."""
    return bool(game.get_type().provides_information_state_tensor)


def tensor_shape(game: Any) -> tuple[int, ...]:
    """Of what one player sees."""
    shape = game.information_state_tensor_shape() if has_info_states(game) else game.observation_tensor_shape()
    return tuple(shape)


def observe(game: Any, state: Any, player: int) -> list[float]:
    """What that player sees in a state that is no chance node; flat."""
    tensor = state.information_state_tensor if has_info_states(game) else state.observation_tensor
    seen: list[float] = tensor(player)
    return seen
