"""Experiments on Mez, run with `mez bench`; not part of what is shipped."""
