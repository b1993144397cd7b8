"""`mez demo`: runs cameras, an edge and a people detector on this machine, on a real video.

| module | idea |
| --- | --- |
| `options` | reads the command line |
| `supervise` | starts a broker again when it dies, and measures how long frames stayed away |
| `account` | checks that every published frame is delivered or explained |
| `application`, `detector` | code as of a user of Mez: takes frames, checks them, finds people, replies |
| `channel` | emulates the links of a scenario between cameras and edge |
| `contract`, `accuracy` | check whether the contract of a scenario was kept |
| `usage` | reads processor time and memory of a process |
| `table` | the live table |
| `report`, `pictures`, `course` | the summary, pictures of people, and a plot of a scenario over time |
| `tell` | ends the demo, with a summary |
| `run` | runs all of these |
| `logs` | keeps the log of this process away from the table |
| `pipeline`, `photographs` | the demo of a pipeline (`--pipeline`), and its video |
| `offload`, `brush` | the demo of offload (`--offload`), and a painter without a network |
"""

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo and return its exit code: 0 if every frame is accounted for and nothing failed, else 1.

    Args:
        arguments: The words after `mez demo`. `None` takes them from the process.
    """
    import sys

    from mez.apps import packages

    missing = packages.missing()
    if missing:
        print(f"mez demo: {missing}", file=sys.stderr)
        return 1
    words = sys.argv[1:] if arguments is None else arguments
    # Imported here, because `mez --help` should not wait for OpenCV.
    if any(word.partition("=")[0] == "--pipeline" for word in words):
        from mez.demo import pipeline

        return pipeline.run(words)
    if "--offload" in words:
        from mez.demo import offload

        return offload.run(words)
    from mez.demo.run import run

    return run(words)
