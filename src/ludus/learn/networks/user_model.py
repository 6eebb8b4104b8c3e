"""A user's own model: found by its name, built, and held against the contract of `networks/model.py`."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ludus.data import lookup
from ludus.data import nest as nests
from ludus.data.nest import Nest
from ludus.errors import ConfigError

__all__ = ["check", "load"]

_NUM_STEPS, _NUM_ROWS = 2, 3  # of the forward pass that a model is tried with


def load(name: str, obs: Nest, num_outputs: int) -> Any:
    """The model that `module:callable` or `file.py:callable` gives for `(obs, num_outputs)`: specs of one row, a count.

    Raises `ConfigError`, saying what is wrong, unless it can be built and meets the contract.
    """
    if not all(name.rpartition(":")):
        raise ConfigError(f"model={name!r} must be module:callable or file.py:callable.")
    try:
        build = lookup.load_attribute(name, what="model")
        model = build(obs, num_outputs)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(
            f"model={name} could not be built: {type(error).__name__}: {error}. "
            "It is called with the specs of the observations and the number of outputs."
        ) from error
    check(model, obs, num_outputs, name=name)
    return model


def check(model: Any, obs: Nest, num_outputs: int, *, name: str) -> None:
    """Raise `ConfigError` unless one forward pass, on zeros, gives what the contract says."""
    if not isinstance(model, nn.Module):
        raise ConfigError(f"model={name} returned a {type(model).__name__}; it must return a torch.nn.Module.")
    state_spec = getattr(model, "state_spec", None)
    leading = (_NUM_ROWS,) if state_spec is None else (_NUM_STEPS, _NUM_ROWS)
    args = [_zeros(obs, leading)]
    if state_spec is not None:
        args += [_zeros(state_spec, (_NUM_ROWS,)), torch.zeros(leading, dtype=torch.bool)]
    try:
        with torch.no_grad():
            result = model.eval()(*args)  # in training, zeros would go into running statistics
    except Exception as error:
        raise ConfigError(
            f"model={name} failed on observations of zeros {list(leading)}: {type(error).__name__}: {error}."
        ) from error
    wanted = "(outputs, value)" if state_spec is None else "(outputs, value, state)"
    if not isinstance(result, tuple) or len(result) != 1 + len(args[:2]):
        raise ConfigError(f"model={name} returned a {type(result).__name__}; its forward must return {wanted}.")
    for what, tensor, shape in (("outputs", result[0], (*leading, num_outputs)), ("value", result[1], leading)):
        if not isinstance(tensor, torch.Tensor) or tuple(tensor.shape) != shape:
            got = list(tensor.shape) if isinstance(tensor, torch.Tensor) else type(tensor).__name__
            raise ConfigError(
                f"model={name} returned {what} {got} for observations {list(leading)}; it must be {list(shape)}."
            )
    if state_spec is not None:
        _check_state(result[2], args[1], name)


def _check_state(state: Nest, given: Nest, name: str) -> None:
    try:
        same = nests.leaves(nests.map(lambda before, after: before.shape == after.shape, given, state))
    except (ValueError, AttributeError) as error:
        raise ConfigError(f"model={name} returned another kind of state than its state_spec says: {error}.") from error
    if not all(same):
        raise ConfigError(f"model={name} returned state of other shapes than its state_spec says.")


def _zeros(spec: Nest, leading: tuple[int, ...]) -> Nest:
    return nests.map(torch.from_numpy, nests.allocate(spec, leading))
