"""Plays contracts between real brokers over emulated links, and judges what became of them."""
