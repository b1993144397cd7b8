//! Reads a settings file, and finds all its faults at once, each with its line and remedy.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::fault::{Fault, Origin};
use super::secret;
use super::setting::{CONFIG, Role, Setting};

/// The largest size of a file, in bytes.
const BYTES_MAX: u64 = 1 << 20;
/// The most syntax errors that are reported. A file that is not TOML has thousands.
const SYNTAX_FAULTS_MAX: usize = 10;
/// The file name that stands for no file.
pub(crate) const OFF: &str = "off";
/// The setting that names the role of a file.
const ROLE: &str = "role";

/// The value of a setting in a file.
#[derive(Clone, Debug)]
pub(super) struct Given {
    pub(super) line: usize,
    pub(super) raws: Vec<OsString>,
    /// The text of the value.
    pub(super) typed: String,
}

/// The content of a file.
#[derive(Clone, Debug, Default)]
pub(super) struct ReadFile {
    /// The role, if the file names it.
    pub(super) role: Option<Role>,
    /// The valid settings, by name.
    pub(super) given: BTreeMap<String, Given>,
    /// The names of invalid settings.
    pub(super) faulty: Vec<String>,
    pub(super) faults: Vec<Fault>,
}

impl ReadFile {
    /// Reads a file. `role` is the expected role, if it is known.
    pub(super) fn read(path: &Path, role: Option<Role>) -> Self {
        match text_of(path) {
            Ok(text) => Reader { text: &text, path, read: Self::default() }.run(role),
            Err(fault) => Self { faults: vec![fault], ..Self::default() },
        }
    }
}

/// The text of a file, or a fault.
fn text_of(path: &Path) -> Result<String, Fault> {
    let whole = |what: String| Fault::of_file(path, 0, what);
    let failed = |error: io::Error| {
        whole(match error.kind() {
            io::ErrorKind::NotFound => "there is no such file; create it, or leave --config out".into(),
            io::ErrorKind::PermissionDenied => {
                "this user may not read the file; let the user that runs the command read the file (chown, chmod)".into()
            }
            io::ErrorKind::IsADirectory => "this is a folder; name a file in it".into(),
            _ => format!("the file cannot be read: {error}"),
        })
    };
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if metadata.is_dir() {
        return Err(whole("this is a folder; name a file in it".into()));
    }
    let mode = metadata.permissions().mode() & 0o7777;
    if metadata.is_file() && mode & 0o002 != 0 {
        return Err(whole(format!(
            "every user of this host may write this file (mode {mode:04o}); run: chmod o-w {}",
            path.display()
        )));
    }
    let mut bytes = Vec::new();
    file.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(whole(format!(
            "the file has more than {BYTES_MAX} bytes; check that it is the right file"
        )));
    }
    String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        Fault::of_file(path, line, "the file is not UTF-8; save it as UTF-8, without a byte-order mark")
    })
}

struct Reader<'a> {
    text: &'a str,
    path: &'a Path,
    read: ReadFile,
}

impl Reader<'_> {
    fn run(mut self, expected: Option<Role>) -> ReadFile {
        let (table, errors) = DeTable::parse_recoverable(self.text);
        let mut broken: Vec<usize> = Vec::new();
        for error in errors.iter() {
            let line = self.line(error.span().unwrap_or_default().start);
            // Further errors on the same line mostly follow from the first.
            if !broken.contains(&line) && broken.len() < SYNTAX_FAULTS_MAX {
                broken.push(line);
                let what = syntax(error.message());
                self.read.faults.push(Fault::of_file(self.path, line, what));
            }
        }
        if let Some(role) = self.role(table.get_ref(), expected, &broken) {
            self.read.role = Some(role);
            self.settings(role, table.get_ref(), &broken);
        }
        self.read.faults.sort_by(|one, other| one.origin.cmp(&other.origin));
        self.read
    }

    /// The role of the file. `None` if it is missing, or is not the expected one.
    fn role(&mut self, table: &DeTable<'_>, expected: Option<Role>, broken: &[usize]) -> Option<Role> {
        let Some((key, value)) = table.iter().find(|(key, _)| key.get_ref() == ROLE) else {
            // An unreadable line may have contained the role.
            if broken.is_empty() {
                let names = Role::ALL.map(|role| format!("role = \"{}\"", role.name()));
                self.fault(
                    ROLE,
                    0..0,
                    None,
                    format!("the file does not name its role; begin it with {}", names.join(" or ")),
                );
            }
            return expected;
        };
        let DeValue::String(text) = value.get_ref() else {
            if !broken.contains(&self.line(key.span().start)) {
                let what = "write the role in quotes: role = \"edge\", \"camera\" or \"app\"";
                self.fault(ROLE, value.span(), Some(value.span()), what.into());
            }
            return expected;
        };
        let Some(role) = Role::parse(text) else {
            let near = nearest(text, Role::ALL.iter().map(|role| role.name()));
            let meant = near.map_or(String::new(), |near| format!("; did you mean {near:?}?"));
            let what = format!("there is no such role{meant} Write \"edge\", \"camera\" or \"app\"");
            let what = if meant.is_empty() { what.replacen(" Write", "; write", 1) } else { what };
            self.fault(ROLE, value.span(), Some(value.span()), what);
            return expected;
        };
        if let Some(expected) = expected.filter(|expected| *expected != role) {
            let what = format!(
                "this file is for {}, but was given to {}; name another file",
                role.reader(),
                expected.reader()
            );
            self.fault(ROLE, value.span(), Some(value.span()), what);
            return None;
        }
        Some(role)
    }

    fn settings(&mut self, role: Role, table: &DeTable<'_>, broken: &[usize]) {
        let settings = role.settings();
        for (key, value) in table.iter().filter(|(key, _)| key.get_ref() != ROLE) {
            let name = key.get_ref().to_string();
            if broken.contains(&self.line(key.span().start)) {
                self.read.faulty.push(name);
                continue;
            }
            match settings.iter().find(|setting| setting.key == name) {
                Some(setting) => self.setting(setting, key, value),
                None => {
                    let what = unknown(role, &settings, &name, value.get_ref());
                    self.fault(&name, key.span(), None, what);
                }
            }
        }
    }

    fn setting(
        &mut self,
        setting: &Setting,
        key: &Spanned<std::borrow::Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
    ) {
        let before = self.read.faults.len();
        let mut raws = Vec::new();
        match setting.values(value) {
            Ok(values) => {
                for (raw, span) in values {
                    self.check(setting, &raw, &span);
                    raws.push(raw);
                }
            }
            Err(what) => {
                // A list or a table may be long, and may contain secrets.
                let shown = !matches!(value.get_ref(), DeValue::Array(_) | DeValue::Table(_));
                let place = if shown { value.span() } else { key.span() };
                self.fault(&setting.key, place, shown.then(|| value.span()), what);
            }
        }
        if self.read.faults.len() > before {
            return self.read.faulty.push(setting.key.clone());
        }
        let (line, typed) = (self.line(key.span().start), self.text[value.span()].to_owned());
        self.read.given.insert(setting.key.clone(), Given { line, raws, typed });
    }

    fn check(&mut self, setting: &Setting, raw: &OsString, span: &Range<usize>) {
        if let Some(what) = raw.to_str().and_then(|raw| secret::in_value(&setting.key, raw)) {
            self.fault(&setting.key, span.clone(), None, what);
        } else if let Err(what) = setting.check(raw) {
            self.fault(&setting.key, span.clone(), Some(span.clone()), what);
        }
    }

    fn fault(&mut self, field: &str, place: Range<usize>, value: Option<Range<usize>>, what: String) {
        let origin = Origin::File(self.path.to_owned(), self.line(place.start));
        let value = value.and_then(|span| self.text.get(span)).map(str::to_owned);
        self.read.faults.push(Fault { origin, field: field.into(), value, what });
    }

    fn line(&self, place: usize) -> usize {
        self.text.bytes().take(place).filter(|byte| *byte == b'\n').count() + 1
    }
}

