"""Draws the report: bytes against accuracy, and frames of the best rungs with the boxes found on them.

| module | what it makes |
| --- | --- |
| `plot` | SVG and PNG |
| `page` | one HTML file that needs nothing else, with a plot that answers to the pointer |
| `examples` | frames of the frontier, with boxes |
"""
