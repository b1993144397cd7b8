"""Emulated acceleration: the experiment's own arithmetic. No bus is run."""

import math
from dataclasses import replace

import numpy as np
import pytest

from mez_bench.acceleration import paper
from mez_bench.aitax.durable import Progress, durable_count
from mez_bench.aitax.judged import Stamps, judged, majority, place_in_stream, stable_max
from mez_bench.aitax.model import stable
from mez_bench.aitax.plan import (
    DRIVE_SHARE_AT_1,
    IDENTIFY_S,
    MAKE_S,
    USED_SHARE,
    Load,
    Schedule,
    partition,
    schedule,
    spread_names,
)
from mez_bench.aitax.runs import Ran, parts
from mez_bench.aitax.settings import PARTS, Point, Setting, settings, stable_max_of

SEED = 26
SECONDS = 60.0


def planned(factor: float, load: Load | None = None) -> Schedule:
    """A minute of a small load."""
    return schedule(load or Load(4), factor, SECONDS, np.random.default_rng(SEED))


@pytest.mark.parametrize("factor", [1.0, 6.0, 32.0])
def test_workers_are_as_busy_at_every_factor_and_no_frame_is_left_out(factor: float) -> None:
    """The factor divides waits and multiplies arrivals."""
    load, plan = Load(4), planned(factor)
    offered = len(plan.due_s) / SECONDS
    assert offered == pytest.approx(load.records_per_second * factor, rel=0.02)
    assert offered * plan.service_s / load.workers == pytest.approx(USED_SHARE, rel=0.02)
    assert offered * MAKE_S / factor / load.producers <= USED_SHARE
    assert plan.service_s == IDENTIFY_S / factor


def test_faces_are_made_in_order_one_at_a_time_by_each_producer() -> None:
    """A frame waits for its producer, then the producer takes its time for it."""
    factor = 4.0
    plan = planned(factor)
    assert (np.diff(plan.due_s) >= 0).all()
    seen = np.concatenate([plan.of_producer(number) for number in range(plan.producers)])
    assert sorted(seen) == list(range(len(plan.due_s)))
    for number in range(plan.producers):
        made_s = plan.made_s[plan.of_producer(number)]
        assert (np.diff(made_s) >= MAKE_S / factor - 1e-9).all()
    assert (plan.made_s - plan.due_s >= MAKE_S / factor - 1e-9).all()


def test_a_drive_is_ten_times_what_payloads_take_and_smaller_thumbnails_do_not_make_it_slower() -> None:
    """Section 5.4: a tenth at 1 times. The limit is that of the drive, not of the thumbnails."""
    load = Load(4)
    taken = load.records_per_second * paper.RECORD_BYTES
    assert taken / load.drive_bytes_per_second == pytest.approx(DRIVE_SHARE_AT_1)
    assert Load(4, paper.RECORD_BYTES // 8).drive_bytes_per_second == load.drive_bytes_per_second


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        ("21", -973932308),
        ("foobar", -790332482),
        ("a-little-bit-long-string", -985981536),
        ("abc", 479470107),
    ],
)
def test_cameras_fall_into_partitions_as_kafkas_clients_put_them(key: str, hashed: int) -> None:
    """Values of Kafka's own test of its hash (`UtilsTest.testMurmur2`)."""
    assert partition(key, 1 << 31) == hashed & 0x7FFFFFFF


def test_each_camera_has_a_partition_of_its_own() -> None:
    """Otherwise a worker of a consumer group has more to do than the others."""
    names = spread_names(8)
    assert len(set(names)) == 8
    assert [partition(name, 8) for name in names] == list(range(8))


def stamps(waits_s: np.ndarray, *, durable_s: np.ndarray | None = None) -> Stamps:
    """What a bus leaves that lets records wait for so long: made after 5 ms, worked on for 10 ms.

    The disk is looked at every 0.1 ms.
    """
    due_s = np.linspace(0, 10, len(waits_s), endpoint=False)
    made_s = due_s + 0.005
    fetched_s = made_s + waits_s
    missing_s = None if durable_s is None else np.nan_to_num(durable_s, nan=math.inf) - 1e-4
    return Stamps(due_s, made_s, made_s + 0.001, fetched_s, fetched_s + 0.010, durable_s, missing_s, 0)


