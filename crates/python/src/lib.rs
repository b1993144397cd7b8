//! `mez._native`: the compiled half of the Python package `mez`.
//!
//! This crate only translates between Python and Rust. Its stub, `python/mez/_native.pyi`, is the list of what it
//! exposes.

/// The compiled half of the package `mez`; import `mez` instead.
#[pyo3::pymodule]
mod _native {
    /// Version of Mez, the same for the Rust crates and the Python package.
    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
