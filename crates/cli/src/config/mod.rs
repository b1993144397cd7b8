//! Settings of edges, cameras and applications, from a file, the environment and flags. Also
//! `mez config`, which checks files, and shows the settings in force and all existing ones.
//!
//! | file | what it does |
//! | --- | --- |
//! | `setting.rs` | derives a setting from the argument that describes it |
//! | `file.rs` | reads a file, and finds all its faults |
//! | `secret.rs` | finds secrets in a file |
//! | `fault.rs` | the origin of a setting, and its faults |
//! | `resolve.rs` | determines the values in force, and what can change while a broker runs |
//! | `edge_places.rs` | the folders of this host's edge, for other commands |
//! | `variables.rs` | the environment variables |
//! | `show.rs`, `schema.rs` | print the settings in force, and all existing ones |

mod edge_places;
mod fault;
mod file;
mod resolve;
mod schema;
mod secret;
mod setting;
mod show;
mod variables;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap::{ArgMatches, Args, Subcommand, ValueEnum};
use tracing::{error, info, warn};

pub(crate) use self::edge_places::EdgePlaces;
use self::fault::lines;
pub(crate) use self::fault::{Fault, Origin};
pub(crate) use self::file::OFF;
use self::file::ReadFile;
pub(crate) use self::resolve::{Contradictions, Examined, InForce, OfRole, Take, Typed, examine};
pub(crate) use self::setting::{Role, without_env};
pub(crate) use self::variables::unknown as unknown_variables;
use crate::camera::CameraArgs;
use crate::connect::ConnectArgs;
use crate::edge::EdgeArgs;
use crate::failure::Failure;
use crate::place::Place;
use crate::text::counted;

/// Check files of settings, show the settings in force, and print a schema for editors
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mez config check edge.toml                     find all errors in a file, with line numbers
  mez config show edge --grpc off                the settings of `mez edge --grpc off`, and where each comes from
  mez config schema edge > edge.json             for editors that can complete and check TOML

A file is for one role, which its first line names (role = \"edge\", \"camera\" or \"app\"). Settings have the names of the flags, with _ instead of -. \
A flag overrides its environment variable, the variable overrides the file, and the file overrides the default. Brokers read the file again on SIGHUP.")]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Find all errors in files of settings: line, value, and what to do
    Check {
        /// The files
        #[arg(value_name = "FILE", required = true)]
        files: Vec<PathBuf>,
    },
    /// Print the settings that a command would use, and where each comes from
    Show {
        #[command(subcommand)]
        of: Of,
    },
    /// Print the JSON schema of the files of a role, for editors
    Schema {
        /// The role
        #[arg(value_name = "ROLE", value_enum)]
        role: RoleName,
    },
    /// Print the table of a role's settings in docs/configuration.md
    #[command(hide = true)]
    Table {
        #[arg(value_name = "ROLE", value_enum)]
        role: RoleName,
    },
}

