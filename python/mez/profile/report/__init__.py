"""Makes the report: bytes against accuracy, and frames of the best rungs with the boxes found on them.

| module | what it makes |
| --- | --- |
| `plot` | SVG and PNG |
| `page` | one self-contained HTML file with an interactive plot |
| `examples` | frames of the frontier, with boxes |
"""
