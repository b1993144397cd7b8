"""Mez delivers camera frames to vision applications on time."""

from mez._native import __version__

__all__ = ["__version__"]
