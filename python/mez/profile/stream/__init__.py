"""Profiles of streams of data records: how much a stream can be degraded before its application errs.

| module | the question it answers |
| --- | --- |
| `records`, `mcap` | which records does a recording hold? |
| `task` | what does the application make of them, and how good is that? |
| `grid` | which rungs are there, and which of them are alike? |
| `measure` | what does a rung cost, and what does it keep? |
| `make` | which rungs are measured, and on which records? |
"""
