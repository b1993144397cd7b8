"""Profiles of streams of data records: how far a stream can be degraded before its application errs.

| module | the question it answers |
| --- | --- |
| `records`, `mcap` | which records does a recording contain? |
| `task` | what are the application's results, and how good are they? |
| `grid` | which rungs are there, and which of them are neighbours? |
| `measure` | how many bytes and which accuracy has a rung? |
| `make` | which rungs are measured, and on which records? |
"""
