//! Determines the settings in force. Precedence: flags, environment, file, defaults.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, FromArgMatches};

use super::fault::{Fault, Origin};
use super::file::{self, ReadFile};
use super::setting::{CONFIG, Kind, LOG, Role, Setting};
use crate::logging::LogArgs;

/// Copies one setting from newer arguments.
pub(crate) type Take<A> = fn(&mut A, &A);

/// Contradictions between settings that are valid by themselves: the name of one of them, and the remedy.
pub(crate) type Contradictions = Vec<(&'static str, String)>;

/// The arguments of a role's command.
pub(crate) trait OfRole: Args + 'static {
    /// The role.
    const ROLE: Role;

    /// The settings that a running broker can change, and how. All others need a restart.
    const RELOADED: &'static [(&'static str, Take<Self>)];

    /// Missing settings, and contradictions. `given` returns whether a setting was set for this start, in a file or as a flag.
    fn contradictions(&self, given: &dyn Fn(&str) -> bool) -> Contradictions;

    /// The values of unset settings whose default depends on the host.
    fn computed(&self) -> Vec<(&'static str, String)>;
}

/// The settings on the command line.
#[derive(Clone, Debug, Default)]
pub(crate) struct Typed {
    config: Option<OsString>,
    /// The values, by the IDs of the arguments.
    given: BTreeMap<String, Vec<OsString>>,
}

impl Typed {
    /// The settings of a role on the command line.
    pub(crate) fn of(role: Role, matches: &ArgMatches) -> Self {
        let raws = |id: &str| -> Vec<OsString> {
            matches.get_raw(id).into_iter().flatten().map(OsString::from).collect()
        };
        let typed = |setting: &Setting| {
            let id = setting.id();
            let is_typed = matches.value_source(id) == Some(ValueSource::CommandLine);
            let raws = if setting.kind == Kind::Switch { vec!["true".into()] } else { raws(id) };
            is_typed.then(|| (id.to_owned(), raws))
        };
        let given = role.settings().iter().filter_map(typed).collect();
        Self { config: raws(CONFIG).into_iter().next(), given }
    }

    /// No settings, except for the name of a file.
    pub(crate) fn only_file(path: OsString) -> Self {
        Self { config: Some(path), ..Self::default() }
    }

    /// Settings of a role that another command has as its own options.
    pub(crate) fn given(config: Option<OsString>, given: Vec<(&str, Vec<OsString>)>) -> Self {
        let given = given.into_iter().filter(|(_, raws)| !raws.is_empty());
        Self { config, given: given.map(|(id, raws)| (id.to_owned(), raws)).collect() }
    }

    /// The settings file that was named.
    pub(super) fn config(&self, role: Role) -> Option<OsString> {
        let variable = std::env::var_os(role.config_variable());
        self.config.clone().or_else(|| variable.filter(|value| !value.is_empty()))
    }
}

/// A setting in force.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) setting: Setting,
    pub(crate) origin: Origin,
    /// The values. May be empty.
    pub(crate) raws: Vec<OsString>,
}

/// All settings in force.
pub(crate) struct InForce<A> {
    pub(crate) args: A,
    /// How the broker logs. `None` for roles without this setting.
    pub(crate) logs: Option<LogArgs>,
    pub(crate) lines: Vec<Line>,
    /// The file that was read.
    pub(crate) file: Option<PathBuf>,
}

/// Settings for whose secret there is also a variable. The variable takes precedence over a path in the file.
const HELD_BY_VARIABLES: [(&str, &str); 2] =
    [("store_key", "MEZ_STORE_KEY"), ("source_credentials", "MEZ_SOURCE_CREDENTIALS")];

/// All values of a role's settings, and the faults of single settings.
pub(super) struct Gathered {
    pub(super) lines: Vec<Line>,
    path: Option<PathBuf>,
    read: ReadFile,
    pub(super) faults: Vec<Fault>,
    /// The names of invalid settings.
    faulty: Vec<String>,
}

impl Gathered {
    pub(super) fn of(role: Role, typed: &Typed) -> Self {
        let path = file::find(role, typed.config(role).as_deref());
        let read = path.as_deref().map_or_else(ReadFile::default, |path| ReadFile::read(path, Some(role)));
        let (mut faults, mut faulty) = (read.faults.clone(), read.faulty.clone());
        let mut lines = Vec::new();
        for setting in role.settings() {
            let (origin, raws) = choose(&setting, typed, (path.as_ref(), &read));
            if matches!(origin, Origin::Variable(_))
                && let Some((raw, what)) = raws.iter().find_map(|raw| Some((raw, setting.check(raw).err()?)))
            {
                // A variable may contain a secret.
                let value = (!is_secret(&setting.key)).then(|| raw.to_string_lossy().into_owned());
                faults.push(Fault { origin, field: setting.key.clone(), value, what });
                faulty.push(setting.key.clone());
                lines.push(Line { setting, origin: Origin::Default, raws: Vec::new() });
                continue;
            }
            lines.push(Line { setting, origin, raws });
        }
        Self { lines, path, read, faults, faulty }
    }

    /// Whether nothing of the file could be read, so that there is nothing to check for contradictions.
    fn is_unread(&self) -> bool {
        self.path.is_some() && self.read.role.is_none() && !self.read.faults.is_empty()
    }
}

/// All valid values of a role's settings, and all faults.
pub(crate) struct Examined {
    pub(crate) lines: Vec<Line>,
    /// The file that was read.
    pub(crate) file: Option<PathBuf>,
    pub(crate) faults: Vec<Fault>,
}

/// Examines the settings of a role for a caller that continues in spite of faults.
pub(crate) fn examine<A: OfRole>(typed: &Typed) -> Examined {
    let Gathered { lines, path, .. } = Gathered::of(A::ROLE, typed);
    let faults = settle::<A>(typed).err().unwrap_or_default();
    Examined { lines, file: path, faults }
}

