"""The journal: bounded on disk and at the start, and readable after damage."""

import logging
import os
import signal
import subprocess
import sys
import time

import pytest

from ludus.gateway.journal import Journal, lost_sessions, read_journal
from ludus.gateway.journal_records import encode

SEGMENT = 4096


def play(journal, names):
    for name in names:
        journal.began(name, "r")
        journal.ended(name, "asked")


def settle(journal, until_s=60.0):
    """Wait for a compaction that is under way; the next event completes it."""
    until = time.monotonic() + until_s
    while journal.is_compacting and time.monotonic() < until:
        time.sleep(0.001)
        journal.began("settle", "r")
        journal.ended("settle", "asked")


def test_the_file_that_a_start_reads_stays_small_however_many_sessions_have_ended(tmp_path):
    path = tmp_path / "journal"
    journal = Journal(path)
    journal.began("live", "7")
    play(journal, (f"session-{number}" for number in range(25_000)))
    settle(journal)
    journal.close()
    assert path.stat().st_size < 2 * 1024 * 1024
    assert Journal(path).lost == ("live",)


def test_segments_are_kept_as_history_up_to_a_number(tmp_path):
    path = tmp_path / "journal"
    journal = Journal(path, segment_bytes=SEGMENT, num_kept=3)
    journal.began("live", "7")
    for round_ in range(12):
        play(journal, (f"s{round_}-{number}" for number in range(60)))
        settle(journal)
    journal.ended("live", "asked")
    journal.close()
    kept = sorted(each.name for each in tmp_path.iterdir())
    assert len(kept) == 4, kept
    events = [event[:3] for event in read_journal(path) if event[1] != "settle"]
    assert events[0] == ("+", "live", "7"), "it is carried on from the segments that were removed"
    assert events[-1] == ("-", "live", "asked")
    names = [name for _, name, _ in events[1:-1]]
    assert all(names.count(name) == 2 for name in names), "each start and each end is there once"
    assert len(names) > 300


def test_an_end_that_switches_to_the_next_segment_is_an_event_of_that_one(tmp_path):
    path = tmp_path / "journal"
    journal = Journal(path, segment_bytes=SEGMENT, num_kept=0)
    journal.began("live", "7")
    while not journal.is_compacting:
        play(journal, ["other"])
    journal._compaction.wait(60)
    journal.ended("live", "asked")
    journal.close()
    assert list(tmp_path.iterdir()) == [path]
    assert [event[:3] for event in read_journal(path)] == [("+", "live", "7"), ("-", "live", "asked")]


def test_what_happens_during_a_compaction_is_not_lost(tmp_path):
    path = tmp_path / "journal"
    journal = Journal(path, segment_bytes=SEGMENT, num_kept=1000)
    live, num_ended = set(), 0
    for number in range(3000):
        journal.began(f"s{number}", str(number))
        live.add(f"s{number}")
        if number % 10:
            journal.ended(f"s{number - 1}", "asked")
            live.discard(f"s{number - 1}")
            num_ended += 1
    journal.close()
    assert set(Journal(path).lost) == live
    signs = [sign for sign, *_ in read_journal(path)]
    assert (signs.count("+"), signs.count("-")) == (3000, num_ended + len(live))


def test_lost_sessions_survive_compaction_and_those_that_began_again_do_not(tmp_path):
    path = tmp_path / "journal"
    journal = Journal(path, segment_bytes=SEGMENT)
    for name in ("first", "second"):
        journal.began(name, "r")
    journal = Journal(path, segment_bytes=SEGMENT)
    play(journal, ["second"])
    play(journal, (f"s{number}" for number in range(500)))
    settle(journal)
    journal.close()
    assert len(list(tmp_path.iterdir())) >= 2, "there was a compaction"
    assert Journal(path).lost == ("first",)


def test_sessions_that_were_lost_more_than_a_day_ago_are_not_carried_over(tmp_path):
    path = tmp_path / "journal"
    now = time.time()
    path.write_bytes(encode("=-", "long-ago", "lost", now - 25 * 3600) + encode("=-", "lately", "lost", now - 3600))
    journal = Journal(path, segment_bytes=SEGMENT)
    assert journal.lost == ("lately",)
    play(journal, (f"s{number}" for number in range(100)))
    settle(journal)
    journal.close()
    assert b"long-ago" not in path.read_bytes()
    assert Journal(path).lost == ("lately",)


def test_a_worker_that_is_killed_while_it_switches_leaves_no_event_twice(tmp_path):
    path = tmp_path / "journal"
    journal = Journal(path)
    play(journal, ["a", "b"])
    journal.close()
    os.link(path, tmp_path / "journal.000001")  # the old segment has its second name, the new one not yet its first
    assert len(list(read_journal(path))) == 4
    Journal(path).close()
    assert [each.name for each in tmp_path.iterdir()] == ["journal"]
    assert len(list(read_journal(path))) == 4


