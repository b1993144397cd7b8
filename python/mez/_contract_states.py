"""The states of contracts (docs/contracts.md#states), worst first."""

from typing import Final

NOT_KEPT: Final = (
    "infeasible",
    "latency_miss",
    "accuracy_miss",
    "application_late",
    "source_lost",
    "absent",
)
"""The states of contracts that are not kept, the worst first."""

WORST_FIRST: Final = (*NOT_KEPT, "drifted", "unverified", "ok")
"""All states."""
