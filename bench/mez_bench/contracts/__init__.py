"""Plays contracts between real brokers over emulated links, and judges the results."""
