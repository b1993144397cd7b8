//! Compiles the bridge to libx264 if the feature `x264` is enabled.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "x264")]
    bridge_to_x264();
}

/// Finds the system's libx264, and compiles Mez's bridge against its header, which defines the layout of its structures.
#[cfg(feature = "x264")]
fn bridge_to_x264() {
    const BRIDGE: &str = "src/h264/x264/bridge.c";
    println!("cargo::rerun-if-changed={BRIDGE}");
    match pkg_config::Config::new().atleast_version("0.155").probe("x264") {
        Ok(library) => cc::Build::new()
            .file(BRIDGE)
            .includes(library.include_paths)
            .std("c11")
            .compile("mez_x264_bridge"),
        Err(error) => {
            println!(
                "cargo::error=the feature x264 needs libx264, its header and pkg-config: install Debian's packages libx264-dev and pkgconf, or build without the feature"
            );
            for line in error.to_string().lines().filter(|line| !line.trim().is_empty()) {
                println!("cargo::warning={line}");
            }
        }
    }
}
