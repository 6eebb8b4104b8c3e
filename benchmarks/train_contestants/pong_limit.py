"""What two cores could do with Pong: stepping, forward and training of the Nature CNN, each alone and at its fastest.

    pong_limit.py --seconds 1       seconds for each setting of each part

Every step has to be simulated, acted on and trained on once, so that with all cores on one part at a time
steps/s ≤ 1 / (1/stepping + 1/forward + 1/training).
"""

from __future__ import annotations

import argparse
import itertools
import os
import time
from collections.abc import Callable

import envpool
import numpy as np
import torch
from ale_py.vector_env import AtariVectorEnv
from report import Report
from torch import nn

NUM_ACTIONS = 6
CORES = os.cpu_count() or 1
THREADS = sorted({1, CORES})
LAYOUTS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}


class NatureCnn(nn.Module):
    """Takes frames as the environment gives them: uint8."""

    def __init__(self, layout: str) -> None:
        super().__init__()
        self._layout = LAYOUTS[layout]
        self._torso = nn.Sequential(
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
        self._policy = nn.Linear(512, NUM_ACTIONS)
        self._value = nn.Linear(512, 1)
        self.to(memory_format=self._layout)

    def forward(self, frames: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features = self._torso(frames.contiguous(memory_format=self._layout).float() / 255)
        return self._policy(features), self._value(features)[:, 0]


def rate(work: Callable[[], object], size: int, seconds: float) -> float:
    """Items per second when each call of `work` handles `size` of them."""
    for _ in range(3):
        work()
    done, begin = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - begin) < seconds:
        work()
        done += size
    return done / elapsed


def stepping(seconds: float) -> dict[str, float]:
    found = {}
    for threads, num_envs in itertools.product(THREADS, (16, 32, 64)):
        env = AtariVectorEnv("pong", num_envs=num_envs, num_threads=threads)
        env.reset()
        actions = np.random.randint(0, NUM_ACTIONS, num_envs)
        found[f"ale-py, {threads} threads, {num_envs} envs"] = rate(
            lambda e=env, a=actions: e.step(a), num_envs, seconds
        )
        env.close()
    for num_envs in (16, 64):
        env = envpool.make_gymnasium("Pong-v5", num_envs=num_envs, num_threads=CORES)
        env.reset()
        actions = np.random.randint(0, NUM_ACTIONS, num_envs).astype(np.int32)
        found[f"envpool, {CORES} threads, {num_envs} envs"] = rate(
            lambda e=env, a=actions: e.step(a), num_envs, seconds
        )
        env.close()
    return found


def forward(seconds: float) -> dict[str, float]:
    found = {}
    for threads, layout, size in itertools.product(THREADS, LAYOUTS, (16, 64, 256)):
        torch.set_num_threads(threads)
        network, batch = NatureCnn(layout), frames(size)
        with torch.inference_mode():
            found[setting(threads, layout, size)] = rate(lambda n=network, x=batch: n(x), size, seconds)
    return found


def training(seconds: float) -> dict[str, float]:
    """Forward, backward and a step of fused Adam."""
    found = {}
    for threads, layout, size in itertools.product(THREADS, LAYOUTS, (256, 512)):
        torch.set_num_threads(threads)
        found[setting(threads, layout, size)] = rate(make_training_step(layout, size), size, seconds)
    return found


def make_training_step(layout: str, size: int) -> Callable[[], None]:
    network, batch = NatureCnn(layout), frames(size)
    actions, advantages, targets = torch.randint(0, NUM_ACTIONS, (size, 1)), torch.randn(size), torch.randn(size)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-5, fused=True)

    def step() -> None:
        logits, values = network(batch)
        log_probs = logits.log_softmax(-1).gather(1, actions)[:, 0]
        loss = (values - targets).square().mean() - (log_probs * advantages).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def frames(size: int) -> torch.Tensor:
    return torch.randint(0, 256, (size, 4, 84, 84), dtype=torch.uint8)


def setting(threads: int, layout: str, size: int) -> str:
    return f"{threads} threads, {layout}, {size}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    report = Report.take_stdout()
    torch.manual_seed(args.seed)
    parts = {part.__name__: part(args.seconds) for part in (stepping, forward, training)}
    best = {name: max(found.items(), key=lambda item: item[1]) for name, found in parts.items()}
    limit = 1 / sum(1 / fastest for _, fastest in best.values())
    report.send("ale-py", "envpool", steps_per_second=limit, parts=best, settings=parts)


if __name__ == "__main__":
    main()
