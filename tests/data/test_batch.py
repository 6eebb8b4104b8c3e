from __future__ import annotations

import copy
import sys

import numpy as np
import pytest

from ludus.data import Batch
from ludus.errors import DataError, MissingExtra, SpecError


def example(rows: int = 6) -> Batch:
    return Batch(
        obs={"image": np.arange(rows * 4).reshape(rows, 2, 2), "speed": np.arange(rows, dtype="f4")},
        reward=np.arange(rows) / 2,
        state=None,
    )


def test_fields_are_found_by_name_and_as_attributes():
    batch = example()
    assert batch["reward"] is batch.reward
    assert batch.obs["image"].shape == (6, 2, 2)
    assert list(batch.keys()) == ["obs", "reward", "state"]
    assert "reward" in batch
    assert "value" not in batch
    assert dict(batch)["state"] is None
    assert set({**batch}) == {"obs", "reward", "state"}
    with pytest.raises(KeyError, match="value"):
        batch["value"]
    with pytest.raises(AttributeError, match="value"):
        batch.value  # noqa: B018
    assert not hasattr(batch, "__array__")


def test_length_and_iteration_are_over_rows():
    batch = example(3)
    assert len(batch) == 3
    assert batch.leading == (3,)
    assert [row["reward"] for row in batch] == [0, 0.5, 1]


def test_rows_are_dicts_and_slices_are_batches_of_views():
    batch = example()
    assert batch[2]["obs"]["speed"] == 2
    assert batch[-1]["reward"] == 2.5
    assert batch[np.int64(1)]["reward"] == 0.5
    part = batch[1:3]
    assert type(part) is Batch
    assert part.leading == (2,)
    assert np.shares_memory(part.obs["image"], batch.obs["image"])
    assert batch[[5, 0]].reward.tolist() == [2.5, 0]
    assert batch[np.array([True] + [False] * 5)].reward.tolist() == [0]
    for row in (6, -7):
        with pytest.raises(IndexError):
            batch[row]
    for index in ((0, 1), (slice(None), 0), np.zeros((2, 2), int), None, ...):
        with pytest.raises(DataError, match="takes a name"):
            batch[index]


def test_a_batch_can_have_several_leading_axes():
    batch = Batch(x=np.zeros((5, 3, 2)), r=np.zeros((5, 3)), num_axes=2)
    assert batch.leading == (5, 3)
    assert type(batch[0]) is Batch
    assert batch[0].leading == (3,)
    assert type(batch[0][0]) is dict
    assert batch[:2].leading == (2, 3)
    assert [part.leading for part in batch.split(3, axis=1)] == [(5, 1)] * 3


@pytest.mark.parametrize(
    ("fields", "num_axes", "path"),
    [
        ({"a": np.zeros(3), "b": {"c": [np.zeros(4)]}}, 1, "b/c/0"),
        ({"a": np.zeros(3), "b": 1.5}, 1, "b"),
        ({"a": "text", "b": np.zeros(3)}, 1, "a"),
        ({"a": np.zeros((3, 2)), "b": np.zeros(3)}, 2, "b"),
        ({"a": np.array(1.0)}, 1, "a"),
    ],
)
def test_leaves_that_do_not_share_the_leading_axes_are_named(fields, num_axes, path):
    with pytest.raises(SpecError) as caught:
        Batch(fields, num_axes=num_axes)
    assert caught.value.path == path


@pytest.mark.parametrize("fields", [{}, {"a": None}, {"a": []}, {1: np.zeros(2)}])
def test_a_batch_needs_an_array_and_names(fields):
    with pytest.raises(DataError):
        Batch(fields)
    with pytest.raises(DataError):
        Batch(a=np.zeros(2), num_axes=0)


def test_stack_concat_and_split():
    one, other = example(2), example(4)
    joined = Batch.concat([one, other])
    assert joined.reward.tolist() == [0, 0.5, 0, 0.5, 1, 1.5]
    assert joined.state is None
    assert [len(part) for part in joined.split([2, 4])] == [2, 4]
    assert joined.split(2)[1].reward.tolist() == [0.5, 1, 1.5]
    stacked = Batch.stack([one, one, one])
    assert stacked.leading == (3, 2)
    assert Batch.stack([one, one, one], axis=1).leading == (2, 3)
    for wrong in (lambda: Batch.stack([]), lambda: Batch.concat([]), lambda: Batch.stack([one], axis=2)):
        with pytest.raises(DataError):
            wrong()
    with pytest.raises(DataError, match="leading"):
        joined.split(2, axis=1)
    with pytest.raises(SpecError):
        Batch.concat([one, Batch(reward=np.zeros(2))])