def spread(count: int = 2000) -> np.ndarray:
    """Waits that do not grow: 2 to 6 ms."""
    return np.random.default_rng(SEED).uniform(0.002, 0.006, count)


def test_a_bus_that_keeps_up_is_stable_and_its_waiting_is_told() -> None:
    """4 of 19 ms on average."""
    told = judged(stamps(spread()), np.zeros(2000), 0.010, 12.0)
    assert told.is_stable
    assert told.completed_share == 1
    assert told.waiting_share == pytest.approx(4 / 19, abs=0.005)
    assert told.whole_ms == pytest.approx(19, abs=0.1)
    assert told.bound_share == 0


def test_a_latency_that_grows_is_unstable_even_if_all_records_come() -> None:
    """By 20 ms in each second."""
    told = judged(stamps(spread() + np.linspace(0, 0.2, 2000)), np.zeros(2000), 0.010, 12.0)
    assert told.completed_share == 1
    assert not told.is_stable
    assert told.verdict is not None
    assert told.verdict.slope == pytest.approx(0.02, abs=0.001)


def test_a_record_in_a_thousand_may_be_missing_and_no_more() -> None:
    """Missing are those that never came, and those that came too late."""
    for missing, is_stable in ((2, True), (3, False)):
        waits_s = spread()
        waits_s[[100, 700, 1300][:missing]] = math.nan
        assert judged(stamps(waits_s), np.zeros(2000), 0.010, 12.0).is_stable == is_stable
    late = spread()
    late[100:103] = 30.0
    assert not judged(stamps(late), np.zeros(2000), 0.010, 12.0).is_stable


def test_a_bus_that_completes_next_to_nothing_is_unstable() -> None:
    """There is no slope of nothing, nor a latency."""
    told = judged(stamps(np.full(2000, math.nan)), np.zeros(2000), 0.010, 12.0)
    assert not told.is_stable
    assert (told.verdict, told.whole_ms, told.waiting_share, told.completed_share) == (None, None, None, 0)


def test_records_count_only_once_they_are_durable() -> None:
    """Workers keep up and the drive does not: each record is on disk later than the one before."""
    quick = stamps(spread())
    durable_s = quick.made_s * 1.3
    told = judged(stamps(spread(), durable_s=durable_s), np.zeros(2000), 0.010, 12.0)
    assert not told.is_stable
    assert told.completed_share < 0.95
    never = np.full(2000, math.nan)
    assert judged(stamps(spread(), durable_s=never), np.zeros(2000), 0.010, 12.0).completed_share == 0


def test_records_that_were_acknowledged_before_they_were_durable_are_counted() -> None:
    """200 records a second, each on disk 40 ms after its acknowledgement: 8 at once. Before it: none."""
    quick = stamps(spread())
    after = judged(stamps(spread(), durable_s=quick.acked_s + 0.0399), np.zeros(2000), 0.010, 12.0)
    assert after.not_durable_share == 1
    assert after.not_durable_max == 8
    before = judged(stamps(spread(), durable_s=quick.acked_s), np.zeros(2000), 0.010, 12.0)
    assert (before.not_durable_share, before.not_durable_max) == (0, 0)
    durable_s = quick.acked_s.copy()
    durable_s[-3:] = math.nan
    never = judged(stamps(spread(), durable_s=durable_s), np.zeros(2000), 0.010, 12.0)
    assert never.not_durable_max == 3
    # It was acknowledged and became durable between two looks, in unknown order.
    looked = stamps(spread(), durable_s=quick.acked_s + 0.020)
    looked = replace(looked, missing_s=quick.acked_s - 0.001)
    assert judged(looked, np.zeros(2000), 0.010, 12.0).not_durable_share == 0


