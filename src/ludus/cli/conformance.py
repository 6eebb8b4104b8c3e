"""`ludus conformance`: whether a server keeps the game protocol, rule by rule.

ludus conformance --url http://127.0.0.1:8000
"""

from __future__ import annotations

import argparse
import json
import ssl

from ludus.gateway import conformance

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="the server (default: http://127.0.0.1:8000)")
    parser.add_argument("--token", metavar="TEXT", help="the bearer token of the server")
    parser.add_argument("--secret", metavar="TEXT", help="the secret to sign with")
    parser.add_argument(
        "--data", metavar="TEXT", default="conformance", help="what is sent with each step: something the actor takes"
    )
    parser.add_argument("--lease-s", metavar="X", type=float, help="the server's lease, to have that checked")
    parser.add_argument("--slow", action="store_true", help="wait until the server cuts off a slow request, too")
    parser.add_argument(
        "--request-s", metavar="X", type=float, default=10.0, help="after how long it does that (default: 10)"
    )
    parser.add_argument(
        "--max-body-bytes", metavar="N", type=int, default=16 * 1024 * 1024, help="the server's limit (default: 16 MiB)"
    )
    parser.add_argument("--ca", metavar="FILE", help="whose certificates are trusted, for an https url")
    parser.add_argument("--only", metavar="CODE", action="append", default=[], help="check only the rule of that code")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")


def run(args: argparse.Namespace) -> int:
    """Returns 1 if any rule does not hold."""
    report = conformance.check(
        args.url,
        token=args.token,
        secret=args.secret,
        only=args.only,
        context=None if args.ca is None else ssl.create_default_context(cafile=args.ca),
        data=args.data.encode(),
        lease_s=args.lease_s,
        slow=args.slow,
        request_s=args.request_s,
        max_body_bytes=args.max_body_bytes,
    )
    print(json.dumps(report.to_json()) if args.json else report.text)
    return 0 if report.passed else 1
