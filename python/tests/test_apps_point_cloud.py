"""Point clouds: places by a seed, what stands there, and how much of it is found in thinned clouds."""

import numpy as np
import pytest

from mez.apps import point_cloud
from mez.apps.point_cloud import Cluster, Points, Scene, agreement, find, thin


def _block(x: float, y: float, long: float, wide: float, height: float) -> Points:
    """A solid block on the ground, a point every 8 cm."""
    axes = [np.arange(0, size + 1e-6, 0.08) for size in (long, wide, height)]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)
    return (grid - [long / 2, wide / 2, 0] + [x, y, 0]).astype(np.float32)


def test_people_and_vehicles_are_told_apart_by_their_size() -> None:
    """And the ground between them is nothing. The nearest is first."""
    ground = np.zeros((500, 3), np.float32)
    ground[:, :2] = np.random.default_rng(1).uniform(-20, 20, (500, 2))
    cloud = np.concatenate(
        [ground, _block(8, 5, 4.5, 1.8, 1.5), _block(3, -2, 0.5, 0.4, 1.7), _block(-9, 9, 12, 0.4, 3)]
    )
    found = find(cloud)
    assert [cluster.kind for cluster in found] == ["person", "vehicle", "other"]
    assert found[0].x == pytest.approx(3, abs=0.05)
    assert found[1].y == pytest.approx(5, abs=0.05)


def test_nothing_is_found_in_nothing() -> None:
    """Not in an empty cloud, not in bare ground."""
    empty = np.zeros((0, 3), np.float32)
    assert find(empty) == []
    assert thin(empty, {"voxel": 0.5}).shape == (0, 3)
    assert find(np.zeros((9, 3), np.float32)) == []


def test_a_scene_is_what_its_seed_says() -> None:
    """A revolution is the same whenever it is asked for, and people walk from one to the next."""
    scene = Scene(2, beams=16, steps=360)
    assert np.array_equal(scene.cloud(7), Scene(2, beams=16, steps=360).cloud(7))
    assert not np.array_equal(scene.cloud(7), scene.cloud(8))
    cloud = scene.cloud(0)
    assert cloud.dtype == np.float32
    assert cloud.shape[1] == 3
    assert np.linalg.norm(cloud[:, :2], axis=1).max() <= point_cloud.RANGE_M + 0.1


def test_a_voxel_keeps_the_mean_of_its_points() -> None:
    """One point each, wherever the grid lies; never more points than before."""
    points = np.array([[0.1, 0.1, 0], [0.3, 0.1, 0], [0.9, 0.1, 0], [-0.1, 0.1, 0]], np.float32)
    kept = thin(points, {"voxel": 0.5})
    assert sorted(kept[:, 0].tolist()) == pytest.approx([-0.1, 0.2, 0.9])
    cloud = Scene(1).cloud(0)
    counts = [len(thin(cloud, {"voxel": voxel})) for voxel in point_cloud.VOXELS]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] <= len(cloud)


def test_thinning_costs_accuracy_bit_by_bit() -> None:
    """A fine voxel changes nothing that is found; a coarse one loses most."""
    scene = Scene(1)
    clouds = [scene.cloud(number) for number in (0, 20, 40)]

    def accuracy(voxel: float) -> float:
        scores = [agreement(find(cloud), find(thin(cloud, {"voxel": voxel}))) for cloud in clouds]
        return float(np.mean(scores))

    assert accuracy(0.05) > 0.95
    assert accuracy(0.05) >= accuracy(0.3) > accuracy(0.8)
    assert accuracy(0.8) < 0.5


def test_agreement_is_the_f1_score_of_clusters() -> None:
    """A cluster matches one of its kind that is near, and each only once. JSON's lists do as well."""
    here, there = Cluster("person", 1.0, 2.0), Cluster("vehicle", 9.0, 2.0)
    assert agreement([here, there], [there, here]) == 1.0
    assert agreement([], []) == 1.0
    assert agreement([here], []) == 0.0
    assert agreement([here], [Cluster("vehicle", 1.0, 2.0)]) == 0.0
    assert agreement([here, there], [["person", 1.2, 2.0]]) == pytest.approx(2 / 3)
    assert agreement([here], [here, Cluster("person", 1.1, 2.0)]) == pytest.approx(2 / 3)


def test_the_knob_is_a_function_of_the_programs_own() -> None:
    """What Mez sends at a rung is what `thin` makes."""
    from mez import _data

    cloud = Scene(1, beams=8, steps=90).cloud(0)
    body = point_cloud.KNOBS.apply("data/voxel=0.5", cloud)
    assert np.array_equal(_data.unpack(memoryview(body), _data.ARRAY), thin(cloud, {"voxel": 0.5}))
