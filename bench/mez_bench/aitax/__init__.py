"""Emulated acceleration: a real bus between producers and workers that wait instead of computing."""
