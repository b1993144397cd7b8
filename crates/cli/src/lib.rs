//! The command `mez` as a library. The binary and the Python entry point both call [`run`].

mod camera;
mod camera_line;
mod camera_row;
mod cameras;
mod columns;
mod connect;
mod doctor;
mod edge;
mod failure;
mod keys;
mod live;
#[cfg(feature = "emulator")]
mod measure;
mod persist;
mod store;
mod subscribe;
mod text;

use std::ffi::OsString;
use std::io::{self, IsTerminal};

use clap::{Parser, Subcommand, ValueEnum};
use tracing_subscriber::EnvFilter;

use self::failure::Failure;

/// Heading of the options that all commands have. A heading of their own puts them behind those that a command is about.
const EVERYWHERE: &str = "Options of all commands";

/// Deliver camera frames to vision applications, on time.
#[derive(Debug, Parser)]
#[command(
    name = "mez",
    version,
    propagate_version = true,
    after_help = "\
To try it on one host, run these in three terminals:
  mez keys init                                            make a site, once
  mez edge                                                 the edge broker
  mez camera dock/cam1 --edge localhost --source video.mp4 --loop
  mez subscribe 'dock/*'                                   a live line for each camera

Or run all of it at once, on a real video with a people detector: mez demo"
)]
struct Cli {
    /// Format of log lines: text for people, JSON for programs
    #[arg(long, global = true, help_heading = EVERYWHERE, value_enum, default_value_t = LogFormat::Text, env = "MEZ_LOG_FORMAT")]
    log_format: LogFormat,
    /// Level of log lines: error, warn, info, debug, or a filter such as mez_node=debug
    #[arg(long, global = true, help_heading = EVERYWHERE, value_name = "FILTER", default_value = "info", env = "MEZ_LOG")]
    log: String,
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Subcommand)]
enum Command {
    Edge(edge::EdgeArgs),
    Camera(camera::CameraArgs),
    Cameras(cameras::CamerasArgs),
    Subscribe(subscribe::SubscribeArgs),
    Keys(keys::KeysArgs),
    Store(store::StoreArgs),
    Doctor(doctor::DoctorArgs),
    /// Run cameras, an edge and a people detector on a real video (needs the Python package)
    #[command(disable_help_flag = true)]
    Demo(PythonArgs),
    /// Measure how far frames can be compressed before your detector misses objects (needs the Python package)
    #[command(disable_help_flag = true)]
    Profile(PythonArgs),
    /// Run an experiment (needs the Python package and a checkout)
    #[command(disable_help_flag = true)]
    Bench(PythonArgs),
    #[cfg(feature = "emulator")]
    #[command(hide = true)]
    Measure(measure::MeasureArgs),
}

/// Arguments of a command that lives in the Python package.
#[derive(Debug, clap::Args)]
struct PythonArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _rest: Vec<OsString>,
}

/// Runs the command that `args` (with the program's name first) asks for, and returns the process's exit status:
/// 0 if it did what was asked, 1 if it could not, 2 if the arguments make no sense.
pub fn run(args: impl IntoIterator<Item = OsString>) -> u8 {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return u8::try_from(error.exit_code()).unwrap_or(2);
        }
    };
    if let Err(failure) = start_logging(cli.log_format, &cli.log) {
        return failure.report();
    }
    let result = match cli.command {
        Command::Edge(args) => edge::run(args),
        Command::Camera(args) => camera::run(args),
        Command::Cameras(args) => cameras::run(args),
        Command::Subscribe(args) => subscribe::run(args),
        Command::Store(args) => store::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Keys(args) => keys::run(args).map_err(Failure::new),
        Command::Demo(_) => Err(in_python("demo")),
        Command::Profile(_) => Err(in_python("profile")),
        Command::Bench(_) => Err(in_python("bench")),
        #[cfg(feature = "emulator")]
        Command::Measure(args) => measure::run(args),
    };
    match result {
        Ok(()) => 0,
        Err(failure) => failure.report(),
    }
}

/// The error for a command that only the Python package has.
fn in_python(command: &str) -> Failure {
    Failure::text(format!(
        "`mez {command}` needs the Python package, and this is the bare binary; build the package with `make build` \
         and run .venv/bin/mez {command}"
    ))
}

/// Sends log lines to the standard error, so that the standard output holds only what was asked for.
fn start_logging(format: LogFormat, filter: &str) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(filter).map_err(|error| {
        Failure::text(format!("--log {filter}: {error}; try --log info, or mez_node=debug"))
    })?;
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(|| live::LogLines).with_target(false);
    // A second call in one process, from Python, keeps the first one's settings.
    let _ = match format {
        LogFormat::Text => builder.with_ansi(io::stderr().is_terminal()).try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    Ok(())
}
