"""The recursions of `ludus.learn.ops`, step by step and row by row, in double precision; and segments to try."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from hypothesis import strategies as st

torch.set_num_threads(1)


@dataclass
class Fields:
    """What the estimators take, as NumPy arrays."""

    reward: np.ndarray
    value: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    active: np.ndarray
    first: np.ndarray

    def tensors(self):
        return {name: torch.from_numpy(array) for name, array in vars(self).items()}


@st.composite
def fields(draw, max_steps=20):
    """Any flags at all on some, on others those that envs without turns, or with them, would give."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    num_steps, num_rows = draw(st.integers(1, max_steps)), draw(st.integers(1, 4))
    kind = draw(st.sampled_from(["any", "alone", "turns"]))
    end = draw(st.sampled_from([0.0, 0.1, 0.4]))
    reward = rng.standard_normal((num_steps, num_rows)).astype(np.float32)
    value = rng.standard_normal((num_steps + 1, num_rows)).astype(np.float32)
    terminated = rng.random((num_steps, num_rows)) < end
    truncated = rng.random((num_steps, num_rows)) < end
    first = rng.random((num_steps + 1, num_rows)) < end
    active = rng.random((num_steps + 1, num_rows)) < 0.6
    if kind != "any":
        for row in range(num_rows):
            final = False  # the observation at this step is an episode's last
            first[:, row] = False
            for t in range(num_steps + 1):
                active[t, row] = not final and (kind == "alone" or rng.random() < 0.5)
                if t == num_steps:
                    break
                if final:
                    reward[t, row] = 0.0
                    terminated[t, row] = truncated[t, row] = False
                    first[t + 1, row] = True
                final = bool(terminated[t, row] or truncated[t, row])
    return Fields(reward, value, terminated, truncated, active, first)


def _after(f, t, r, later, gamma):
    """U[t] of row r, given U[t + 1]."""
    if f.active[t, r]:
        return gamma * float(f.value[t, r])
    if f.terminated[t, r] or f.truncated[t, r]:
        return float(f.reward[t, r]) + (0.0 if f.terminated[t, r] else later)
    if f.first[t + 1, r]:
        return gamma * float(f.value[t, r])
    return float(f.reward[t, r]) + later


def slow_gae(f, *, gamma, lam):
    """`(advantage, value_target)`."""
    excess, _ = slow_vtrace(np.zeros_like(f.reward), f, gamma=gamma, lam=lam, rho_max=1.0, c_max=1.0)
    return excess - f.value[:-1], excess


def slow_vtrace(log_ratio, f, *, gamma, lam, rho_max, c_max):
    """`(value_target, pg_advantage)`."""
    num_steps, num_rows = f.reward.shape
    target, advantage = f.value[:-1].astype(np.float64), np.zeros((num_steps, num_rows))
    for r in range(num_rows):
        after, excess = gamma * float(f.value[num_steps, r]), 0.0
        for t in reversed(range(num_steps)):
            ended = f.terminated[t, r] or f.truncated[t, r]
            if f.active[t, r]:
                ratio = math.exp(log_ratio[t, r])
                delta = f.reward[t, r] + (0.0 if f.terminated[t, r] else after) - f.value[t, r]
                later = 0.0 if ended else excess
                advantage[t, r] = min(ratio, rho_max) * (delta + gamma * lam * later)
                excess = min(ratio, rho_max) * delta + gamma * lam * min(ratio, c_max) * later
                target[t, r] += excess
            elif ended or f.first[t + 1, r]:
                excess = 0.0
            after = _after(f, t, r, after, gamma)
    return target, advantage


def slow_n_step(f, *, gamma, n):
    """Forwards from every step where a row acts; the value elsewhere."""
    num_steps, num_rows = f.reward.shape
    returns = f.value[:-1].astype(np.float64)
    for r in range(num_rows):
        for start in range(num_steps):
            if f.active[start, r]:
                returns[start, r] = _return_from(f, start, r, gamma, n)
    return returns


def _return_from(f, start, r, gamma, n):
    """The rewards of n actions, each with those until the next, and the value of what is seen then."""
    total, weight, num_actions, t = 0.0, 1.0, 0, start
    while t < len(f.reward):
        acts, ends = f.active[t, r], f.terminated[t, r] or f.truncated[t, r]
        if acts and num_actions == n:
            break
        if not acts and not ends and f.first[t + 1, r]:
            break
        if acts:
            weight = gamma**num_actions
            num_actions += 1
        total += weight * float(f.reward[t, r])
        t += 1
        if f.terminated[t - 1, r]:
            return total
        if ends:
            return total + weight * _first_seen(f, t, r, gamma)
    return total + gamma**num_actions * float(f.value[t, r])


def _first_seen(f, t, r, gamma):
    """U[t]: what a truncated episode goes on in, from its final observation."""
    after = gamma * float(f.value[-1, r])
    for later in reversed(range(t, len(f.reward))):
        after = _after(f, later, r, after, gamma)
    return after
