"""Tells from the name of a host whether it is this host."""

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether the host of an address (without a port) is this host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
