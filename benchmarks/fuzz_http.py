"""Random HTTP against a real server: 10^6 requests, new in every run, none of which may do harm.

python benchmarks/fuzz_http.py                               # 1,000,000 requests; part of `make chaos`
LUDUS_FUZZ_SEED=123 python benchmarks/fuzz_http.py --requests 1000

`ludus fake-actor --echo` runs in a process of its own. Checked of every connection: well-formed requests are answered
200 with their own bodies, in order; a malformed one behind them is refused; nothing is answered 500. At the end the
server must be the same process, take a session, and keep no bytes of what it refused. The exit code is 1 if anything
does not hold, or if the time was up before all requests were sent.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import urllib.request

from ludus.gateway.client import GameClient
from ludus.testing.http_fuzz import FuzzReport, HttpFuzz, new_seed

TELL_EVERY_S = 10.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1_000_000, metavar="N", help="(default: 1000000)")
    parser.add_argument("--minutes", type=float, default=60.0, metavar="X", help="fail after that long (default: 60)")
    args = parser.parse_args()
    seed = new_seed()
    print(f"seed {seed}", flush=True)
    server = subprocess.Popen(
        [sys.executable, "-m", "ludus.cli.main", "fake-actor", "--echo", "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        url = server.stdout.readline().split("/step")[0]
        host, _, port = url.removeprefix("http://").partition(":")
        began = last = time.monotonic()

        def tell(report: FuzzReport) -> None:
            nonlocal last
            if time.monotonic() - last > TELL_EVERY_S:
                last = time.monotonic()
                rate = report.num_requests / (last - began)
                print(f"{report.num_requests} requests, {rate:.0f} a second", flush=True)

        report = HttpFuzz(seed).run(
            host, int(port), num_requests=args.requests, seconds=args.minutes * 60, on_progress=tell
        )
        report.violations += check_after(server, url)
    finally:
        server.kill()
        server.wait()
    print(report)
    print(f"{time.monotonic() - began:.0f} s")
    is_short = report.num_requests < args.requests
    if is_short:
        print(f"only {report.num_requests} of {args.requests} requests were sent within {args.minutes:g} minutes")
    return 1 if report.violations or is_short else 0


def check_after(server: subprocess.Popen[str], url: str) -> list[str]:
    """What is wrong with the server after all."""
    if server.poll() is not None:
        return [f"the server has ended with exit code {server.returncode}"]
    wrong = []
    with GameClient(url, timeout_s=60) as game:
        answers = [game.start(b"s"), game.tick(b"t"), game.end(b"e")]
    if answers != [b"s", b"t", b"e"]:
        wrong.append(f"a session was answered {answers}")
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as page:
        lines = page.read().decode().splitlines()
    buffered = [line for line in lines if line.startswith("ludus_buffered_bytes{")]
    if [line.rpartition(" ")[2] for line in buffered] != ["0"]:
        wrong.append(f"after all connections were closed: {buffered}")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
