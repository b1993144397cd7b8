"""What is known of a host by its name alone."""

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether a host of an address, without its port, is this one."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
