"""What the machine allows: SAC's multiplications of 256 × 256 × 256 alone, one update after the other.

An update multiplies 15 times at that size: the policy at both observations (2), the target critics (2), the critics
(2) and their backward pass (4), the critics at the policy's actions (2) and back to those actions, each row through
the lesser of the two (1), the policy's backward pass (2). By the faster of torch's two libraries (`ludus.learn.ops.
products`); no env, no activation, no optimiser: nobody who computes in float32 by these kernels can be faster.
"""

from __future__ import annotations

import argparse
import json
import time

import torch

from ludus.learn.ops.products import multiply

SIZE = 256
NUM_PRODUCTS = 15
ROUND_S = 0.5
NUM_ROUNDS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    # As many matrices as an update has, so that they are no more at home in the caches than there.
    stacks = [torch.randn(NUM_PRODUCTS, SIZE, SIZE) for _ in range(3)]
    rates = [_rate(*stacks) for _ in range(NUM_ROUNDS)]
    print(json.dumps({"steps_per_second": max(rates), "versions": {"torch": torch.__version__}}))


def _rate(left: torch.Tensor, right: torch.Tensor, out: torch.Tensor) -> float:
    triples = list(zip(left, right, out, strict=True))
    num, began = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - began) < ROUND_S or num == 0:
        for a, b, product in triples:
            multiply(a, b, product)
        num += 1
    return num / elapsed


if __name__ == "__main__":
    main()