#[derive(Debug, Subcommand)]
enum Of {
    Edge(Box<EdgeArgs>),
    Camera(Box<CameraArgs>),
    /// Applications: commands and programs that connect to an edge
    App(ConnectArgs),
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum RoleName {
    Edge,
    Camera,
    App,
}

impl From<RoleName> for Role {
    fn from(name: RoleName) -> Self {
        match name {
            RoleName::Edge => Self::Edge,
            RoleName::Camera => Self::Camera,
            RoleName::App => Self::App,
        }
    }
}

/// Runs `mez config`. `matches` are those of its arguments.
pub(crate) fn run(args: ConfigArgs, matches: &ArgMatches) -> Result<(), Failure> {
    let of = |role: Role| {
        let shown = matches.subcommand_matches("show").and_then(|show| show.subcommand_matches(role.name()));
        shown.map(|shown| Typed::of(role, shown)).unwrap_or_default()
    };
    match args.command {
        Command::Check { files } => check(files),
        Command::Show { of: Of::Edge(_) } => show::<EdgeArgs>(&of(Role::Edge)),
        Command::Show { of: Of::Camera(_) } => show::<CameraArgs>(&of(Role::Camera)),
        Command::Show { of: Of::App(_) } => show::<ConnectArgs>(&of(Role::App)),
        Command::Schema { role } => {
            print!("{}", schema::schema(role.into()));
            Ok(())
        }
        Command::Table { role } => {
            print!("{}", schema::table(role.into()));
            Ok(())
        }
    }
}

fn check(files: Vec<PathBuf>) -> Result<(), Failure> {
    let mut faults = Vec::new();
    for path in files {
        let typed = Typed::only_file(path.clone().into());
        let read = ReadFile::read(&path, None);
        let found = match read.role {
            Some(Role::Edge) => faults_of::<EdgeArgs>(&typed),
            Some(Role::Camera) => faults_of::<CameraArgs>(&typed),
            Some(Role::App) => faults_of::<ConnectArgs>(&typed),
            None => read.faults.clone(),
        };
        if let (true, Some(role)) = (found.is_empty(), read.role) {
            let settings = counted(read.given.len() as u64, "setting");
            println!("{}: good: {settings} for {}", path.display(), role.reader());
            // Only a warning, since the file may be for another host.
            places_in_the_way(role, &path, &read).iter().for_each(|warning| eprintln!("{warning}"));
        }
        faults.extend(found);
    }
    if faults.is_empty() { Ok(()) } else { Err(Failure::lines(lines(&faults))) }
}

/// Warnings about folders in a file that do not exist, and could not be created on this host.
fn places_in_the_way(role: Role, file: &Path, read: &ReadFile) -> Vec<Fault> {
    let folders = role.settings().into_iter().filter(|setting| setting.value_name() == "DIR");
    let given = folders.filter_map(|setting| read.given.get(&setting.key).map(|given| (setting.key, given)));
    let warning = |(field, given): (String, &file::Given)| {
        let obstacle = Place::of(given.raws.first()?.as_ref()).obstacle()?;
        let what = format!(
            "warning: this user cannot create or write this folder on this host: {obstacle}; name another folder, if the file is for this host"
        );
        Some(Fault {
            origin: Origin::File(file.to_owned(), given.line),
            field,
            value: Some(given.typed.clone()),
            what,
        })
    };
    given.filter_map(warning).collect()
}

/// The role of a file, or the faults of a file without a valid role.
pub(crate) fn whose(file: &Path) -> Result<Role, Vec<Fault>> {
    let ReadFile { role, faults, .. } = ReadFile::read(file, None);
    role.ok_or(faults)
}

fn faults_of<A: OfRole>(typed: &Typed) -> Vec<Fault> {
    resolve::settle::<A>(typed).err().unwrap_or_default()
}

fn show<A: OfRole>(typed: &Typed) -> Result<(), Failure> {
    print!("{}", show::text(&settle::<A>(typed)?));
    Ok(())
}

/// The settings in force for this command line.
pub(crate) fn settle<A: OfRole>(typed: &Typed) -> Result<InForce<A>, Failure> {
    resolve::settle(typed).map_err(|faults| match &faults[..] {
        [fault] => Failure::usage(fault.to_string()),
        faults => Failure::usage(format!("{} faults in the settings:\n{}", faults.len(), lines(faults))),
    })
}

/// The settings in force of a broker. Also starts logging with these settings.
pub(crate) fn begin<A: OfRole>(typed: &Typed) -> Result<InForce<A>, Failure> {
    let in_force = settle::<A>(typed)?;
    if let Some(logs) = &in_force.logs {
        logs.start();
    }
    warn_of_variables();
    if let Some(path) = &in_force.file {
        info!("settings are read from {}", path.display());
    }
    Ok(in_force)
}

/// Warns of variables with Mez's prefix that nothing reads. Must be called once per process, after logging has started.
pub(crate) fn warn_of_variables() {
    for unknown in unknown_variables() {
        warn!("{unknown}; {}", unknown.remedy());
    }
}

/// Reads the settings of a running broker again. Returns the new arguments, or `None` if they are invalid.
pub(crate) fn reload<'a, A: OfRole>(in_force: &'a mut InForce<A>, typed: &Typed) -> Option<&'a A> {
    let newer = match resolve::settle::<A>(typed) {
        Ok(newer) => newer,
        Err(faults) => {
            faults.iter().for_each(|fault| error!("{fault}"));
            error!(
                "the settings were not changed, because of the errors above; `mez config check` shows the same errors"
            );
            return None;
        }
    };
    let changes = in_force.take(newer);
    changes.refused.iter().for_each(|sentence| warn!("{sentence}"));
    changes.taken.iter().for_each(|sentence| info!("{sentence}"));
    if changes.taken.is_empty() && changes.refused.is_empty() {
        info!("the settings were read again; nothing has changed");
    }
    // Last, so that changes are logged at the previous level.
    if let (true, Some(logs)) = (changes.logs, &in_force.logs) {
        logs.change();
    }
    Some(&in_force.args)
}

/// The edges and the key folder in the settings file of this user's applications. Ignores flags and variables.
pub(crate) fn of_applications(file: Option<&OsStr>) -> Result<ConnectArgs, Failure> {
    let typed = file.map_or_else(Typed::default, |file| Typed::only_file(file.to_owned()));
    settle::<ConnectArgs>(&typed).map(|in_force| in_force.args)
}
