"""Applications that come with Mez: what an application is made of, and something to measure Mez with.

They need more than the library does: `pip install 'mez[apps]'`.
"""
