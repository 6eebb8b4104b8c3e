"""`make protos`: messages and stubs beside each .proto file, with imports that work as they are.

python -m ludus.grpc.generate ROOT…            # of every .proto file below the folders
python -m ludus.grpc.generate --check ROOT…    # whether they are what they should be

A root is what the imports of its files begin at, in .proto files and in Python alike, so nothing is to be patched: the
root of Ludus's own is `src`, that of a program is where its own modules are found. Files of Ludus can be imported from
anywhere: `import "ludus/grpc/protos/data_type/batch.proto"`.
"""

from __future__ import annotations

import argparse
import importlib.resources
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import ludus
from ludus import errors

__all__ = ["generate", "main", "stale"]

_MESSAGES = {"python_out": "_pb2.py", "pyi_out": "_pb2.pyi"}  # by protoc's option, what it writes
_STUBS = {"grpc_python_out": "_pb2_grpc.py"}
_SERVICE = re.compile(r"^service\s", re.MULTILINE)
_SRC = Path(ludus.__file__).parents[1]


def generate(root: Path, into: Path | None = None) -> list[Path]:
    """Write what belongs to every .proto file below `root`: beside it, or at the same place below `into`.

    Raises `ConfigError` with what is wrong if a file is no proto, and `MissingExtra` without grpcio-tools.
    """
    try:
        from grpc_tools import protoc
    except ImportError:
        raise errors.MissingExtra("grpcio-tools", extra="dev") from None
    root = root.resolve()
    into = into or root
    files = sorted(str(path.relative_to(root)) for path in root.rglob("*.proto"))
    if not files:
        raise errors.ConfigError(f"there is no .proto file below {root}")
    roots = dict.fromkeys((root, _SRC, Path(str(importlib.resources.files("grpc_tools") / "_proto"))))
    words = ["protoc", *(f"--proto_path={each}" for each in roots)]
    services = [file for file in files if _SERVICE.search((root / file).read_text())]
    made = []
    for endings, chosen in ((_MESSAGES, files), (_STUBS, services)):
        outputs = [f"--{option}={into}" for option in endings]
        if chosen and protoc.main([*words, *outputs, *chosen]) != 0:
            raise errors.ConfigError(f"protoc refused the files below {root}; what it says is above")
        made += [into / (file.removesuffix(".proto") + ending) for file in chosen for ending in endings.values()]
    return made


def stale(root: Path) -> list[Path]:
    """The generated files below `root` that are missing or are not what `generate` would write."""
    root = root.resolve()
    with tempfile.TemporaryDirectory() as folder:
        made = generate(root, Path(folder))
        pairs = [(root / path.relative_to(folder), path.read_bytes()) for path in made]
    return [path for path, content in pairs if not path.is_file() or path.read_bytes() != content]


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m ludus.grpc.generate", description="Python of .proto files.")
    parser.add_argument("roots", nargs="+", type=Path, metavar="ROOT", help="folder that imports begin at")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is not as it should be")
    args = parser.parse_args(words)
    try:
        for root in args.roots:
            if args.check and (old := stale(root)):
                sys.stderr.write(f"not as its .proto file has it, run `make protos`: {', '.join(map(str, old))}\n")
                return 1
            if not args.check:
                sys.stdout.write("".join(f"{path}\n" for path in generate(root)))
    except (errors.ConfigError, errors.MissingExtra) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
