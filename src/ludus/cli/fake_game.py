"""`ludus fake-game`: games that play at once against a server, and what that cost.

ludus fake-game --url http://127.0.0.1:8000 --games 1,8,64 --ticks 200
"""

from __future__ import annotations

import argparse
import json

from ludus import errors
from ludus.cli import options
from ludus.cli.conformance import trust
from ludus.command_line import command_line
from ludus.fake.gamecore import FakeGamecore, LoadReport

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="the server (default: http://127.0.0.1:8000)")
    parser.add_argument(
        "--games", metavar="N[,N…]", type=_numbers, default=[64],
        help="how many play at once; several numbers are played one after another (default: 64)",
    )  # fmt: skip
    parser.add_argument("--ticks", metavar="N", type=int, default=200, help="ticks per episode (default: 200)")
    parser.add_argument("--episodes", metavar="N", type=int, default=1, help="episodes per game (default: 1)")
    parser.add_argument("--body-bytes", metavar="N", type=int, default=1024, help="bytes per request (default: 1024)")
    parser.add_argument("--body", metavar="TEXT", help="request body, instead of zeros")
    parser.add_argument("--rate", metavar="X", type=float, help="ticks a second of all games (default: as many as go)")
    parser.add_argument("--unnumbered", action="store_true", help="send no step numbers")
    options.add_secrets(parser, token="the bearer token of the server", secret="the secret to sign with")
    parser.add_argument("--ca", metavar="FILE", help="whose certificates are trusted, for an https url")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")


def run(args: argparse.Namespace) -> int:
    """Returns 1 if any request was answered by a problem or not at all."""
    reports = []
    context = trust(args.ca)
    token = options.find_secret("token", args.token, args.token_file)
    secret = options.find_secret("secret", args.secret, args.secret_file)
    for games in args.games:
        report = FakeGamecore(
            args.url,
            games,
            args.ticks,
            episodes=args.episodes,
            body_bytes=args.body_bytes,
            body=None if args.body is None else args.body.encode(),
            rate=args.rate,
            numbered=not args.unnumbered,
            token=token,
            secret=secret,
            context=context,
        ).run()
        _check_anything_came(report, args.url)
        reports.append(report)
        if not args.json:
            print(report.text, flush=True)
    if args.json:
        print(json.dumps({"url": args.url, "runs": [report.to_json() for report in reports]}))
    return 1 if any(report.num_errors for report in reports) else 0


def _check_anything_came(report: LoadReport, url: str) -> None:
    if not report.num_requests and set(report.errors) == {"unreachable"}:
        start = command_line("fake-actor", "--port", "8000")
        raise errors.Unreachable(f"nothing answers at {url}. Start a server, for one: {start}")


def _numbers(text: str) -> list[int]:
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number, nor several with commas between them") from None
    if min(numbers) < 1:
        raise argparse.ArgumentTypeError("at least one game is needed")
    return numbers
