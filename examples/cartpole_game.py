"""A game that is learnt from while it is played: CartPole, some poles at once, over HTTP.

    ludus train appo game://127.0.0.1:8000 --spec examples/cartpole_game.json --steps 200000 --trial poles   # one shell
    python examples/cartpole_game.py --port 8000                                                             # another
    ludus serve poles --port 8000                                  # afterwards: the same game plays what was learnt

It plays until it is asked to stop (Ctrl-C, or a SIGTERM), or for `--episodes`. While nobody answers it tries again, so
it may be started first, and goes on after a restart of the other side.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal

import gymnasium

from ludus import errors
from ludus.gateway.client.aio import AsyncGameClient

RETRY_S = 0.5


async def play_episode(client: AsyncGameClient, env: gymnasium.Env, seed: int) -> float:
    """One session; its return."""
    obs, _ = env.reset(seed=seed)
    answer = await client.start(json.dumps({"obs": obs.tolist()}).encode())
    total = 0.0
    while True:
        obs, reward, terminated, truncated, _ = env.step(json.loads(answer)["action"])
        total += float(reward)
        body = {"obs": obs.tolist(), "reward": float(reward), "terminated": terminated}
        if terminated or truncated:
            await client.end(json.dumps(body).encode())
            return total
        answer = await client.tick(json.dumps(body).encode())


async def play(url: str, seed: int, returns: list[float], max_episodes: int, is_over: asyncio.Event) -> None:
    """One pole, until all poles together have played enough, or it is over: `wait_for` may miss a cancellation."""
    env = gymnasium.make("CartPole-v1")
    client = AsyncGameClient(url, timeout_s=60.0)
    while not is_over.is_set() and (not max_episodes or len(returns) < max_episodes):
        try:
            returns.append(await play_episode(client, env, seed))
        except errors.RpcError:  # nobody answers, or the session is lost: begin another one
            await asyncio.sleep(RETRY_S)
        seed += 1
    client.close()


async def main() -> None:
    parser = argparse.ArgumentParser(description="CartPole over HTTP")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--games", type=int, default=16, help="poles at once")
    parser.add_argument("--episodes", type=int, default=0, help="stop after so many in all; 0: when asked to")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    url = f"http://{args.host}:{args.port}"
    returns: list[float] = []
    is_over = asyncio.Event()
    poles = asyncio.gather(
        *(play(url, args.seed * 1_000_000 + n * 10_000, returns, args.episodes, is_over) for n in range(args.games))
    )

    def stop() -> None:
        is_over.set()
        poles.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    with contextlib.suppress(asyncio.CancelledError):
        await poles
    last = returns[-100:]
    mean = sum(last) / max(1, len(last))
    print(json.dumps({"episodes": len(returns), "return_mean_of_last_100": round(mean, 1)}))


if __name__ == "__main__":
    asyncio.run(main())
