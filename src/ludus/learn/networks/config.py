"""The settings of a network. (Without torch: a command line shows them before it needs any.)"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from ludus.options import option

__all__ = ["NetworkConfig"]

_FEW_INPUTS = 64


@dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """From observations to outputs and values; `networks/model.py` builds it."""

    encoder: str = option(
        "auto",
        choices=("auto", "mlp", "small", "nature", "impala"),
        help="encoder of observations: auto is nature (DQN's CNN) for images, mlp otherwise; small is A3C's CNN",
    )
    hidden: tuple[int, ...] | None = option(
        None, minimum=1, help="sizes of an MLP's hidden layers; none: 64,64, or 256,256 if it reads over 64 numbers"
    )
    activation: str | None = option(
        None,
        choices=("tanh", "relu"),
        help="activation after each hidden layer of an MLP; none: tanh, or what suits the algorithm",
    )
    recurrent: str = option("none", choices=("none", "lstm", "gru"), help="recurrent layer")
    recurrent_size: int = option(64, minimum=1, help="size of the recurrent state")
    shared: bool | None = option(
        None, help="policy and value share a body; none: yes for images and recurrent networks, no for vectors"
    )
    model: str | None = option(
        None, help="a model of your own, which replaces all this: module:callable or file.py:callable"
    )

    def hidden_for(self, num_inputs: int) -> tuple[int, ...]:
        """The hidden layers of an MLP that reads so many numbers."""
        if self.hidden is not None:
            return self.hidden
        return (64, 64) if num_inputs <= _FEW_INPUTS else (256, 256)

    def or_else(self, *, hidden: tuple[int, ...] | None = None, activation: str | None = None) -> NetworkConfig:
        """This one, with an algorithm's own defaults for what is not set."""
        return dataclasses.replace(
            self,
            hidden=hidden if self.hidden is None else self.hidden,
            activation=self.activation or activation,
        )
