"""The Nature CNN (Mnih et al. 2015) on 84x84x4 bytes: logits of six actions, and a value. The same for everyone.

Needs torch; `load_onnx` needs onnxruntime.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

SHAPE = (4, 84, 84)
NUM_ACTIONS = 6
NUM_OBSERVATIONS = 64


class NatureCNN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(4, 32, 8, 4),
            nn.ReLU(),
            nn.Conv2d(32, 64, 4, 2),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3, 1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(3136, 512),
            nn.ReLU(),
        )
        self.policy = nn.Linear(512, NUM_ACTIONS)
        self.value = nn.Linear(512, 1)

    def forward(self, observation: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.body(observation.float() * (1 / 255))
        return self.policy(hidden), self.value(hidden).squeeze(-1)


def make_model() -> NatureCNN:
    """The same weights in every process. Its logits are centred and spread, so that the actions vary."""
    torch.manual_seed(0)
    model = NatureCNN().eval()
    with torch.no_grad():
        hidden = model.body(torch.from_numpy(_images(64)).float() * (1 / 255)).mean(0)
        model.policy.weight *= 100
        model.policy.bias.copy_(-(model.policy.weight @ hidden))
    return model


def make_observations() -> tuple[np.ndarray, np.ndarray]:
    """Observations, and the actions that belong to them: those whose best action is best by far."""
    observations = _images(8 * NUM_OBSERVATIONS)
    with torch.inference_mode():
        logits = make_model()(torch.from_numpy(observations))[0].numpy()
    ordered = np.sort(logits, axis=1)
    clear = np.argsort(ordered[:, -2] - ordered[:, -1])[:NUM_OBSERVATIONS]
    return np.ascontiguousarray(observations[clear]), logits[clear].argmax(1)


def _images(count: int) -> np.ndarray:
    """Squares of random grey."""
    squares = np.random.default_rng(0).integers(0, 256, (count, 4, 7, 7), dtype=np.uint8)
    return squares.repeat(12, axis=2).repeat(12, axis=3)


def export_onnx(path: Path) -> None:
    names = {"input_names": ["observation"], "output_names": ["logits", "value"]}
    axes = {name: {0: "batch"} for name in ("observation", "logits", "value")}
    example = (torch.zeros((2, *SHAPE), dtype=torch.uint8),)
    torch.onnx.export(make_model(), example, str(path), dynamic_axes=axes, dynamo=False, **names)


def load_onnx(path: Path, *, threads: int) -> Any:
    """A function from a batch to logits and values."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda batch: session.run(None, {"observation": batch})
