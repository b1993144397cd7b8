"""Finds people and vehicles in the point clouds of a lidar. On a slow link, Mez thins the clouds.

The knob `voxel` is a function of the program's own (`mez.apps.point_cloud.thin`): of the points in each cube
it keeps one. Mez calls it with the cube's size that fits the link.

    python thin_clouds.py record recording                          scans a place that is made up
    mez profile run --stream recording --app thin_clouds.py:find --accuracy thin_clouds.py:agreement \
        --knobs thin_clouds.py:KNOBS --rate 10 --out clouds.json
    python thin_clouds.py scan yard/lidar --edge edge.local
    python thin_clouds.py find yard/lidar --edge edge.local --profile clouds.json
"""

import argparse
import itertools
import time
from collections import Counter
from pathlib import Path

import numpy as np

import mez
from mez.apps.point_cloud import KNOBS, REVOLUTION_S, Scene, agreement, find

__all__ = ["KNOBS", "agreement", "find"]


def scan(name: str, edge: str | None, seed: int) -> None:
    """Publish a cloud with every revolution."""
    scene = Scene(seed)
    with mez.publisher(name, edge=edge, knobs=KNOBS) as lidar:
        for revolution in itertools.count():
            began = time.monotonic()
            lidar.send_data(scene.cloud(revolution))
            time.sleep(max(0.0, began + REVOLUTION_S - time.monotonic()))


def watch(name: str, edge: str | None, profile: Path, latency_ms: float, accuracy: float) -> None:
    """Print how much of each kind stands on the ground."""
    with mez.subscribe(name, edge=edge, latency_ms=latency_ms, accuracy=accuracy, profile=profile) as lidar:
        for frame in lidar:
            kinds = Counter(cluster.kind for cluster in find(frame.data))
            print(f"{frame.contract.state}, {frame.rung}, {len(frame.data)} points: {dict(kinds)}")


def keep(folder: Path, clouds: int, seed: int) -> None:
    """Record clouds: a file for each."""
    folder.mkdir(parents=True, exist_ok=True)
    scene = Scene(seed)
    for revolution in range(clouds):
        np.save(folder / f"{revolution:06}.npy", scene.cloud(revolution))


def main() -> None:
    """Run one of the three parts."""
    parser = argparse.ArgumentParser(description="People and vehicles in the point clouds of a lidar.")
    parser.add_argument("part", choices=["record", "scan", "find"])
    parser.add_argument("name", help="folder of the recording, or name of the lidar's stream")
    parser.add_argument("--edge")
    parser.add_argument("--profile", type=Path, default="clouds.json")
    parser.add_argument("--latency", type=float, default=200, metavar="MS")
    parser.add_argument("--accuracy", type=float, default=0.8)
    parser.add_argument("--clouds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.part == "record":
        keep(Path(options.name), options.clouds, options.seed)
    elif options.part == "scan":
        scan(options.name, options.edge, options.seed)
    else:
        watch(options.name, options.edge, options.profile, options.latency, options.accuracy)


if __name__ == "__main__":
    main()
