"""Says from the events of a pipeline where the time of its records went.

| module | what it does |
| --- | --- |
| `reading` | reads the files of a folder, and counts what cannot be used |
| `steps` | cuts the way of a record into steps, each of a kind: waiting, AI, what is before and after it |
| `summary` | means, 99 % quantiles and shares by stage |
| `ingestion` | whether the first stage keeps up with the cameras |
| `table` | the same for people |
| `picture` | the same as SVG or PNG |
"""
