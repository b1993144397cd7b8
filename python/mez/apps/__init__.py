"""Detectors that come with Mez: examples of applications, and something to measure Mez with.

They need OpenCV (`pip install 'opencv-python-headless<5'`), which the package itself does not.
"""
