"""Applications that come with Mez: examples, and something to measure Mez with.

Detectors in pictures need OpenCV (`pip install 'opencv-python-headless<5'`), which the package itself does
not. Those on data records, `web_log` and `point_cloud`, need NumPy only.
"""