/// The remedy for a syntax error.
fn syntax(message: &str) -> String {
    if message.contains("duplicate key") {
        return "this setting is in the file twice; keep one of the two lines".into();
    }
    format!("this is not TOML: {message}; write one setting per line, as name = value, with text in quotes")
}

/// The remedy for an unknown setting.
fn unknown(role: Role, settings: &[Setting], name: &str, value: &DeValue<'_>) -> String {
    if name == CONFIG {
        return "a settings file cannot name another settings file; leave this setting out".into();
    }
    let plain = name.to_ascii_lowercase().replace('-', "_");
    let keys = || settings.iter().map(|setting| setting.key.as_str());
    if keys().any(|key| key == plain) {
        return format!("names are in lower case, with _ between words; write {plain}");
    }
    let others = Role::ALL.into_iter().filter(|other| *other != role);
    for other in others {
        if other.settings().iter().any(|setting| setting.key == plain) {
            return format!(
                "this is a setting of {}, but the file is for {}; leave this setting out",
                other.reader(),
                role.reader()
            );
        }
    }
    if let Some(what) = secret::in_name(role, name) {
        return what;
    }
    let begin_so = keys().find(|key| key.starts_with(&plain) || plain.starts_with(&format!("{key}_")));
    if let Some(near) = nearest(&plain, keys()).or(begin_so) {
        return format!("there is no such setting; did you mean {near}?");
    }
    if matches!(value, DeValue::Table(_)) {
        return "these files have no tables; write all settings at the top, as name = value, without [headings]".into();
    }
    format!("there is no such setting; `mez config show {}` lists all of them", role.name())
}

/// The most similar name, if one is similar enough.
pub(super) fn nearest<'a>(typed: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let reach = (typed.chars().count() / 4).clamp(1, 3);
    let near = names.map(|name| (distance(typed, name), name)).filter(|(far, _)| *far <= reach);
    near.min_by_key(|(far, _)| *far).map(|(_, name)| name)
}

/// Edit distance: the least number of insertions, deletions, replacements and swaps of neighbours.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=other.len()).collect()];
    for (i, a) in one.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in other.iter().enumerate() {
            let mut least = (rows[i][j] + usize::from(a != b)).min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == other[j - 1] && one[i - 1] == *b {
                least = least.min(rows[i - 1][j - 1] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[one.len()][other.len()]
}

/// The settings file of a role: the named one, or else the user's, or else the system's. `None` if there is no such file, or if the name is [`OFF`].
pub(super) fn find(role: Role, named: Option<&std::ffi::OsStr>) -> Option<PathBuf> {
    if let Some(named) = named {
        return (named != OFF).then(|| named.into());
    }
    places(role).into_iter().find(|path| path.exists())
}

/// Whether the file exists, but this user may not read it.
pub(super) fn is_denied(path: &Path) -> bool {
    File::open(path).is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

/// The places of the settings file, if no file is named.
pub(super) fn places(role: Role) -> Vec<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    // The XDG rules: a relative path is not valid and is ignored.
    let own = variable("XDG_CONFIG_HOME").filter(|path| path.is_absolute());
    let own = own.or_else(|| variable("HOME").map(|home| home.join(".config")));
    let file = format!("{}.toml", role.name());
    own.map(|own| own.join("mez").join(&file))
        .into_iter()
        .chain([Path::new("/etc/mez").join(&file)])
        .collect()
}
