"""Emulated acceleration: a real bus between producers and workers that wait instead of computing.

Unlike `mez_bench.emulated`, which runs whole pipelines at the paper's speed, it has no runner and no stages.
Many producers and workers share few processes, so that the bus is what a high factor loads.

| module | what it is |
| --- | --- |
| `settings` | one run: a bus, a factor, and what else is fixed; measuring it |
| `plan` | when records are due, and how many there are |
| `sites`, `drives` | the buses; drives of a known speed |
| `part` | a process of producers or workers |
| `durable` | what was on disk when |
| `runs`, `judged` | one run; whether it was stable |
| `model` | the model of larger clusters, beside what was measured |
"""
