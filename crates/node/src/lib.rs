//! Mez: node.
