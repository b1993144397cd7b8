"""Offload: devices send frames to an engine and show what it makes of them, over real and emulated links.

As in the OpenRTiST paper (George et al. 2020): a frame goes up, a picture comes back.

| module | what it is |
| --- | --- |
| `device` | a process that plays devices, each with a camera and a display; with tokens or without |
| `engine` | a process that answers frames; its compute is emulated by a wait |
| `plans` | what both are told, and what they tell |
| `site` | an edge, and plays of devices and engines at it |
| `networks` | the links between devices and the edge |
| `pictures` | what the cameras film, pictures of an exact size, and a profile of rungs |
| `shown` | what a play has shown: stages, percentiles, answers on time, gaps, shares, flashes |
"""
