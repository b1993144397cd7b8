//! Mez: testbed.
