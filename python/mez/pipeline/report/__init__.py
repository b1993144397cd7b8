"""Reports where the time of a pipeline's records went, from its events.

| module | what it does |
| --- | --- |
| `reading` | reads the files of a folder, and counts lines that cannot be used |
| `steps` | divides the way of a record into steps of one kind: waiting, AI, pre- or post-processing |
| `summary` | means, 99 % quantiles and shares by stage |
| `ingestion` | whether the first stage keeps up with the cameras |
| `table` | the same for people |
| `picture` | the same as SVG or PNG |
"""
