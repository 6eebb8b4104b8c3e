"""`ludus conformance`: whether a server keeps the game protocol, rule by rule.

ludus conformance http://127.0.0.1:8000
ludus conformance grpc://127.0.0.1:8001
"""

from __future__ import annotations

import argparse
import json
import ssl
from dataclasses import asdict, dataclass

from ludus import errors
from ludus.cli import options
from ludus.gateway import conformance
from ludus.options import option

__all__ = ["add_arguments", "run", "trust"]


@dataclass(frozen=True, kw_only=True)
class _Limits:
    lease_s: float | None = option(None, help="the server's lease, to have that checked", minimum=0.1)
    request_s: float = option(10.0, help="after how long it cuts off a slow request, for --slow", minimum=0.1)
    max_body_bytes: int = option(16 * 1024 * 1024, help="largest request body that it accepts", minimum=1)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("server", nargs="?", metavar="URL", help="the server, by http(s):// or grpc(s)://")
    parser.add_argument("--url", help="the same (default: http://127.0.0.1:8000)")
    options.add_secrets(parser, token="the bearer token of the server", secret="the secret to sign with")
    parser.add_argument(
        "--data", metavar="TEXT", default="conformance", help="body of each step; must be valid for the actor"
    )
    parser.add_argument("--slow", action="store_true", help="wait until the server cuts off a slow request, too")
    options.add_options(parser, _Limits())
    parser.add_argument("--ca", metavar="FILE", help="whose certificates are trusted, for an https or a grpcs url")
    parser.add_argument("--only", metavar="CODE", action="append", default=[], help="check only the rule of that code")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")


def run(args: argparse.Namespace) -> int:
    """Returns 1 if any rule does not hold."""
    if args.server is not None and args.url is not None:
        raise errors.ConfigError(f"the server is given twice, as {args.server} and as --url {args.url}; give one")
    url = args.server or args.url or "http://127.0.0.1:8000"
    is_grpc = url.startswith(("grpc://", "grpcs://"))
    report = conformance.check(
        url,
        token=options.find_secret("token", args.token, args.token_file),
        secret=options.find_secret("secret", args.secret, args.secret_file),
        only=args.only,
        context=None if is_grpc else trust(args.ca),
        ca=args.ca if is_grpc else None,
        data=args.data.encode(),
        slow=args.slow,
        **(asdict(_Limits()) | options.given_options(args, _Limits())),
    )
    print(json.dumps(report.to_json()) if args.json else report.text)
    return 0 if report.passed else 1


def trust(ca: str | None) -> ssl.SSLContext | None:
    """What trusts the certificates of that file, of `--ca`."""
    if ca is None:
        return None
    try:
        return ssl.create_default_context(cafile=ca)
    except OSError as error:
        raise errors.ConfigError(f"--ca {ca}: no certificates could be read from it: {error}") from None
