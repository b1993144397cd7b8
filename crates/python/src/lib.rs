//! Mez: python.
