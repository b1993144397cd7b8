"""Offload: devices send frames to an engine and show its answers, over real and emulated links.

As in the OpenRTiST paper (George et al. 2020): a frame goes up, a picture comes back.

| module | what it is |
| --- | --- |
| `device` | a process that plays devices, each with a camera and a display, with tokens or without |
| `engine` | a process that answers frames; its compute is emulated by a wait |
| `plans` | the plans of both, and their results |
| `site` | an edge, and plays of devices and engines at it |
| `networks` | the links between devices and the edge |
| `pictures` | the cameras' pictures, pictures of an exact size, and a profile of rungs |
| `shown` | the figures of a play: stages, percentiles, answers on time, gaps, shares, flashes |
"""
