"""Opens the buses that a pipeline file names."""

from mez.pipeline.bus import Bus
from mez.pipeline.file import Pipeline
from mez.pipeline.mez_bus import MezBus


def of(pipeline: Pipeline, name: str) -> Bus:
    """The bus of this name.

    Raises:
        MissingPackageError: It needs a package that is not installed.
        BusError: Its settings cannot be used.
    """
    if name == "mez":
        return MezBus(pipeline.name, pipeline.edge, pipeline.keys, pipeline.on_disk)
    # Imported here, because a pipeline on the bus `mez` does not need Kafka's client.
    from mez.pipeline.kafka_bus import KafkaBus

    assert pipeline.kafka is not None, "the file was checked"
    bus: Bus = KafkaBus(pipeline.name, pipeline.kafka)
    return bus