def test_minibatches_visit_every_row_once():
    batch = example(7)
    assert [len(part) for part in batch.minibatches(3)] == [3, 3, 1]
    assert [len(part) for part in batch.minibatches(3, drop_last=True)] == [3, 3]
    assert np.shares_memory(next(batch.minibatches(3)).reward, batch.reward)
    shuffled = [part.reward for part in batch.minibatches(3, rng=np.random.default_rng(0))]
    assert sorted(np.concatenate(shuffled)) == sorted(batch.reward)
    assert np.concatenate(shuffled).tolist() != batch.reward.tolist()
    with pytest.raises(DataError):
        next(batch.minibatches(0))


def test_map_and_replace_make_new_batches():
    batch = example()
    assert batch.map(lambda x: x * 2).reward[1] == 1
    assert batch.map(lambda x: x * 2).state is None
    assert batch.replace(value=np.zeros(6), reward=np.ones(6)).reward.sum() == 6
    assert "value" not in batch
    assert Batch(batch).reward is batch.reward
    with pytest.raises(SpecError):
        batch.map(lambda x: x[:2] if x.ndim == 1 else x)


def test_a_batch_can_be_empty_of_rows_copied_and_printed():
    assert len(Batch(example()[:0])) == 0
    assert copy.deepcopy(example()).reward.tolist() == example().reward.tolist()
    assert "obs/image: int64[6, 2, 2]" in repr(example())


# --- torch


def test_tensors_share_memory_on_the_cpu_both_ways():
    torch = pytest.importorskip("torch")
    batch = example()
    tensors = batch.to_torch()
    assert isinstance(tensors.obs["image"], torch.Tensor)
    assert tensors.state is None
    batch.reward[0] = 9
    assert tensors.reward[0] == 9
    back = Batch.from_torch(tensors)
    assert np.shares_memory(back.reward, batch.reward)
    assert Batch.from_torch({"x": torch.ones(2, 3, requires_grad=True)}, num_axes=2).leading == (2, 3)


def test_batches_of_tensors_are_indexed_and_split_like_others():
    pytest.importorskip("torch")
    tensors = example().to_torch("cpu")
    assert tensors[1:3].reward.tolist() == [0.5, 1]
    assert tensors[[4, 0]].reward.tolist() == [2, 0]
    assert [len(part) for part in tensors.split(2)] == [3, 3]
    assert len(list(tensors.minibatches(2, rng=np.random.default_rng(0)))) == 3


@pytest.mark.filterwarnings("error")
def test_what_torch_cannot_share_is_copied():
    pytest.importorskip("torch")
    read_only = np.arange(3.0)
    read_only.flags.writeable = False
    batch = Batch(a=read_only, b=np.arange(3)[::-1], c=np.arange(3, dtype=">i4"), d=np.arange(6).reshape(3, 2)[:, ::-1])
    tensors = batch.to_torch()
    assert tensors.a.tolist() == [0, 1, 2]
    assert tensors.b.tolist() == [2, 1, 0]
    assert tensors.c.tolist() == [0, 1, 2]
    tensors.a[0] = 5
    assert read_only[0] == 0


def test_dtypes_that_the_other_side_does_not_have_are_named():
    torch = pytest.importorskip("torch")
    with pytest.raises(SpecError) as caught:
        Batch(a=np.zeros(2), b=[np.zeros(2, "M8[s]")]).to_torch()
    assert caught.value.path == "b/0"
    with pytest.raises(SpecError) as caught:
        Batch.from_torch({"a": {"b": torch.zeros(2, dtype=torch.bfloat16)}})
    assert caught.value.path == "a/b"


def test_without_torch_the_text_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtra, match=r"ludus\[torch\]"):
        example().to_torch()
    with pytest.raises(MissingExtra, match=r"ludus\[torch\]"):
        Batch.from_torch({"a": np.zeros(2)})
