"""Finds people and vehicles in the point clouds of a lidar, and thins clouds by voxels.

A spinning lidar measures the distance in each of its directions, a few times a second. The knob `voxel` is
the edge of a cube in metres: all points in a cube are replaced by their mean. Far objects have few points, so
the detector loses them first.

The detector is small, and needs only NumPy: points well above the ground are put into the cells of a grid;
cells that touch are one cluster; a cluster's size determines its kind. `agreement` is the F1 score of its
clusters against those that it finds in the full cloud.

Scenes are made here, by a seeded generator: a flat ground, walls, parked vehicles, and people who walk.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

import mez

VOXELS: Final = (0.02, 0.05, 0.08, 0.12, 0.16, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)
"""Settings of the knob `voxel`, in metres, from the most bytes to the fewest."""

REVOLUTION_S: Final = 0.1
"""Time of one revolution, in seconds."""

SENSOR_HEIGHT_M: Final = 1.9
"""Height of the lidar above the ground. Points are relative to the ground below it."""

RANGE_M: Final = 50.0
"""The lidar measures no further."""

GROUND_M: Final = 0.25
"""Lower points are ground."""

CELL_M: Final = 0.35
"""Edge of a cell of the detector's grid."""

POINTS_MIN: Final = 4
"""The fewest points of a cluster that counts."""

MATCH_M: Final = 0.5
"""Two clusters are the same if they are of one kind, and their centres are no further apart."""

Points = NDArray[np.float32]
"""Points, shape (n, 3): x, y, z in metres."""


class Cluster(NamedTuple):
    """Something that stands on the ground.

    Attributes:
        kind: `person`, `vehicle` or `other`.
        x: Its centre, in metres.
        y: Its centre.
    """

    kind: str
    x: float
    y: float


@dataclass(frozen=True)
class Scene:
    """A place with a lidar in its middle. The same seed gives the same clouds.

    Attributes:
        seed: Seed of the random generator.
        beams: The number of elevation angles.
        steps: The number of azimuth angles in one revolution.
        people: The number of people who walk there.
        vehicles: The number of vehicles parked there.
    """

    seed: int = 1
    beams: int = 32
    steps: int = 900
    people: int = 14
    vehicles: int = 8

    def cloud(self, number: int) -> Points:
        """Return the cloud of a revolution."""
        random = np.random.default_rng((self.seed, 1, number))
        reach = self._reach_of_place.copy()
        for x, y in self._people_at(number * REVOLUTION_S):
            np.minimum(reach, _of_cylinder(self._rays, x, y, 0.3, 1.75), out=reach)
        hit = np.isfinite(reach) & (reach < RANGE_M) & (random.random(reach.shape) > 0.02)
        reach = reach[hit] + 0.015 * random.standard_normal(int(hit.sum()))
        points = self._rays[hit] * reach[:, None]
        points[:, 2] += SENSOR_HEIGHT_M
        return points.astype(np.float32)

    def _people_at(self, at_s: float) -> list[tuple[float, float]]:
        random = np.random.default_rng((self.seed, 2))
        found = []
        for _ in range(self.people):
            distance, angle, heading = random.uniform(4, 30), *random.uniform(0, 2 * math.pi, 2)
            speed, stroll = random.uniform(0.5, 1.6), random.uniform(4, 12)
            # Back and forth on a line.
            along = abs((at_s * speed + stroll) % (4 * stroll) - 2 * stroll) - stroll
            x, y = distance * math.cos(angle), distance * math.sin(angle)
            found.append((x + along * math.cos(heading), y + along * math.sin(heading)))
        return found

    @cached_property
    def _rays(self) -> NDArray[np.float64]:
        up = np.radians(np.linspace(-24, 8, self.beams))[None, :]
        around = np.linspace(0, 2 * math.pi, self.steps, endpoint=False)[:, None]
        flat = np.cos(up)
        rays = np.stack(np.broadcast_arrays(flat * np.cos(around), flat * np.sin(around), np.sin(up)), axis=2)
        return rays.reshape(-1, 3)

    @cached_property
    def _reach_of_place(self) -> NDArray[np.float64]:
        """The distance of each ray to the ground and the objects that do not move."""
        random = np.random.default_rng((self.seed, 3))
        rays = self._rays
        with np.errstate(divide="ignore"):
            reach = np.where(rays[:, 2] < 0, -SENSOR_HEIGHT_M / rays[:, 2], np.inf)
        for _ in range(self.vehicles):
            distance, angle = random.uniform(6, 35), random.uniform(0, 2 * math.pi)
            centre = (distance * math.cos(angle), distance * math.sin(angle))
            size = (random.uniform(3.6, 5.2), random.uniform(1.6, 2.0), random.uniform(1.4, 2.2))
            np.minimum(reach, _of_box(rays, centre, random.uniform(0, math.pi), size), out=reach)
        for side in range(3):
            angle = 2 * math.pi * side / 3 + random.uniform(0, 1)
            centre = (38 * math.cos(angle), 38 * math.sin(angle))
            np.minimum(reach, _of_box(rays, centre, angle + math.pi / 2, (24, 0.4, 4)), out=reach)
        return reach


