"""A recognition pipeline whose compute is emulated by waits, on real buses.

As in the AI Tax paper (Richins et al. 2021, section 5.2): a bus sees no difference between a neural network
and a program that waits as long as the network computes and then sends as many bytes.

| module | what it is |
| --- | --- |
| `producers` | a process that plays cameras with ingestion and detection, at any bus |
| `stages` | what workers of the pipeline do: identification |
| `sites` | the two buses, each with a pipeline that runs on it |
| `rounds` | the figures of a round, and the waiting that no bus can avoid |
"""
