"""The rows of one stream of segments: which entries a segment adds, how they are linked, which items are complete.

A stream is the segments of one simulator, or of one line of sessions, in their order. Of a segment `[T + 1, R]` these
steps become entries, row by row in time:

    acts               stored
    final observation  stored once, at the end of its episode: with the last step of a segment if need be, although the
                       next segment may begin with it again
    waits              not stored: its reward, and the end of the episode, belong to the row's last action
    padding, void      not stored; a void row has lost its past

Entries of a row are linked to a chain. It breaks where a row is void or torn, and where a stream begins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.data.nest import Nest
from ludus.data.segment import Segment
from ludus.errors import DataError
from ludus.services.buffer.trajectory_spec import ACTIVE, DONE, FIRST, TERMINATED, TRUNCATED

__all__ = ["Entries", "Links", "StreamRows"]

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
_NONE: Ints = np.empty(0, np.int64)
_NO_REWARDS: NDArray[np.float32] = np.empty(0, np.float32)
_NO_FLAGS: NDArray[np.uint8] = np.empty(0, np.uint8)


@dataclass(kw_only=True)
class Entries:
    """What a segment adds, in the order of the keys: by time, then by row."""

    step: Ints  # of the segment, up to and including T
    row: Ints
    flags: NDArray[np.uint8]
    reward: NDArray[np.float32]
    has_ghosts: Bools | None  # older frames are stored before the entry; None: nowhere
    is_whole: bool  # all steps but the last observation, of all rows: the arrays as they are
    folded_keys: Ints  # entries of earlier segments whose action got more
    folded_rewards: NDArray[np.float32]
    folded_flags: NDArray[np.uint8]
    is_linked: Bools  # [R] the row goes on from the last entry of the segment before


@dataclass(kw_only=True)
class Links:
    """Pairs of entries that follow each other, and the starts of items that are complete now."""

    before: Ints
    after: Ints
    complete: list[Ints]  # for each table, ascending


class StreamRows:
    """`lengths`: of the items of each table, in steps."""

    def __init__(self, num_rows: int, num_tables: int) -> None:
        self.num_rows = num_rows
        self._tail_key: Ints = np.full(num_rows, -1, np.int64)  # the last entry of each row; -1: no chain is open
        self._tail_active: Bools = np.zeros(num_rows, np.bool_)  # its action may get more, and its episode goes on
        self._is_active: Bools = np.zeros(num_rows, np.bool_)  # at the last observation, with which the next begins
        self._is_first: Bools = np.zeros(num_rows, np.bool_)  # the row waits in an episode in which it has not acted
        self._has_waited: Bools = np.zeros(num_rows, np.bool_)  # since its last entry
        self._num_acts: Ints = np.zeros(num_rows, np.int64)
        # The last entries of each row, as far as items of them are not complete; by row, then by time.
        self._row: Ints = _NONE
        self._key: Ints = _NONE
        self._pending: Bools = np.zeros((num_tables, 0), np.bool_)
        self._is_even = False  # as many of each row, and at least one
        self._grid: tuple[int, Ints, Ints] | None = None  # steps and rows of a plain segment of so many steps

    @property
    def newest(self) -> int:
        """The key of the last entry that can be linked to; -1: none."""
        return int(self._tail_key.max())

    # -- what a segment adds

    def plan(self, segment: Segment, *, oldest: int, has_ghosts: bool) -> Entries:
        """`oldest`: entries with smaller keys are, or will be with this segment, overwritten."""
        num_steps, num_rows = segment.reward.shape
        if num_rows != self.num_rows:
            raise DataError(f"the stream has {self.num_rows} rows, this segment {num_rows}; nothing was inserted")
        self._forget(oldest)
        if self._is_plain(segment) and (plain := self._plan_plain(segment, has_ghosts=has_ghosts)) is not None:
            return plain
        active, first = np.asarray(segment.active), np.asarray(segment.first)
        terminated, truncated = np.asarray(segment.terminated), np.asarray(segment.truncated)
        acts, done = active[:-1], terminated | truncated
        is_linked = (self._tail_key >= 0) & (~self._tail_active | (active[0] == self._is_active))
        flags = np.zeros((num_steps + 1, num_rows), np.uint8)
        flags[:-1] = acts * np.uint8(ACTIVE) | terminated * np.uint8(TERMINATED) | truncated * np.uint8(TRUNCATED)
        reward = np.asarray(segment.reward, np.float32)
        stored = np.zeros((num_steps + 1, num_rows), np.bool_)
        stored[:-1] = acts
        folded: tuple[Any, Any, Any] = (_NONE, _NO_REWARDS, _NO_FLAGS)
        void = first[0] & first[1] & ~acts.any(0)
        ends = first[1:] & ~done & ~acts
        final = np.zeros_like(stored)
        final[:-1] = ends & ~first[:-1]
        final[-1] = done[-1]
        final &= ~void
        waits = ~acts & ~ends & ~void
        is_linked &= ~void
        kept, before = self._kept(final, acts, first, is_linked)
        stored |= kept
        if waits.any():
            reward, folded = self._fold(waits, acts, first, reward, flags, is_linked)
        folded = self._cut_off(kept, before, flags, folded)
        flags *= stored
        is_first, gap = self._mark(stored, first, waits, void)
        flags |= is_first * np.uint8(FIRST)
        ghosts = None
        if has_ghosts:
            begins = np.zeros_like(stored)
            rows = np.flatnonzero(~is_linked & stored.any(0))
            begins[stored[:, rows].argmax(0), rows] = True
            ghosts = stored & ((flags & FIRST > 0) | gap | begins)
        self._is_active = active[-1].copy()
        step, row = np.nonzero(stored)
        return Entries(
            step=step,
            row=row,
            flags=flags[step, row],
            reward=reward[np.minimum(step, num_steps - 1), row] * (flags[step, row] & ACTIVE > 0),
            has_ghosts=None if ghosts is None else ghosts[step, row],
            is_whole=len(step) == num_steps * num_rows and bool(stored[:-1].all()),
            folded_keys=folded[0],
            folded_rewards=folded[1],
            folded_flags=folded[2],
            is_linked=is_linked,
        )

    def _is_plain(self, segment: Segment) -> bool:
        """Every row acts at every step and no episode ends: most segments are."""
        if not segment.active[:-1].all() or segment.terminated.any() or segment.truncated.any():
            return False
        return not (self._is_first.any() or self._has_waited.any())

    def _plan_plain(self, segment: Segment, *, has_ghosts: bool) -> Entries | None:
        """What `plan` would give, with little work; `None` if some entries need their older frames."""
        num_steps, num_rows = segment.reward.shape
        if self._grid is None or self._grid[0] != num_steps:
            step, row = np.divmod(np.arange(num_steps * num_rows), num_rows)
            self._grid = num_steps, step, row
        _, step, row = self._grid
        first = np.asarray(segment.first)[:-1].reshape(-1)
        is_linked = self._tail_key >= 0
        is_linked &= ~self._tail_active | (segment.active[0] == self._is_active)
        if has_ghosts and (first.any() or not is_linked.all()):
            return None
        self._is_active = np.array(segment.active[-1])
        return Entries(
            step=step,
            row=row,
            flags=first * np.uint8(FIRST) | np.uint8(ACTIVE),
            reward=np.asarray(segment.reward, np.float32).reshape(-1),
            has_ghosts=np.zeros(len(step), np.bool_) if has_ghosts else None,
            is_whole=True,
            folded_keys=_NONE,
            folded_rewards=_NO_REWARDS,
            folded_flags=_NO_FLAGS,
            is_linked=is_linked,
        )

    def _forget(self, oldest: int) -> None:
        """Entries that are overwritten cannot be linked to, nor are their items."""
        if len(self._key) and int(self._key.min()) < oldest:
            kept = self._key >= oldest
            self._row, self._key, self._pending = self._row[kept], self._key[kept], self._pending[:, kept]
            self._is_even = False
            self._tail_active &= self._tail_key >= oldest
            self._tail_key[self._tail_key < oldest] = -1

    def _kept(self, final: Bools, acts: Bools, first: Bools, is_linked: Bools) -> tuple[Bools, Ints]:
        """Final observations of episodes with an action: others were stored before, or there is nothing to end.

        Also the step of that action; -1: it is in an earlier segment.
        """
        kind = final.astype(np.int8) * 2
        kind[:-1] += acts
        steps = np.arange(len(kind))[:, None]
        before = np.maximum.accumulate(np.where(kind > 0, steps, -1), axis=0)
        before[1:] = before[:-1]
        before[0] = -1
        kind_before = np.take_along_axis(kind, np.maximum(before, 0), 0)
        follows = np.where(before >= 0, kind_before == 1, self._tail_active & is_linked & ~self._is_first)
        last_first = np.maximum.accumulate(np.where(first, steps, -1), axis=0)
        last_first[-1] = last_first[-2]  # an episode that begins there is of the next segment
        return final & follows & (last_first <= before), before

    def _cut_off(
        self, final: Bools, before: Ints, flags: NDArray[np.uint8], folded: tuple[Any, Any, Any]
    ) -> tuple[Any, Any, Any]:
        """An episode that has a final observation, and nobody ended it, was cut off."""
        step, row = np.nonzero(final)
        into = before[step, row]
        at = (into[into >= 0], row[into >= 0])
        flags[at] |= np.where(flags[at] & DONE, 0, TRUNCATED).astype(np.uint8)
        keys, rewards, ended = folded
        earlier = self._tail_key[row[into < 0]]
        new = earlier[~np.isin(earlier, keys[(ended & DONE) > 0])]
        if not len(new):
            return folded
        known = np.isin(keys, new)
        ended[known] |= TRUNCATED
        new = new[~np.isin(new, keys)]
        return (
            np.concatenate((keys, new)),
            np.concatenate((rewards, np.zeros(len(new), np.float32))),
            np.concatenate((ended, np.full(len(new), TRUNCATED, np.uint8))),
        )

    def _fold(
        self,
        waits: Bools,
        acts: Bools,
        first: Bools,
        reward: NDArray[np.float32],
        flags: NDArray[np.uint8],
        is_linked: Bools,
    ) -> tuple[NDArray[np.float32], tuple[Any, Any, Any]]:
        """Give what waiting steps brought to the last action of their episode, in this segment or before it."""
        steps = np.arange(len(acts))[:, None]
        last_act = np.maximum.accumulate(np.where(acts, steps, -1), axis=0)
        last_first = np.maximum.accumulate(np.where(first[:-1], steps, -1), axis=0)
        belongs = waits & (last_act >= last_first)
        reward = reward.copy()
        ends = flags[:-1] & np.uint8(DONE)
        step, row = np.nonzero(belongs & (last_act >= 0))
        into = last_act[step, row]
        np.add.at(reward, (into, row), reward[step, row])
        np.bitwise_or.at(flags, (into, row), ends[step, row])
        earlier = belongs & (last_act < 0) & (self._tail_active & is_linked & ~self._is_first)
        rows = np.flatnonzero(earlier.any(0))
        rewards = np.where(earlier, reward, np.float32(0)).sum(0, dtype=np.float32)[rows]
        ended = np.bitwise_or.reduce(np.where(earlier, ends, np.uint8(0)), axis=0)[rows]
        return reward, (self._tail_key[rows], rewards, ended)

    def _mark(self, stored: Bools, first: Bools, waits: Bools, void: Bools) -> tuple[Bools, Bools]:
        """Which stored entries are the first of their episode, and before which there are steps that are not stored."""
        num_steps = len(waits)
        steps = np.arange(num_steps + 1)[:, None]
        last_first = np.where(first, steps, -1)
        last_first[-1] = -1  # it belongs to the next segment
        last_first = np.maximum.accumulate(last_first, axis=0)
        last_wait = np.full_like(last_first, -1)
        last_wait[:-1] = np.where(waits, steps[:-1], -1)
        last_wait = np.maximum.accumulate(last_wait, axis=0)
        latest = np.maximum.accumulate(np.where(stored, steps, -1), axis=0)
        before = np.empty_like(latest)
        before[0], before[1:] = -1, latest[:-1]
        is_first = stored & ((last_first > before) | ((before < 0) & self._is_first))
        gap = stored & ((last_wait > before) | ((before < 0) & self._has_waited))
        is_none = latest[-1] < 0
        self._is_first = ((last_first[-1] > latest[-1]) | (is_none & self._is_first)) & ~void
        self._has_waited = ((last_wait[-1] > latest[-1]) | (is_none & self._has_waited)) & ~void
        return is_first, gap

    # -- how its entries follow each other

    def link(self, entries: Entries, keys: Ints, lengths: list[int], starts: Bools) -> Links:
        """`keys`: of the entries. `starts`: bool [tables, entries], where items of each table may start."""
        if entries.is_whole and self._is_even and entries.is_linked.all() and not (entries.flags != ACTIVE).any():
            return self._link_plain(keys, lengths, starts)
        num_old = len(self._key)
        row = np.concatenate((self._row, entries.row))
        key = np.concatenate((self._key, keys))
        flags = np.concatenate((np.full(num_old, ACTIVE, np.uint8), entries.flags))
        if len(entries.folded_keys):
            folded = np.flatnonzero(np.isin(self._key, entries.folded_keys))
            by_key = entries.folded_keys.argsort()
            at = by_key[entries.folded_keys[by_key].searchsorted(self._key[folded])]
            flags[folded] |= entries.folded_flags[at]
        pending = np.concatenate((self._pending, starts), axis=1)
        if self.num_rows > 1:
            order = row.argsort(kind="stable")
            row, key, flags, pending = row[order], key[order], flags[order], pending[:, order]
            is_new = order >= num_old
        else:
            is_new = np.arange(len(key)) >= num_old
        num = len(key)
        if not num:
            return Links(before=_NONE, after=_NONE, complete=[_NONE] * len(lengths))
        place = np.arange(num)
        other_row = np.empty(num, np.bool_)
        other_row[0] = True
        np.not_equal(row[1:], row[:-1], out=other_row[1:])
        begins = other_row.copy()
        begins[1:] |= is_new[1:] & ~is_new[:-1] & ~entries.is_linked[row[1:]]
        open_before = (flags[:-1] & (ACTIVE | DONE)) == ACTIVE
        if num_old:
            open_before &= is_new[:-1] | self._tail_active[row[:-1]]
        begins[1:] |= (flags[1:] & FIRST > 0) & open_before & is_new[1:]  # torn: an episode that nobody ended
        is_last = np.empty(num, np.bool_)
        is_last[:-1], is_last[-1] = begins[1:], True
        end = np.minimum.accumulate(np.where(is_last, place, num)[::-1])[::-1]
        linked = np.flatnonzero(~is_last[:-1] & is_new[1:])
        has_end = (flags & DONE) > 0
        if has_end.any():
            next_end = np.minimum.accumulate(np.where(has_end, place, num)[::-1])[::-1]
            is_ended = next_end <= end
        else:
            is_ended = has_end
        complete = []
        for number, length in enumerate(lengths):
            is_complete = pending[number] & (is_ended | (place + length <= end))
            pending[number] &= ~is_complete
            found = key[is_complete]
            found.sort()
            complete.append(found)
        # A row goes on from its last chain alone.
        ends_row = np.empty(num, np.bool_)
        ends_row[:-1], ends_row[-1] = other_row[1:], True
        row_end = np.minimum.accumulate(np.where(ends_row, place, num)[::-1])[::-1]
        kept = (end == row_end) & (place > end - max(lengths, default=1))
        self._row, self._key, self._pending = row[kept], key[kept], pending[:, kept]
        tails = np.flatnonzero(ends_row & is_new)
        self._tail_key[~entries.is_linked] = -1
        self._tail_active[~entries.is_linked] = False
        self._tail_key[row[tails]] = key[tails]
        self._tail_active[row[tails]] = (flags[tails] & (ACTIVE | DONE)) == ACTIVE
        self._drop_rows_without_tail()
        counts = np.bincount(self._row, minlength=self.num_rows)
        self._is_even = bool(counts[0]) and bool((counts == counts[0]).all())
        return Links(before=key[linked], after=key[linked + 1], complete=complete)

    def _link_plain(self, keys: Ints, lengths: list[int], starts: Bools) -> Links:
        """What `link` would give for rows that all go on, as arrays [rows, entries of each]."""
        num_rows, num_old = self.num_rows, len(self._key) // self.num_rows
        key = np.concatenate((self._key.reshape(num_rows, num_old), keys.reshape(-1, num_rows).T), axis=1)
        new = starts.reshape(len(starts), -1, num_rows).transpose(0, 2, 1)
        pending = np.concatenate((self._pending.reshape(len(starts), num_rows, num_old), new), axis=2)
        num = key.shape[1]
        complete = []
        for number, length in enumerate(lengths):
            place = max(0, num - length)
            found = key[:, :place][pending[number, :, :place]]
            pending[number, :, :place] = False
            if len(found) > 1:
                found.sort()
            complete.append(found)
        kept = min(num, max(lengths, default=1))
        self._key = key[:, num - kept :].reshape(-1)
        self._pending = pending[:, :, num - kept :].reshape(len(starts), -1)
        if kept != num_old:
            self._row = np.repeat(np.arange(num_rows), kept)
        self._tail_key = key[:, -1].copy()
        self._tail_active = np.ones(num_rows, np.bool_)
        return Links(before=key[:, num_old - 1 : -1].reshape(-1), after=key[:, num_old:].reshape(-1), complete=complete)

    def _drop_rows_without_tail(self) -> None:
        """Of a row that is void the past is lost."""
        if len(self._row) and (self._tail_key < 0).any():
            kept = self._tail_key[self._row] >= 0
            self._row, self._key, self._pending = self._row[kept], self._key[kept], self._pending[:, kept]

    def count_acts(self, entries: Entries) -> Ints:
        """For each entry, how many actions its row had before it."""
        is_act = (entries.flags & ACTIVE) > 0
        if entries.is_whole:
            num = len(entries.step) // self.num_rows
            before = (self._num_acts + np.arange(num)[:, None]).reshape(-1)
            self._num_acts += num
            return before
        order = entries.row.argsort(kind="stable")
        acts = is_act[order]
        total: Ints = np.cumsum(acts) - acts
        rows = entries.row[order]
        is_start = np.ones(len(rows), np.bool_)
        is_start[1:] = rows[1:] != rows[:-1]
        offset = np.maximum.accumulate(np.where(is_start, total, 0))
        before = np.empty(len(rows), np.int64)
        before[order] = total - offset + self._num_acts[rows]
        np.add.at(self._num_acts, entries.row, is_act)
        return before

    def first_of_rows(self, entries: Entries) -> Bools:
        """The entries before which a segment's recurrent state is known: a row's first action, or of an episode."""
        is_act = (entries.flags & ACTIVE) > 0
        acts = np.flatnonzero(is_act)
        _, index = np.unique(entries.row[acts], return_index=True)
        known = np.zeros(len(is_act), np.bool_)
        known[acts[index]] = True
        known &= (entries.step == 0) | (entries.flags & FIRST > 0)
        return known

    # -- checkpoints

    def save(self) -> Nest:
        names = ("tail_key", "tail_active", "is_active", "is_first", "has_waited", "num_acts", "row", "key", "pending")
        return {name: getattr(self, f"_{name}").copy() for name in names}

    @classmethod
    def restore(cls, saved: Nest) -> StreamRows:
        rows = cls(len(saved["tail_key"]), len(saved["pending"]))
        for name, array in saved.items():
            setattr(rows, f"_{name}", np.array(array))
        counts = np.bincount(rows._row, minlength=rows.num_rows)
        rows._is_even = bool(counts[0]) and bool((counts == counts[0]).all())
        return rows