@pytest.mark.parametrize("flip", [0x10, 0xFF])
def test_one_flipped_byte_costs_at_most_its_own_record(tmp_path, flip, caplog):
    path = tmp_path / "journal"
    journal = Journal(path)
    for name in ("a", "b", "c"):
        journal.began(name, "run")
    journal.close()
    good = path.read_bytes()
    begins = [0, *(at + 1 for at, byte in enumerate(good) if byte == 0x0A)]
    for at in range(len(good)):
        path.write_bytes(good[:at] + bytes([good[at] ^ flip]) + good[at + 1 :])
        hurt = sum(begin <= at for begin in begins) - 1
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            lost = lost_sessions([path])
        others = [name for number, name in enumerate("abc") if number != hurt]
        if good[at] == 0x0A:  # the end of a line is no part of its record
            assert lost == ["a", "b", "c"], at
        else:
            assert lost == others, at
            if hurt < 2:  # the last may be a line that was cut off
                assert str(path) in caplog.text
                assert "skipped" in caplog.text


def test_a_damaged_journal_is_opened_and_says_once_what_was_skipped(tmp_path, caplog):
    path = tmp_path / "journal"
    journal = Journal(path)
    for name in ("a", "b", "c"):
        journal.began(name, "run")
    journal.close()
    damaged = bytearray(path.read_bytes())
    damaged[damaged.index(b"b run")] ^= 0xFF
    path.write_bytes(damaged)
    with caplog.at_level(logging.WARNING):
        assert Journal(path).lost == ("a", "c")
    assert caplog.text.count("skipped") == 1
    assert "1 damaged record" in caplog.text


def test_a_record_that_was_cut_off_is_no_damage(tmp_path, caplog):
    path = tmp_path / "journal"
    journal = Journal(path)
    journal.began("a", "run")
    journal.began("b", "run")
    journal.close()
    whole = path.read_bytes()
    for size in range(whole.index(b"\n") + 1, len(whole) - 1):
        path.write_bytes(whole[:size])
        journal = Journal(path)
        assert journal.lost == ("a",)
        journal.began("c", "run")
        journal.close()
        assert [event[:3] for event in read_journal(path)] == [("+", "a", "run"), ("-", "a", "lost"), ("+", "c", "run")]
    assert "skipped" not in caplog.text


def test_a_journal_of_the_older_format_is_read_and_replaced(tmp_path):
    path = tmp_path / "journal"
    lines = [f"+ s{number} r 1.5\n- s{number} asked 2.5\n" for number in range(500)]
    path.write_text("+ old 3 1.0\n" + "".join(lines))
    journal = Journal(path, segment_bytes=SEGMENT)
    assert journal.lost == ("old",)
    settle(journal)
    journal.close()
    assert path.stat().st_size < SEGMENT
    assert Journal(path).lost == ("old",)


def test_of_a_journal_that_is_far_too_large_the_end_is_read(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("ludus.gateway.journal_records.MAX_READ_OLDER_BYTES", 1000)
    path = tmp_path / "journal"
    path.write_text("+ early 3 1.0\n" + "".join(f"+ s{number} r 1.5\n- s{number} asked 2.5\n" for number in range(500)))
    with path.open("a") as file:
        file.write("+ late 3 5.0\n")
    with caplog.at_level(logging.WARNING):
        assert Journal(path).lost == ("late",)
    assert "only its last" in caplog.text


KILLED = """
import sys
from pathlib import Path
from ludus.gateway.journal import Journal
journal = Journal(Path(sys.argv[1]), segment_bytes=2000)
number = 0
print("up", flush=True)
while True:
    number += 1
    journal.began(f"s{number}", "r")
    if number > 20:
        journal.ended(f"s{number - 20}", "asked")
    print(number, flush=True)
"""


def test_a_worker_that_is_killed_while_it_compacts_leaves_a_whole_journal(tmp_path):
    for round_ in range(3):
        path = tmp_path / str(round_) / "journal"
        with subprocess.Popen([sys.executable, "-c", KILLED, path], stdout=subprocess.PIPE) as process:
            lines = [process.stdout.readline() for _ in range(200 + 37 * round_)]
            os.kill(process.pid, signal.SIGKILL)
            lines += process.stdout.read().splitlines()
        last = max(int(line) for line in lines if line.strip().isdigit())
        lost = {int(name[1:]) for name in lost_sessions([path])}
        assert lost >= set(range(last - 18, last + 1)), "all that were live when it said so last"
        assert lost <= set(range(last - 19, last + 2)), "and none that had ended"


def test_a_compaction_that_fails_is_tried_again_and_loses_nothing(tmp_path, caplog):
    folder = tmp_path / "gateway"
    path = folder / "journal"
    journal = Journal(path, segment_bytes=SEGMENT)
    (folder / "journal.new").mkdir()  # the new segment cannot be made
    journal.began("live", "7")
    play(journal, (f"s{number}" for number in range(200)))
    settle(journal)
    assert "cannot be compacted" in caplog.text
    assert path.stat().st_size > 2 * SEGMENT
    (folder / "journal.new").rmdir()
    play(journal, (f"s{number}" for number in range(200)))
    settle(journal)
    journal.close()
    assert path.stat().st_size < SEGMENT * 2
    assert Journal(path).lost == ("live",)
