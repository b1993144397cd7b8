"""Defines what an experiment raises. All parts import this module, so it imports none of them."""


class ExperimentError(Exception):
    """An experiment could not be run. The message says why and what to do."""
