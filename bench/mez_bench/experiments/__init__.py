"""Lists the experiments by name."""

from typing import Final

from mez_bench.experiment import Experiment
from mez_bench.experiments.ablation import ABLATION
from mez_bench.experiments.acceleration import ACCELERATION
from mez_bench.experiments.aitax import AITAX
from mez_bench.experiments.awstream import AWSTREAM_EXPERIMENT
from mez_bench.experiments.breakdown import BREAKDOWN
from mez_bench.experiments.bridge import BRIDGE_THROUGHPUT
from mez_bench.experiments.busy import BUSY
from mez_bench.experiments.camera import CAMERA_COST
from mez_bench.experiments.chains import CHAINS
from mez_bench.experiments.channel import CHANNEL
from mez_bench.experiments.contracts import CONTRACTS
from mez_bench.experiments.cost import COST
from mez_bench.experiments.dds import DDS
from mez_bench.experiments.flame import FLAME
from mez_bench.experiments.flood import FLOOD
from mez_bench.experiments.groups import GROUPS
from mez_bench.experiments.kept import KEPT
from mez_bench.experiments.knobs import KNOBS
from mez_bench.experiments.knobs_data import KNOBS_DATA
from mez_bench.experiments.log import LOG
from mez_bench.experiments.loopback import LOOPBACK
from mez_bench.experiments.memory import MEMORY
from mez_bench.experiments.metrics import METRICS
from mez_bench.experiments.offload import OFFLOAD
from mez_bench.experiments.outage import OUTAGE
from mez_bench.experiments.page import PAGE_COST
from mez_bench.experiments.pareto import PARETO
from mez_bench.experiments.pipeline import PIPELINE
from mez_bench.experiments.policies import POLICIES
from mez_bench.experiments.rights import RIGHTS
from mez_bench.experiments.scaling import SCALING
from mez_bench.experiments.search import SEARCH
from mez_bench.experiments.seek import SEEK
from mez_bench.experiments.shares import SHARES
from mez_bench.experiments.sources import SOURCES
from mez_bench.experiments.subscribers import SUBSCRIBERS
from mez_bench.experiments.world import WORLD

EXPERIMENTS: Final[dict[str, Experiment]] = {
    experiment.name: experiment
    for experiment in (
        LOG,
        LOOPBACK,
        SUBSCRIBERS,
        BREAKDOWN,
        CAMERA_COST,
        BUSY,
        CHAINS,
        KEPT,
        SEEK,
        OUTAGE,
        CHANNEL,
        CONTRACTS,
        SOURCES,
        FLAME,
        FLOOD,
        RIGHTS,
        GROUPS,
        BRIDGE_THROUGHPUT,
        DDS,
        MEMORY,
        METRICS,
        PAGE_COST,
        POLICIES,
        ABLATION,
        AWSTREAM_EXPERIMENT,
        WORLD,
        KNOBS,
        KNOBS_DATA,
        SHARES,
        PARETO,
        SEARCH,
        ACCELERATION,
        AITAX,
        PIPELINE,
        SCALING,
        OFFLOAD,
        COST,
    )
}
