"""Records that are acknowledged once they are on the edge's disk: killed edges, full drives, no store."""

import subprocess
import threading
import time
from pathlib import Path

import pytest

import mez
from tests.edges import EdgeProcess


def at(edge: EdgeProcess, acknowledge: str = "disk") -> mez.Publisher:
    """A publisher of a derived stream."""
    return mez.publisher(
        "dock/cam1/faces", of="dock/cam1", edge=f"unix://{edge.socket}", acknowledge=acknowledge
    )


def held(edge: EdgeProcess) -> set[mez.FrameId]:
    """The records that the edge can give."""
    found = mez.read("dock/cam1/faces", edge=f"unix://{edge.socket}", held_only=True, timeout=60)
    return {record.id for record in found}


def test_a_killed_edge_has_every_record_that_it_acknowledged(tmp_path: Path) -> None:
    """Three programs publish and wait for the disk, while the edge is killed at no special moment."""
    acknowledged: set[mez.FrameId] = set()
    with EdgeProcess(tmp_path) as edge:
        for life in range(3):
            publishers = [at(edge) for _ in range(3)]
            enough = threading.Barrier(4)

            def work(publisher: mez.Publisher, enough: threading.Barrier = enough) -> None:
                number = 0
                while True:
                    try:
                        record = publisher.send_data({"number": number})
                    except mez.Error:
                        return
                    assert record is not None
                    acknowledged.add(record)
                    number += 1
                    if number == 10:
                        enough.wait(60)

            threads = [threading.Thread(target=work, args=[publisher]) for publisher in publishers]
            for thread in threads:
                thread.start()
            enough.wait(60)
            time.sleep(0.003 * life)
            edge.kill()
            for publisher in publishers:
                publisher.close()
            for thread in threads:
                thread.join(60)
            edge.start()
            assert acknowledged <= held(edge)
    assert len(acknowledged) >= 90


def test_records_of_before_a_restart_are_not_taken_for_later_ones(tmp_path: Path) -> None:
    """Whoever waits learns that the record may be gone, however many came since."""
    with EdgeProcess(tmp_path) as edge:
        with at(edge, "memory") as faces:
            before = faces.send_data("before")
            assert before is not None
            faces.wait_on_disk(before)
        edge.kill()
        edge.start()
        with at(edge) as faces:
            assert faces.send_data("after") is not None
            with pytest.raises(mez.NotOnDiskError, match="publish the record again") as lost:
                faces.wait_on_disk(before)
            assert (lost.value.reason, lost.value.frame) == ("RECORD_LOST", before)


def test_a_full_drive_is_told_and_what_it_has_not_taken_is_confirmed_later(tmp_path: Path) -> None:
    """The record is in the stream, so that nobody has to publish it twice."""
    unshared = ["unshare", "-rm", "mount", "-t", "tmpfs", "none", str(tmp_path)]
    if subprocess.run(unshared, check=False, capture_output=True).returncode != 0:
        pytest.skip("this user may not mount anything")
    with EdgeProcess(tmp_path, drive="4m") as edge, at(edge) as faces:
        assert faces.send_data("there is room") is not None
        filler = edge.store / "filler"
        with pytest.raises(OSError, match="No space"):
            filler.write_bytes(bytes(4 << 20))
        with pytest.raises(mez.NotOnDiskError, match="the disk is full") as full:
            faces.send_data(bytes(100_000))
        assert full.value.reason == "LOG_DEGRADED"
        assert full.value.frame in held(edge)
        # Whoever does not ask is not held up.
        with at(edge, "memory") as others:
            assert others.send_data("no matter") is not None
        filler.unlink()
        until_s = time.monotonic() + 60
        while True:
            try:
                faces.wait_on_disk(full.value.frame)
                break
            except mez.NotOnDiskError:
                assert time.monotonic() < until_s


def test_an_edge_without_a_store_says_how_to_get_one(edge: mez.Edge) -> None:
    """So does a publisher whose records no edge confirms."""
    with mez.publisher("dock/cam1/faces", of="dock/cam1", edge=edge, acknowledge="disk") as faces:
        with pytest.raises(mez.NotOnDiskError, match="start the edge with --store") as refused:
            faces.send_data("in memory only")
        assert refused.value.reason == "NO_STORE"
    for acknowledge, of in [("paper", "dock/cam1"), ("disk", None)]:
        with pytest.raises(mez.ArgumentError) as wrong:
            mez.publisher("dock/cam1/faces", of=of, edge=edge, acknowledge=acknowledge)
        assert wrong.value.field == "acknowledge"
