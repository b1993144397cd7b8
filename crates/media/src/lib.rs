//! Mez: media.
