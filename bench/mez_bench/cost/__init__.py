"""Computes what a data centre costs a year, from its equipment, its prices, and the rates of its nodes."""
