//! The command `mez` as a library. The binary and the Python entry point both call [`run`].

mod camera;
mod camera_line;
mod camera_row;
mod cameras;
mod columns;
mod config;
mod connect;
mod discover;
mod doctor;
mod edge;
mod edge_open;
mod failure;
mod groups;
mod keys;
mod limits;
mod live;
mod logging;
#[cfg(feature = "emulator")]
mod measure;
mod page;
mod persist;
mod place;
mod store;
mod subscribe;
mod text;
mod unnamed;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};

use self::config::{Role, Typed, without_env};
use self::failure::Failure;
use self::logging::LogArgs;

/// The heading of options that all commands have. Their own heading puts them after the options of a command.
const EVERYWHERE: &str = "Options of all commands";

/// Deliver camera frames to vision applications, on time.
#[derive(Debug, Parser)]
#[command(
    name = "mez",
    version,
    propagate_version = true,
    after_help = "\
To try it on one host, run these in three terminals:
  mez keys init                                            make a site (only once)
  mez edge                                                 the edge broker
  mez camera dock/cam1 --edge localhost --source video.mp4 --loop
  mez subscribe 'dock/*'                                   a live line for each camera

Or run all of it at once, on a real video with a people detector: mez demo"
)]
struct Cli {
    #[command(flatten)]
    logs: LogArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Edge(Box<EdgeCommand>),
    Camera(Box<camera::CameraArgs>),
    Cameras(cameras::CamerasArgs),
    Groups(groups::GroupsArgs),
    Discover(discover::DiscoverArgs),
    Subscribe(subscribe::SubscribeArgs),
    Keys(keys::KeysArgs),
    Store(store::StoreArgs),
    Doctor(Box<doctor::DoctorArgs>),
    Config(config::ConfigArgs),
    /// Run cameras, an edge and a people detector on a real video (needs the Python package)
    #[command(disable_help_flag = true)]
    Demo(PythonArgs),
    /// Measure how far frames can be compressed before your detector misses objects (needs the Python package)
    #[command(disable_help_flag = true)]
    Profile(PythonArgs),
    /// Run a pipeline: stages that process frames, each in its own processes (needs the Python package)
    #[command(disable_help_flag = true)]
    Pipeline(PythonArgs),
    /// Copy data between an edge and another system: Kafka, DDS, webhooks, MQTT (needs the Python package)
    #[command(disable_help_flag = true)]
    Bridge(PythonArgs),
    /// Run an engine: it makes pictures of cameras' frames, and sends them back (needs the Python package)
    #[command(disable_help_flag = true)]
    Engine(PythonArgs),
    /// Train and test styles for the engine that repaints frames (needs the Python package)
    #[command(disable_help_flag = true)]
    Style(PythonArgs),
    /// Send frames to an engine at the edge, and show the pictures that it makes of them (needs the Python package)
    #[command(disable_help_flag = true)]
    Offload(PythonArgs),
    /// Show cameras, applications and groups of an edge in the terminal, updated every second (needs the Python package)
    #[command(disable_help_flag = true)]
    Top(PythonArgs),
    /// Run an experiment (needs the Python package and a checkout)
    #[command(disable_help_flag = true)]
    Bench(PythonArgs),
    /// Decode for the edge whose socket is the standard input: the edge starts this by itself
    #[command(name = DECODE_PICTURES, hide = true)]
    DecodePictures,
    #[cfg(feature = "emulator")]
    #[command(hide = true)]
    Measure(measure::MeasureArgs),
}

/// `mez edge`, which runs an edge broker, and what is asked of one that runs.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
struct EdgeCommand {
    #[command(subcommand)]
    command: Option<EdgeSubcommand>,
    #[command(flatten)]
    args: edge::EdgeArgs,
}

#[derive(Debug, Subcommand)]
enum EdgeSubcommand {
    Open(edge_open::OpenArgs),
}

/// The command of the process that an edge starts to decode for programs on its host.
pub(crate) const DECODE_PICTURES: &str = "decode-pictures";

/// The command line that starts this program again, without its arguments.
#[derive(Clone, Debug)]
pub(crate) struct Itself(Vec<OsString>);

impl Itself {
    /// The command line that starts `command` of this program.
    pub(crate) fn with(self, command: &str) -> Vec<OsString> {
        let Self(mut words) = self;
        words.push(command.into());
        words
    }
}

/// Arguments of a command that lives in the Python package.
#[derive(Debug, clap::Args)]
struct PythonArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _rest: Vec<OsString>,
}

/// Runs the command in `args`, of which the first is the program's name. Returns
/// the exit status: 0 for success, 1 for failure, 2 for invalid arguments.
pub fn run(args: impl IntoIterator<Item = OsString>) -> u8 {
    // This very file, even if another version has replaced it meanwhile.
    run_as(args, vec!["/proc/self/exe".into()])
}

