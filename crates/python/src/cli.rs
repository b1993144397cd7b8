//! Runs the command `mez` for the Python entry point.

use std::ffi::OsString;

use pyo3::prelude::*;

/// Runs the command with these words, the program's name first, and returns the process's exit status. `itself`: the command line that
/// starts it again, before its first word.
#[pyfunction]
pub(crate) fn cli_main(py: Python<'_>, arguments: Vec<OsString>, itself: Vec<OsString>) -> u8 {
    py.detach(|| mez_cli::run_as(arguments, itself))
}
