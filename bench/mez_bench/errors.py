"""What an experiment raises: known to all of its parts, and so in a module that knows none of them."""


class ExperimentError(Exception):
    """An experiment could not be run. The message says why and what to do."""
