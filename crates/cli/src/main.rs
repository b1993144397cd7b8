//! The command `mez`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(mez_cli::run(std::env::args_os()))
}
