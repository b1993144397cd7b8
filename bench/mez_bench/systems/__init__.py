"""The measured systems: Mez, and those that it is compared with."""
