"""The trainer: PPO on what the actors push. Runs in as many processes as launch.py asks for; gradients are averaged."""

from __future__ import annotations

import time

import torch
from model import NUM_MOVES

import ludus
from ludus.data.actions import Discrete
from ludus.learn import ops

EPOCHS, MINIBATCH = 4, 128
HEAD = ops.head_for(Discrete(NUM_MOVES))


def train_pong(model: str, buffer: str, *, segments: int, versions: int) -> None:
    torch.set_num_threads(1)
    remote_model = ludus.RemoteModel(model)
    net = remote_model.get_model()
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-3)
    source = ludus.PrefetchBuffer(
        ludus.TorchTensorBuffer(ludus.BatchBuffer(ludus.RemoteBuffer(buffer), batch_size=segments))
    )
    for number, batch in enumerate(source):
        if number >= versions:
            break
        began = time.monotonic()
        for group in optimiser.param_groups:
            group["lr"] = 1e-3 * (1.0 - number / versions)
        loss = improve(net, optimiser, {name: value.flatten(0, 1) for name, value in batch.items()})
        if ludus.rank() == 0:
            remote_model.publish_weights(ludus.get_torch_model_weights(net))
            ludus.merge("loss", loss, desc="of the last minibatch")
            ludus.merge("update_seconds", time.monotonic() - began)
    source.close()


def improve(net: torch.nn.Module, optimiser: torch.optim.Optimizer, batch: dict[str, torch.Tensor]) -> float:
    """Some passes of PPO over a batch of single steps."""
    chosen = batch["weight"].nonzero().squeeze(1)
    batch = {name: value[chosen] for name, value in batch.items()}
    batch["advantage"] = ops.normalise(batch["advantage"], batch["weight"] > 0.0)
    for _ in range(EPOCHS):
        for part in torch.randperm(len(chosen)).split(MINIBATCH):
            steps = {name: value[part] for name, value in batch.items()}
            logits, value = net(steps["obs"])
            loss, _metrics = ops.clipped_loss(
                HEAD, logits, value, action=steps["move"], logp=steps["logp"], advantage=steps["advantage"],
                value_target=steps["target"], clip=0.2, value_coef=1.0, entropy_coef=0.01,
            )  # fmt: skip
            optimiser.zero_grad()
            loss.backward()
            for parameter in net.parameters():
                parameter.grad = ludus.all_reduce(parameter.grad, op="mean")
            torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            optimiser.step()
    return float(loss.detach())
