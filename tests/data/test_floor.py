from __future__ import annotations

import subprocess
import sys

from ludus import data


def test_the_floor_exports_these_names():
    assert data.__all__ == [
        "DEFAULT_LIMITS",
        "ActionSpec",
        "ArraySpec",
        "Batch",
        "Continuous",
        "Discrete",
        "Limits",
        "MultiDiscrete",
        "Nest",
        "Segment",
        "Structure",
        "codec",
        "decode",
        "encode",
        "nbytes",
        "nest",
        "spec",
        "spec_of",
        "validate",
    ]
    assert all(hasattr(data, name) for name in data.__all__)


def test_moving_bytes_needs_no_torch():
    code = "import sys, ludus.data; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=300, check=False).returncode == 0