def test_records_become_durable_when_the_count_has_passed_them() -> None:
    """Counts only grow; what was not seen to be durable has no moment."""
    seen = Progress()
    for moment, count in ((10, 0), (20, 3), (30, 3), (40, 5)):
        seen.note(moment - 1, moment, count)
    assert [seen.moment_ns(index) for index in range(6)] == [20, 20, 20, 40, 40, 0]
    assert [seen.missing_ns(index) for index in range(6)] == [9, 9, 9, 29, 29, 39]
    line = f"{7:020} {8:020} {9:020} 0f3c {0xAB:08x}\n"
    assert durable_count(line) == 8
    assert durable_count("") is None


def test_places_in_streams_count_for_each_camera() -> None:
    """In the order of the records."""
    assert place_in_stream(np.array([2, 0, 2, 2, 0])).tolist() == [0, 0, 1, 2, 1]


def test_a_factor_counts_only_if_all_smaller_ones_were_stable() -> None:
    """Luck at a large factor is no speedup."""
    assert stable_max({1: True, 2: True, 4: False, 8: True}) == 2
    assert stable_max({1: False, 2: True}) == 0
    assert stable_max({8: True, 1: True}) == 8
    assert majority([False, True, True])
    assert not majority([False])
    assert not majority([False, True, False])


def test_members_are_shared_among_processes() -> None:
    """None is left out, and none is in two."""
    assert parts(5) == [(0, 2, 4), (1, 3)]
    assert parts(1) == [(0,)]


def test_both_buses_are_given_the_same() -> None:
    """Wherever they are compared: factors, durability, drives and sizes."""
    for part in PARTS:
        for quick in (False, True):
            given = settings(part, quick=quick)
            by_bus = {
                bus: [
                    (one.factors, one.on_disk, one.drives, one.size_share) for one in given if one.bus == bus
                ]
                for bus in ("mez", "kafka")
            }
            assert part == "replicas" or by_bus["mez"] == by_bus["kafka"]
    for part in ("memory", "disk"):
        assert {1, 2, 4, 6, 8, 9, 10, 16} <= set(settings(part, quick=False)[0].factors)


def test_the_model_of_a_drive_fills_it_where_payloads_alone_are_all_that_it_may_write() -> None:
    """At ten times; and at half as much if twice as many bytes are written."""
    load = Load(4)
    point = Point(Setting("disk", "mez", (9.0,)), 9.0, drive_bytes_per_second=load.drive_bytes_per_second)
    for times, factor, is_stable in ((1, 9, True), (1, 11, False), (2, 4.5, True), (2, 5.5, False)):
        cluster = point.cluster(load.record_bytes * times)
        assert cluster.busy_share(load.records_per_second * factor) == pytest.approx(factor * times / 10)
        assert stable(cluster, load.records_per_second * factor) == is_stable


def ran(*, stable: bool, machine: float = 0.4) -> Ran:
    """A run whose own processes use 0.3 of the machine."""
    waits_s = spread() if stable else spread() + np.linspace(0, 0.2, 2000)
    return Ran(judged(stamps(waits_s), np.zeros(2000), 0.010, 12.0), machine, 0.1, 0.2, None, None, ())


def test_runs_that_others_disturbed_do_not_decide_and_a_full_machine_is_said() -> None:
    """What other programs do to a run says nothing of the bus."""
    setting = Setting("memory", "mez", (1.0, 8.0, 16.0), on_disk=False)
    noisy = [ran(stable=False, machine=0.9), ran(stable=False, machine=0.8)]
    quiet = ran(stable=True)
    assert Point(setting, 8.0, [*noisy, quiet]).is_stable
    assert Point(setting, 8.0, [*noisy, quiet]).mark == ""
    undecided = Point(setting, 8.0, noisy)
    assert (undecided.is_stable, undecided.is_decided, undecided.mark) == (False, False, "disturbed")
    full = Ran(ran(stable=False).judged, 0.95, 0.5, 0.4, None, None, ())
    unstable = Point(setting, 16.0, [full])
    assert (unstable.is_decided, unstable.mark) == (True, "machine")
    first = Point(setting, 1.0, [ran(stable=True)])
    assert stable_max_of([first, undecided, unstable], "mez", "memory") == 1
    last = Point(setting, 16.0, [ran(stable=True)])
    assert stable_max_of([first, undecided, last], "mez", "memory") == 16
