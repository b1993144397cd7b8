"""Applications that come with Mez, as examples and to measure Mez.

Detectors in pictures need OpenCV (`pip install 'opencv-python-headless<5'`), which is not a dependency of the
package. Those on data records, `web_log` and `point_cloud`, need only NumPy.
"""
