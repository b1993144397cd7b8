//! Mez: cli.
