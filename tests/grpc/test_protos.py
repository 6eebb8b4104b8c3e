"""The generated files are what their .proto files make, and are used as they are."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ludus import errors
from ludus.grpc import generate

ROOT = Path(__file__).parents[2]
PROTOS = ROOT / "src" / "ludus" / "grpc" / "protos"

pytest.importorskip("grpc_tools")


@pytest.mark.parametrize("root", ["src", "examples"])
def test_the_generated_files_in_the_repository_are_not_stale(root: str) -> None:
    assert generate.stale(ROOT / root) == [], "run `make protos`"


def test_a_changed_proto_makes_its_files_stale_until_they_are_generated(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    shutil.copy(ROOT / "examples" / "returns" / "returns.proto", folder / "mine.proto")
    names = ["mine_pb2.py", "mine_pb2.pyi", "mine_pb2_grpc.py"]
    assert [path.name for path in generate.stale(tmp_path)] == names
    assert [path.name for path in generate.generate(tmp_path)] == names
    assert generate.main(["--check", str(tmp_path)]) == 0
    proto = folder / "mine.proto"
    proto.write_text(proto.read_text().replace("double gamma = 2;", "double gamma = 2; double lambda = 3;"))
    assert [path.name for path in generate.stale(tmp_path)] == names[:2]
    assert generate.main(["--check", str(tmp_path)]) == 1


def test_generated_files_import_each_other_from_their_root_without_being_touched(tmp_path: Path) -> None:
    """A service of one's own may use messages of Ludus, from any folder."""
    (tmp_path / "one").mkdir()
    shutil.copy(ROOT / "examples" / "returns" / "returns.proto", tmp_path / "one" / "two.proto")
    generate.generate(tmp_path)
    code = "from one import two_pb2, two_pb2_grpc; print(two_pb2.Rewards(gamma=0.5).gamma, two_pb2_grpc.ReturnsStub)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("0.5 <class 'one.two_pb2_grpc.ReturnsStub'>")


def test_a_proto_that_is_none_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigError, match=r"no \.proto file"):
        generate.generate(tmp_path)
    (tmp_path / "bad.proto").write_text("message {")
    with pytest.raises(errors.ConfigError, match="protoc refused"):
        generate.generate(tmp_path)
    assert generate.main([str(tmp_path)]) == 2