/// Like [`run`], for a program that is started again with the command line `itself`.
pub fn run_as(args: impl IntoIterator<Item = OsString>, itself: Vec<OsString>) -> u8 {
    let words: Vec<OsString> = args.into_iter().collect();
    let parsed = parse(&words).and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, matches)));
    let (cli, matches) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => {
            let _ = error.print();
            return u8::try_from(error.exit_code()).unwrap_or(2);
        }
    };
    match dispatch(cli, &matches, Itself(itself)) {
        Ok(()) => 0,
        Err(failure) => failure.report(),
    }
}

fn dispatch(cli: Cli, matches: &ArgMatches, itself: Itself) -> Result<(), Failure> {
    let own = matches.subcommand().map(|(_, own)| own);
    let typed = |role| own.map(|own| Typed::of(role, own)).unwrap_or_default();
    // For brokers, the options of logging are part of their settings.
    let is_broker = match &cli.command {
        Command::Edge(edge) => edge.command.is_none(),
        command => matches!(command, Command::Camera(_)),
    };
    if !is_broker {
        cli.logs.start();
        // `mez doctor` reports them itself.
        if !matches!(cli.command, Command::Doctor(_) | Command::DecodePictures) {
            config::warn_of_variables();
        }
    }
    match cli.command {
        Command::Edge(edge) => match edge.command {
            Some(EdgeSubcommand::Open(args)) => edge_open::run(args),
            None => edge::run(&typed(Role::Edge), itself),
        },
        Command::Camera(_) => camera::run(&typed(Role::Camera)),
        Command::Cameras(args) => cameras::run(args),
        Command::Groups(args) => groups::run(args),
        Command::Discover(args) => discover::run(&args),
        Command::Subscribe(args) => subscribe::run(args),
        Command::Store(args) => store::run(args),
        Command::Doctor(args) => doctor::run(*args),
        Command::Config(args) => own.map_or(Ok(()), |own| config::run(args, own)),
        Command::Keys(args) => keys::run(args),
        Command::Demo(_) => Err(in_python("demo")),
        Command::Profile(_) => Err(in_python("profile")),
        Command::Pipeline(_) => Err(in_python("pipeline")),
        Command::Bridge(_) => Err(in_python("bridge")),
        Command::Engine(_) => Err(in_python("engine")),
        Command::Style(_) => Err(in_python("style")),
        Command::Offload(_) => Err(in_python("offload")),
        Command::Top(_) => Err(in_python("top")),
        Command::Bench(_) => Err(in_python("bench")),
        Command::DecodePictures => decode_pictures(),
        #[cfg(feature = "emulator")]
        Command::Measure(args) => measure::run(args),
    }
}

fn decode_pictures() -> Result<(), Failure> {
    mez_node::memory::give_large_blocks_back();
    let edge = std::os::fd::AsFd::as_fd(&std::io::stdin()).try_clone_to_owned();
    Ok(edge.and_then(mez_node::pictures::serve)?)
}

/// Parses a command line. The variables of a broker's settings are left out here,
/// because they are merged later with the settings file. Help shows them nevertheless.
fn parse(words: &[OsString]) -> Result<ArgMatches, clap::Error> {
    let has_settings = ["edge", "camera", "config", "doctor"];
    let command =
        Cli::command().mut_subcommands(|command| match has_settings.contains(&command.get_name()) {
            true => {
                without_env(command).mut_subcommands(|below| without_env(below).mut_subcommands(without_env))
            }
            false => command,
        });
    command.try_get_matches_from(words).map_err(|error| {
        // Help texts and errors are printed with the variables.
        Cli::command().try_get_matches_from(words).err().unwrap_or(error)
    })
}

/// The edges and the keys of applications in `app.toml`, for programs in other languages.
#[derive(Clone, Debug, Default)]
pub struct Application {
    /// The edges, in order of preference. May be empty.
    pub edges: Vec<String>,
    /// The key folder.
    pub keys: Option<PathBuf>,
}

/// The settings of this user's applications, if the file exists. The error is a message.
pub fn application() -> Result<Application, String> {
    config::of_applications(None).map(connect::ConnectArgs::named).map_err(|failure| failure.to_string())
}

/// The Unix socket of this host's edge, if its variable or its settings file names one. The error is a message.
pub fn edge_socket() -> Result<Option<PathBuf>, String> {
    config::EdgePlaces::socket_for_applications(None).map_err(|failure| failure.to_string())
}

/// The files of the page in this build, for an edge in another program.
pub fn page() -> mez_node::web::Assets {
    page::PAGE
}

/// The edge of a publisher for which none is configured: that of this host, or one that answers on the network. The error is a message.
///
/// # Errors
/// Several edges answer, or the settings of this host's edge cannot be read.
pub async fn edge_of_publisher(
    credentials: &mez_node::identity::Credentials,
    keys: Option<&std::path::Path>,
) -> Result<mez_node::ports::EdgeAddress, String> {
    unnamed::for_publisher(credentials, keys).await.map_err(|failure| failure.to_string())
}

/// The error of a command that needs the Python package.
fn in_python(command: &str) -> Failure {
    Failure::text(format!(
        "`mez {command}` needs the Python package, and this is the bare binary; build the package with `make build` \
         and run .venv/bin/mez {command}"
    ))
}
