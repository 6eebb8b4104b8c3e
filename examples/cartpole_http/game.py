"""A game that only speaks the protocol: CartPole, many at once, by plain HTTP of the standard library.

    python game.py --port 8000 --games 16 --seed 1
    python game.py --port 8000 --games 16 --episodes 100 --version production

All requests of a round are sent before the first answer is read, so that the server can run them as one batch.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import time

import gymnasium


class Game:
    """One pole at a time; each episode is a session."""

    def __init__(self, port: int, name: str, seed: int, version: str) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.env = gymnasium.make("CartPole-v1")
        self.name, self.seed, self.version = name, seed, version
        self.num_episodes = 0
        self.begin()

    def begin(self) -> None:
        self.session = f"{self.name}-{self.num_episodes}"
        obs, _ = self.env.reset(seed=self.seed + self.num_episodes)
        self.kind, self.step, self.total = "start", 0, 0.0
        self.body = {"obs": obs.tolist()}

    def send(self) -> None:
        headers = {"session": self.session, "step_kind": self.kind, "step": str(self.step), "version": self.version}
        self.connection.request("POST", "/step", json.dumps(self.body), headers)

    def receive(self) -> float | None:
        """Act on the answer; the episode's return if it was its last."""
        response = self.connection.getresponse()
        answer = response.read()
        if response.status != 200:
            raise RuntimeError(f"{self.kind} {self.step} of {self.session}: {answer.decode()}")
        self.step += 1
        if self.kind == "end":
            self.num_episodes += 1
            total = self.total
            self.begin()
            return total
        obs, reward, terminated, truncated, _ = self.env.step(json.loads(answer)["action"])
        self.total += float(reward)
        self.kind = "end" if terminated or truncated else "tick"
        self.body = {"obs": obs.tolist(), "reward": float(reward), "terminated": terminated}
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description="CartPole over HTTP")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--games", type=int, default=16)
    parser.add_argument("--episodes", type=int, default=0, help="in all; 0: until stopped")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--version", default="follow")
    args = parser.parse_args()
    began = time.monotonic()
    num_games = min(args.games, args.episodes or args.games)
    name = f"cartpole-{args.seed}-{args.version}"
    games = [Game(args.port, f"{name}-{n}", args.seed * 1_000_000 + n * 10_000, args.version) for n in range(num_games)]
    returns: list[float] = []
    num_steps = 0
    # each game plays its share of the episodes, so that short ones are not counted more often than long ones
    shares = [args.episodes // num_games + (n < args.episodes % num_games) for n in range(num_games)]
    while games:
        for game in games:
            game.send()
        totals = [game.receive() for game in games]
        returns += [total for total in totals if total is not None]
        num_steps += len(games)
        if args.episodes:
            left = [(g, s) for g, s in zip(games, shares, strict=True) if g.num_episodes < s]
            games, shares = [g for g, _ in left], [s for _, s in left]
    rate = num_steps / (time.monotonic() - began)
    print(
        json.dumps({"episodes": len(returns), "return_mean": statistics.mean(returns), "steps_per_second": round(rate)})
    )


if __name__ == "__main__":
    main()
