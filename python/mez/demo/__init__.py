"""`mez demo`: cameras, an edge and a people detector on this machine, on a real video.

| module | idea |
| --- | --- |
| `options` | what can be asked for |
| `processes`, `leash` | one broker as a child process that cannot outlive the demo |
| `supervise` | start a broker again when it dies, and measure how long frames stayed away |
| `account` | every frame published is delivered or explained |
| `application`, `detector` | what a user of Mez would write: take frames, check them, find people, reply |
| `channel` | an emulated radio channel between cameras and edge, by a scenario file |
| `contract`, `accuracy` | whether what a scenario asks for was kept: on time, accurate enough, told in time |
| `usage` | processor time and memory of a process |
| `table`, `report`, `pictures`, `course` | what a person sees: while it runs, and afterwards |
| `interrupt`, `tell` | how it ends: early when somebody wishes so, with a summary |
| `run` | all of it together |
"""

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo and return its exit code: 0 if every frame is accounted for and nothing failed, else 1.

    Args:
        arguments: The words after `mez demo`. `None` takes them from the process.
    """
    import importlib.util
    import sys

    missing = [name for name in ("cv2", "rich") if importlib.util.find_spec(name) is None]
    if missing:
        print(
            f"mez demo: {' and '.join(missing)} not installed. Install them with: pip install 'mez[apps]'",
            file=sys.stderr,
        )
        return 1
    # Not above: `mez --help` should not wait for OpenCV.
    from mez.demo.run import run

    return run(sys.argv[1:] if arguments is None else arguments)