/// Determines the settings in force, or returns all faults.
pub(crate) fn settle<A: OfRole>(typed: &Typed) -> Result<InForce<A>, Vec<Fault>> {
    let gathered = Gathered::of(A::ROLE, typed);
    if gathered.is_unread() {
        return Err(gathered.faults);
    }
    let Gathered { lines, path, read, mut faults, faulty } = gathered;
    let words = lines.iter().filter(|line| line.origin != Origin::Default);
    let words: Vec<OsString> = words.flat_map(|line| line.setting.words(&line.raws)).collect();
    let parsed = A::ROLE.command().try_get_matches_from(words).and_then(|matches| {
        let logs = (A::ROLE != Role::App).then(|| LogArgs::from_arg_matches(&matches)).transpose()?;
        Ok((A::from_arg_matches(&matches)?, logs))
    });
    let (args, logs) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => {
            let what = error.to_string().lines().next().unwrap_or_default().replacen("error: ", "", 1);
            faults.push(Fault { origin: Origin::Default, field: "settings".into(), value: None, what });
            return Err(faults);
        }
    };
    let line_of = |key: &str| lines.iter().find(|line| line.setting.key == key);
    // A value that repeats the default was not meant to have an effect.
    let given = |key: &str| {
        line_of(key).is_some_and(|line| {
            let is_own = line.raws.iter().map(|raw| raw.to_str()).ne([line.setting.default().as_deref()]);
            matches!(line.origin, Origin::File(..) | Origin::Flag(_)) && is_own
        })
    };
    for (key, what) in args.contradictions(&given) {
        // An invalid setting may have been meant correctly.
        if !faulty.iter().any(|faulty| faulty == key) {
            faults.push(contradiction(key, line_of(key), (path.as_ref(), &read), what));
        }
    }
    if faults.is_empty() { Ok(InForce { args, logs, lines, file: path }) } else { Err(faults) }
}

/// The value of a setting, and its origin.
fn choose(
    setting: &Setting,
    typed: &Typed,
    (path, read): (Option<&PathBuf>, &ReadFile),
) -> (Origin, Vec<OsString>) {
    if let Some(raws) = typed.given.get(setting.id()) {
        return (Origin::Flag(setting.flag()), raws.clone());
    }
    if let Some((name, raws)) = setting.in_environment() {
        return (Origin::Variable(name), raws);
    }
    let held = HELD_BY_VARIABLES.iter().find(|(key, _)| *key == setting.key);
    let is_held = held.is_some_and(|(_, name)| std::env::var_os(name).is_some_and(|value| !value.is_empty()));
    match (read.given.get(&setting.key).filter(|_| !is_held), path) {
        (Some(given), Some(path)) => (Origin::File(path.clone(), given.line), given.raws.clone()),
        _ => (Origin::Default, setting.default().into_iter().map(OsString::from).collect()),
    }
}

/// Whether a setting's value may contain a secret, and must not be shown.
pub(super) fn is_secret(key: &str) -> bool {
    key == "source"
}

fn contradiction(
    key: &str,
    line: Option<&Line>,
    (path, read): (Option<&PathBuf>, &ReadFile),
    what: String,
) -> Fault {
    let origin = line.map_or(Origin::Default, |line| line.origin.clone());
    // A missing setting is a fault of the file, if there is one.
    let origin = match (origin, path) {
        (Origin::Default, Some(path)) => Origin::File(path.clone(), 0),
        (origin, _) => origin,
    };
    let value = match (&origin, line) {
        (Origin::File(..), _) => read.given.get(key).map(|given| given.typed.clone()),
        (_, Some(line)) if !is_secret(key) && line.setting.kind != Kind::Switch => {
            line.raws.first().map(|raw| raw.to_string_lossy().into_owned())
        }
        _ => None,
    };
    let value = value.filter(|_| !is_secret(key));
    let what = match &origin {
        Origin::File(_, 0) => format!("{key}: {what}"),
        _ => what,
    };
    Fault { origin, field: key.into(), value, what }
}

/// The effect of changed settings on a running broker.
pub(crate) struct Changes {
    /// Sentences about changes that are applied.
    pub(crate) taken: Vec<String>,
    /// Sentences about changes that need a restart.
    pub(crate) refused: Vec<String>,
    /// Whether the level of log lines has changed.
    pub(crate) logs: bool,
}

impl<A: OfRole> InForce<A> {
    /// Applies the changes that are possible while a broker runs.
    pub(crate) fn take(&mut self, newer: InForce<A>) -> Changes {
        let mut changes = Changes { taken: Vec::new(), refused: Vec::new(), logs: false };
        for (line, new) in self.lines.iter_mut().zip(newer.lines) {
            let key = line.setting.key.as_str();
            debug_assert_eq!(key, new.setting.key, "the settings of a role are in one order");
            if line.raws == new.raws {
                line.origin = new.origin;
                continue;
            }
            let said = format!("{} says {}", new.origin, new.shown().unwrap_or_else(|| "nothing".into()));
            if key == LOG {
                self.logs.clone_from(&newer.logs);
                changes.logs = true;
            } else if let Some((_, take)) = A::RELOADED.iter().find(|(reloaded, _)| *reloaded == key) {
                take(&mut self.args, &newer.args);
            } else {
                let stays = line.shown().unwrap_or_else(|| "as it was".into());
                changes.refused.push(format!("{key} needs a restart and stays {stays}, although {said}"));
                continue;
            }
            changes.taken.push(format!("{key}: {said}"));
            (line.raws, line.origin) = (new.raws, new.origin);
        }
        changes
    }
}