def _of_cylinder(
    rays: NDArray[np.float64], x: float, y: float, radius: float, height: float
) -> NDArray[np.float64]:
    """The distance of each ray to an upright cylinder on the ground; infinite where the ray misses it."""
    across = rays[:, 0] ** 2 + rays[:, 1] ** 2
    along = rays[:, 0] * x + rays[:, 1] * y
    inside = along**2 - across * (x * x + y * y - radius * radius)
    with np.errstate(invalid="ignore"):
        reach = (along - np.sqrt(inside)) / across
    up = SENSOR_HEIGHT_M + reach * rays[:, 2]
    return np.where((inside > 0) & (reach > 0) & (up > 0) & (up < height), reach, np.inf)


def _of_box(
    rays: NDArray[np.float64],
    centre: tuple[float, float],
    heading: float,
    size: tuple[float, float, float],
) -> NDArray[np.float64]:
    """The distance of each ray to a box on the ground; infinite where the ray misses it."""
    turn = np.array([[math.cos(heading), math.sin(heading)], [-math.sin(heading), math.cos(heading)]])
    middle = np.array([*(turn @ -np.array(centre)), SENSOR_HEIGHT_M - size[2] / 2])
    turned = np.column_stack([rays[:, :2] @ turn.T, rays[:, 2]])
    half = np.array(size) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        one, other = (-half - middle) / turned, (half - middle) / turned
    near, far = np.minimum(one, other).max(axis=1), np.maximum(one, other).min(axis=1)
    return np.where((near <= far) & (near > 0), near, np.inf)


def thin(points: Points, knobs: Mapping[str, float]) -> Points:
    """Replace the points of each voxel by their mean: the function of the knob.

    Args:
        points: The cloud, shape (n, 3).
        knobs: `voxel`: the edge of a cube, in metres.
    """
    voxel = float(knobs["voxel"])
    cubes = np.floor(points / voxel).astype(np.int64)
    cubes -= cubes.min(axis=0, initial=0)
    width, depth = (int(cubes[:, axis].max(initial=0)) + 1 for axis in (1, 2))
    keys = (cubes[:, 0] * width + cubes[:, 1]) * depth + cubes[:, 2]
    _, cube, count = np.unique(keys, return_inverse=True, return_counts=True)
    means = [np.bincount(cube, points[:, axis], len(count)) / count for axis in range(3)]
    return np.stack(means, axis=1).astype(np.float32)


KNOBS: Final = mez.Knobs([mez.knob("voxel", VOXELS)], degrade=thin)
"""The knobs of a lidar's stream."""


def find(points: Points) -> list[Cluster]:
    """Return the objects on the ground, nearest first.

    Args:
        points: A cloud, shape (n, 3).
    """
    above = points[points[:, 2] > GROUND_M]
    if len(above) == 0:
        return []
    cells, place = np.unique(np.floor(above[:, :2] / CELL_M).astype(np.int64), axis=0, return_inverse=True)
    label = _connected(cells)[place.reshape(-1)]
    order = np.argsort(label, kind="stable")
    groups = np.split(above[order], np.flatnonzero(np.diff(label[order])) + 1)
    found = [_named(group) for group in groups if len(group) >= POINTS_MIN]
    return sorted(found, key=lambda one: math.hypot(one.x, one.y))


def _connected(cells: NDArray[np.int64]) -> NDArray[np.intp]:
    """The number of each cell's component. Cells that touch, also at a corner, are in one component."""
    places = {cell: place for place, cell in enumerate(map(tuple, cells.tolist()))}
    label = [-1] * len(cells)
    components = 0
    for start, first in enumerate(cells.tolist()):
        if label[start] >= 0:
            continue
        label[start] = components
        due = [first]
        while due:
            x, y = due.pop()
            for beside in ((x + across, y + down) for across in (-1, 0, 1) for down in (-1, 0, 1)):
                place = places.get(beside)
                if place is not None and label[place] < 0:
                    label[place] = components
                    due.append(list(beside))
        components += 1
    return np.array(label, dtype=np.intp)


def _named(group: Points) -> Cluster:
    low, high = group.min(axis=0), group.max(axis=0)
    long, height = float((high - low)[:2].max()), float(high[2])
    x, y = ((low + high) / 2)[:2].tolist()
    if long <= 1.1 and height >= 0.9:
        return Cluster("person", x, y)
    if 1.1 < long <= 6.5 and height <= 2.6:
        return Cluster("vehicle", x, y)
    return Cluster("other", x, y)


def agreement(reference: Sequence[Any], found: Sequence[Any]) -> float:
    """Return the F1 score of clusters: 1 if all are found and none is false, also if there are none.

    Args:
        reference: The clusters of the full cloud.
        found: The clusters of the thinned cloud.
    """
    left = [Cluster(*one) for one in found]
    matched = 0
    for wanted in map(Cluster._make, reference):
        near = [one for one in left if one.kind == wanted.kind and _distance(one, wanted) <= MATCH_M]
        if near:
            left.remove(min(near, key=lambda one: _distance(one, wanted)))
            matched += 1
    total = len(reference) + len(found)
    return 2 * matched / total if total else 1.0


def _distance(one: Cluster, other: Cluster) -> float:
    return math.hypot(one.x - other.x, one.y - other.y)
