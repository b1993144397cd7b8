"""A recognition pipeline whose compute is emulated by waits, on real buses.

As in the AI Tax paper (Richins et al. 2021, section 5.2): to a bus, a program that waits as long as a network
computes, and then sends as many bytes, is that network.

| module | what it is |
| --- | --- |
| `producers` | a process that plays cameras with ingestion and detection, at any bus |
| `stages` | what workers of the pipeline do: identification |
| `sites` | the two buses, each with a pipeline that runs on it |
| `rounds` | what a round has shown, and the waiting that no bus can avoid |
"""
