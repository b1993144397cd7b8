"""The compiled half of the package `mez`; import `mez` instead."""

__version__: str
"""Version of Mez, the same for the Rust crates and the Python package."""
