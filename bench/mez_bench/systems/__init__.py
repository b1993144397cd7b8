"""What is measured: Mez, and what it is measured beside."""
