//! Mez: core.
