"""The game: Pong against a clumsy wall of a player. It knows nothing of Ludus but the protocol, and is never imported.

    ludus train ppo game://127.0.0.1:8000 --spec pong.json --steps 300000 --trial pong    # learns from whatever calls
    python gamecore.py --url http://127.0.0.1:8000 --games 16                             # in another shell
    ludus serve pong --port 8000                                                          # afterwards

launch.py, with an actor and a trainer of one's own, takes the same game. Each match is a session: `start` and a `tick`
for every third frame, where the agent decides, then `end`. First to five points wins a match.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
import time

from ludus.errors import LudusError
from ludus.gateway.client import GameClient

PADDLE = 0.2  # half its height; the table is 2 × 2
SPEED = 0.06
OPPONENT_SPEED = 0.025
POINTS = 5
FRAMES = 3  # for each decision
MAX_FRAMES = 2000


class Pong:
    """The agent is on the right. A frame moves the ball and both paddles."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.score = [0, 0]
        self.own = self.other = 0.0
        self.frames = 0
        self.serve()

    def serve(self) -> None:
        self.x, self.y = 0.0, self.random.uniform(-0.5, 0.5)
        self.vx = 0.05 * self.random.choice((-1, 1))
        self.vy = self.random.uniform(-0.04, 0.04)

    def observation(self) -> list[float]:
        return [self.x, self.y, 10.0 * self.vx, 10.0 * self.vy, self.own, self.other]

    def step(self, move: int) -> float:
        """`move`: 0 stay, 1 up, 2 down. What the frame brought: 1 for a point, -1 for one of the other's."""
        self.frames += 1
        self.own = _within(self.own + (0.0, SPEED, -SPEED)[move], 1.0)
        chase = _within(self.y - self.other, OPPONENT_SPEED)
        self.other = _within(self.other + chase, 1.0)
        self.x += self.vx
        self.y += self.vy
        if abs(self.y) > 1.0:
            self.y = _within(self.y, 1.0)
            self.vy = -self.vy
        if self.x > 1.0:
            return self._arrive(self.own, loser=0)
        if self.x < -1.0:
            return self._arrive(self.other, loser=1)
        return 0.0

    def _arrive(self, paddle: float, *, loser: int) -> float:
        """The ball is at a side: it comes back faster, or it is a point."""
        if abs(self.y - paddle) <= PADDLE:
            self.x = _within(self.x, 1.0)
            self.vx = -1.03 * self.vx
            self.vy += 0.15 * (self.y - paddle) + self.random.uniform(-0.005, 0.005)
            return 0.0
        self.score[1 - loser] += 1
        self.serve()
        return -1.0 if loser == 0 else 1.0

    @property
    def is_over(self) -> bool:
        return max(self.score) >= POINTS or self.frames >= MAX_FRAMES


def play_match(url: str, session: str, seed: int) -> list[int]:
    """One match; the score, the agent's points first."""
    pong = Pong(seed)
    with GameClient(url, session) as game:
        answer = game.start(json.dumps({"obs": pong.observation()}).encode())
        while True:
            move = json.loads(answer)["action"]
            reward = sum(pong.step(move) for _ in range(FRAMES) if not pong.is_over)
            is_won = max(pong.score) >= POINTS
            step = json.dumps({"obs": pong.observation(), "reward": reward, "terminated": is_won}).encode()
            if pong.is_over:
                game.end(step)
                return [pong.score[0], pong.score[1]]
            answer = game.tick(step)


def _within(value: float, most: float) -> float:
    return max(-most, min(most, value))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--games", type=int, default=8, help="at the same time")
    parser.add_argument("--matches", type=int, default=0, help="in all; 0: until stopped")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    scores: list[list[int]] = []
    lock = threading.Lock()
    numbers = iter(range(args.matches) if args.matches else range(10**9))

    def play() -> None:
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            try:
                score = play_match(args.url, f"pong-{args.seed}-{number}", args.seed * 1_000_003 + number)
            except LudusError as error:  # the server leaves; a game that notices goes home
                print(f"match {number} was not played to its end: {error}", file=sys.stderr)
                return
            with lock:
                scores.append(score)

    threads = [threading.Thread(target=play, daemon=True) for _ in range(args.games)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    won = sum(own > other for own, other in scores)
    own, other = (sum(score[side] for score in scores) for side in (0, 1))
    print(
        json.dumps(
            {
                "matches": len(scores),
                "won": won,
                "points": own,
                "points_lost": other,
                "seconds": round(time.monotonic() - began, 1),
            }
        )
    )


if __name__ == "__main__":
    main()
