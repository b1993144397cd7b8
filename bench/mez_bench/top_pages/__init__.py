"""Plays the top-k of a web log between real brokers, over emulated links."""
