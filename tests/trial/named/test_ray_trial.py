"""A named trial whose workers Ray places."""

from __future__ import annotations

from pathlib import Path

import pytest

import ludus


def count(out: str) -> None:
    total = sum(item["n"] for _, item in zip(range(3), ludus.RemoteBuffer("b"), strict=False))
    ludus.merge("total", total, desc={"time_window_sum": "of all items"})
    Path(out).write_text(str(total))


@pytest.mark.ray
def test_trainers_buffers_and_metrics_work_on_ray_as_they_do_here(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    with ludus.init(tmp_path, "t", engine="ray") as trial:
        ludus.RemoteBuffer("b").push(*[{"n": n} for n in (1, 2, 3)])
        trainers = [ludus.RemoteTrainer(use_gpu=False, name=name) for name in ("one", "two")]
        trainers[0].train(train=count, out=str(tmp_path / "total"))
        assert trainers[0].wait(100)
        assert (tmp_path / "total").read_text() == "6"
        trainers[1].train(train=count, out=str(tmp_path / "never"))
        assert not trainers[1].wait(0.5)
    assert '"total/sum": 6.0' in (trial.folder / "metrics.jsonl").read_text()
    assert "secret" in (trial.folder / "trial.json").read_text()
