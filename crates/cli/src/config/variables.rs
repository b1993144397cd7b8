//! The environment variables of Mez, and those with its prefix that nothing reads.

use std::fmt;

use super::file::nearest;
use super::setting::Role;

/// The prefix of all variables.
const PREFIX: &str = "MEZ_";

/// Variables that are not settings. A new variable must be added here; otherwise its users get a warning.
const OTHERS: [&str; 19] = [
    // Contain a secret itself, for which a setting names a file.
    "MEZ_SOURCE_CREDENTIALS",
    "MEZ_STORE_KEY",
    // The Python package: the first three are secrets of pipelines.
    "MEZ_KAFKA_KEY_PASSWORD",
    "MEZ_KAFKA_PASSWORD",
    "MEZ_KAFKA_USERNAME",
    "MEZ_PROFILE_CACHE",
    // Tests and experiments.
    "MEZ_BENCH_BINARY",
    "MEZ_BENCH_DATA",
    "MEZ_DAMAGES",
    "MEZ_KILLS",
    "MEZ_POWER_CUTS",
    "MEZ_ROUND_TRIPS",
    "MEZ_SEED",
    "MEZ_SEEDS",
    "MEZ_TEST_ASKS_AT",
    "MEZ_TEST_CAMERA_TO_READ",
    "MEZ_TEST_DECODES",
    "MEZ_TEST_PUBLISH_ON",
    "MEZ_WRITE",
];

/// A variable with the prefix that nothing reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnknownVariable {
    pub(crate) name: String,
    /// The variable that was probably meant.
    near: Option<String>,
}

impl UnknownVariable {
    /// The remedy.
    pub(crate) fn remedy(&self) -> String {
        match &self.near {
            Some(near) => format!("did you mean {near}?"),
            None => {
                "`mez edge --help` and the help of the other commands list the variables that exist".into()
            }
        }
    }
}

impl fmt::Display for UnknownVariable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the variable {} has no effect, because no setting has this name", self.name)
    }
}

/// The unknown variables of this process.
pub(crate) fn unknown() -> Vec<UnknownVariable> {
    let set = std::env::vars_os().filter(|(_, value)| !value.is_empty());
    unknown_among(set.filter_map(|(name, _)| name.into_string().ok()))
}

fn unknown_among(names: impl IntoIterator<Item = String>) -> Vec<UnknownVariable> {
    let known = known();
    let is_unknown = |name: &String| name.starts_with(PREFIX) && !known.contains(name);
    let near = |name: &str| {
        let known = || known.iter().map(String::as_str);
        known().find(|other| subject(other) == subject(name)).or_else(|| nearest(name, known()))
    };
    let unknown = names.into_iter().filter(is_unknown);
    let mut unknown: Vec<_> =
        unknown.map(|name| UnknownVariable { near: near(&name).map(str::to_owned), name }).collect();
    unknown.sort_by(|one, other| one.name.cmp(&other.name));
    unknown
}

/// The name of a variable without prefix and role, since only some names contain the role.
fn subject(name: &str) -> &str {
    let name = name.strip_prefix(PREFIX).unwrap_or(name);
    let of_role = |role: Role| name.strip_prefix(&role.name().to_ascii_uppercase())?.strip_prefix('_');
    Role::ALL.into_iter().find_map(of_role).unwrap_or(name)
}

/// All variables that anything reads.
fn known() -> Vec<String> {
    let of_settings = Role::ALL.into_iter().flat_map(Role::settings).filter_map(|setting| setting.variable());
    let files = Role::ALL.into_iter().map(Role::config_variable);
    of_settings.chain(files).chain(OTHERS.map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    fn said(name: &str) -> Option<String> {
        unknown_among([name.to_owned()]).first().map(UnknownVariable::remedy)
    }

    #[test]
    fn a_misspelt_variable_is_told_with_the_one_that_was_meant() {
        assert_eq!(said("MEZ_EDGE_MEMORYBYTES").as_deref(), Some("did you mean MEZ_EDGE_MEMORY_BYTES?"));
        assert_eq!(said("MEZ_EDGE_STATE").as_deref(), Some("did you mean MEZ_STATE?"));
        assert_eq!(said("MEZ_LISTEN").as_deref(), Some("did you mean MEZ_EDGE_LISTEN?"));
        assert!(said("MEZ_FROBNICATE").unwrap().contains("--help"));
        for good in ["MEZ_EDGE_MEMORY_BYTES", "MEZ_STORE_KEY", "MEZ_APP_CONFIG", "MEZ_SEED", "PATH"] {
            assert_eq!(said(good), None, "{good}");
        }
    }

    /// Variables in the help of a command are known.
    #[test]
    fn every_variable_of_a_command_is_known() {
        fn of(command: &clap::Command, found: &mut BTreeSet<String>) {
            let variables = command.get_arguments().filter_map(|arg| arg.get_env());
            found.extend(variables.map(|name| name.to_string_lossy().into_owned()));
            command.get_subcommands().for_each(|below| of(below, found));
        }
        let mut found = BTreeSet::new();
        of(&Cli::command(), &mut found);
        assert!(found.len() > 20, "{found:?}");
        assert_eq!(unknown_among(found), []);
    }

    /// Also variables of tests, experiments and the Python package, if the sources name them.
    #[test]
    fn every_variable_that_the_sources_read_is_known() {
        fn files(folder: &Path, found: &mut Vec<std::path::PathBuf>) {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    files(&path, found);
                } else if path.extension().is_some_and(|ending| ending == "rs" || ending == "py") {
                    found.push(path);
                }
            }
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut found = Vec::new();
        ["crates", "python", "bench", "fuzz/src"]
            .iter()
            .for_each(|folder| files(&root.join(folder), &mut found));
        // Variables that tests make up do not count.
        found.retain(|path| !path.ends_with("variables.rs") && !path.ends_with("cli/tests/config.rs"));
        let mut names = BTreeSet::new();
        for path in &found {
            let text = fs::read_to_string(path).unwrap_or_default();
            let quoted = text.split("\"MEZ_").skip(1).filter_map(|after| after.split_once('"'));
            let is_name = |name: &&str| {
                !name.ends_with('_')
                    && !name.is_empty()
                    && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
            };
            names.extend(quoted.map(|(name, _)| name).filter(is_name).map(|name| format!("{PREFIX}{name}")));
        }
        assert!(names.len() > 5, "{names:?}");
        assert_eq!(unknown_among(names), [], "a new variable belongs into the list of this file");
    }
}
