"""Ray Serve on a cluster that this process starts and ends.

    with_ray_serve.py defaults|throughput

`throughput` is what its documents advise for high throughput (Performance Tuning; High Throughput, Ray 2.56 and
later): RAY_SERVE_THROUGHPUT_OPTIMIZED, and HAProxy in place of its Python proxy. Both: async methods, a high
max_ongoing_requests, no access log, a core reserved for each replica, and workers that are not niced. One replica of
each: sessions have state, and Ray Serve has no way to send a session's steps to the replica that holds it.

The settings are variables of the environment, so they are set here, before anything of Ray is imported.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from announce import bench_folder, free_port


def settings(mode: str) -> dict[str, str]:
    found = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
    if mode == "throughput":
        folder = bench_folder() / "haproxy"
        folder.mkdir(exist_ok=True)
        found.update(
            RAY_SERVE_THROUGHPUT_OPTIMIZED="1",
            RAY_SERVE_ENABLE_HA_PROXY="1",
            RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S="0",
            RAY_SERVE_HAPROXY_CONFIG_FILE_LOC=str(folder / "haproxy.cfg"),
            RAY_SERVE_HAPROXY_SOCKET_PATH=str(folder / "admin.sock"),
            RAY_SERVE_HAPROXY_SERVER_STATE_BASE=str(folder),
            RAY_SERVE_HAPROXY_SERVER_STATE_FILE=str(folder / "server-state"),
            RAY_SERVE_HAPROXY_METRICS_PORT=str(free_port()),
            RAY_SERVE_HAPROXY_STATS_PORT=str(free_port()),
        )
    return found


if __name__ == "__main__":
    apps = Path(__file__).resolve().parent / "ray_serve_apps.py"
    os.execve(sys.executable, [sys.executable, str(apps), sys.argv[1]], {**os.environ, **settings(sys.argv[1])})
