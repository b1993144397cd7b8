"""Emulated acceleration: a real bus between producers and workers that wait instead of computing.

Unlike `mez_bench.emulated`, which runs whole pipelines at the paper's speed, it has no runner and no stages.
Many producers and workers share few processes, so that a high factor loads mostly the bus.

| module | what it is |
| --- | --- |
| `settings` | settings (bus, factors, drives, sizes), and how they are measured |
| `plan` | when records are due, and how many there are |
| `sites`, `drives` | the buses; drives of a known speed |
| `part` | a process of producers or workers |
| `durable` | when records became durable |
| `runs`, `judged` | one run; whether it was stable |
| `model` | the model, compared with measurements, and for larger clusters |
"""
