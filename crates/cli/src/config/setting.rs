//! The settings of a role, derived from the arguments of its command. The arguments are the only list:
//! names in files, variables, types, the schema and the documentation are all derived from them.

use std::ffi::{OsStr, OsString};
use std::ops::Range;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, Args, Command};
use toml::Spanned;
use toml::de::DeValue;

use super::resolve::OfRole;
use crate::camera::CameraArgs;
use crate::connect::ConnectArgs;
use crate::edge::EdgeArgs;
use crate::logging::LogArgs;

/// The kinds of settings files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// `mez edge`.
    Edge,
    /// `mez camera`.
    Camera,
    /// Commands and programs that use an edge.
    App,
}

impl Role {
    pub(crate) const ALL: [Self; 3] = [Self::Edge, Self::Camera, Self::App];

    /// The name in a file.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Edge => "edge",
            Self::Camera => "camera",
            Self::App => "app",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == text)
    }

    /// The reader of such a file, for messages.
    pub(crate) fn reader(self) -> &'static str {
        match self {
            Self::Edge => "mez edge",
            Self::Camera => "mez camera",
            Self::App => "applications",
        }
    }

    /// The reader and its verb, as the beginning of a sentence.
    pub(crate) fn reads(self) -> String {
        let verb = if self == Self::App { "read" } else { "reads" };
        format!("{} {verb}", self.reader())
    }

    /// The variable that names the settings file.
    pub(super) fn config_variable(self) -> String {
        format!("MEZ_{}_CONFIG", self.name().to_ascii_uppercase())
    }

    /// Parses the role's arguments, without a program's name and without the environment.
    pub(super) fn command(self) -> Command {
        let bare =
            Command::new(self.name()).no_binary_name(true).disable_help_flag(true).disable_version_flag(true);
        let command = match self {
            Self::Edge => LogArgs::augment_args(EdgeArgs::augment_args(bare)),
            Self::Camera => LogArgs::augment_args(CameraArgs::augment_args(bare)),
            Self::App => ConnectArgs::augment_args(bare),
        };
        without_env(command)
    }

    /// All settings, in the order of `--help`.
    pub(crate) fn settings(self) -> Vec<Setting> {
        let bare = Command::new(self.name());
        let command = match self {
            Self::Edge => LogArgs::augment_args(EdgeArgs::augment_args(bare)),
            Self::Camera => LogArgs::augment_args(CameraArgs::augment_args(bare)),
            Self::App => ConnectArgs::augment_args(bare),
        };
        command.get_arguments().filter(|arg| arg.get_id() != CONFIG).cloned().map(Setting::of).collect()
    }

    /// The names of the settings that change without a restart.
    pub(crate) fn reloaded(self) -> Vec<&'static str> {
        fn keys<A: OfRole>() -> Vec<&'static str> {
            A::RELOADED.iter().map(|(key, _)| *key).collect()
        }
        match self {
            Self::Edge => [keys::<EdgeArgs>(), vec![LOG]].concat(),
            Self::Camera => [keys::<CameraArgs>(), vec![LOG]].concat(),
            Self::App => Vec::new(),
        }
    }
}

/// The option that names the file. It is not a setting in the file.
pub(super) const CONFIG: &str = "config";
/// The setting that every running broker can change.
pub(super) const LOG: &str = "log";

/// Makes all arguments ignore the environment.
pub(crate) fn without_env(command: Command) -> Command {
    command.mut_args(|arg| arg.env(None::<&'static str>))
}

/// The type of a setting's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    /// Bytes: a number, or a text with a unit.
    Size,
    /// A text with a unit.
    Time,
    Whole,
    Number,
    Switch,
}

/// One setting.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    arg: Arg,
    /// Its name in a file.
    pub(crate) key: String,
    pub(crate) kind: Kind,
    /// Whether it may be given several times.
    pub(crate) is_list: bool,
}

impl Setting {
    fn of(arg: Arg) -> Self {
        let name = arg.get_long().unwrap_or(arg.get_id().as_str());
        let key = name.replace('-', "_");
        let kind = match value_name(&arg) {
            _ if matches!(arg.get_action(), ArgAction::SetTrue) => Kind::Switch,
            "SIZE" | "SIZE|off" => Kind::Size,
            "TIME" | "TIME|never" => Kind::Time,
            "N" => Kind::Whole,
            "F" | "SHARE" => Kind::Number,
            _ => Kind::Text,
        };
        let is_list = matches!(arg.get_action(), ArgAction::Append);
        Self { key, kind, is_list, arg }
    }

    /// The ID of the argument.
    pub(crate) fn id(&self) -> &str {
        self.arg.get_id().as_str()
    }

    /// The argument on the command line: `--grpc`, or `NAME`.
    pub(crate) fn flag(&self) -> String {
        match self.arg.get_long() {
            Some(long) => format!("--{long}"),
            None => value_name(&self.arg).to_owned(),
        }
    }

    /// The placeholder of its value in help.
    pub(crate) fn value_name(&self) -> &str {
        value_name(&self.arg)
    }

    /// Its environment variable.
    pub(crate) fn variable(&self) -> Option<String> {
        self.arg.get_env().map(|name| name.to_string_lossy().into_owned())
    }

    /// The name and the value of its variable, if it is set. An empty value counts as unset.
    pub(super) fn in_environment(&self) -> Option<(String, Vec<OsString>)> {
        let name = self.variable()?;
        let value = std::env::var_os(&name).filter(|value| !value.is_empty())?;
        let raws = match (value.to_str(), self.arg.get_value_delimiter()) {
            (Some(text), Some(delimiter)) if self.is_list => {
                let parts = text.split(delimiter).map(str::trim).filter(|part| !part.is_empty());
                parts.map(OsString::from).collect()
            }
            _ => vec![value],
        };
        Some((name, raws))
    }

    /// The possible values, if there is a list.
    pub(crate) fn choices(&self) -> Vec<String> {
        if self.kind == Kind::Switch {
            return Vec::new();
        }
        self.arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect()
    }

    /// The default, if it does not depend on the host.
    pub(crate) fn default(&self) -> Option<String> {
        if self.kind == Kind::Switch {
            return Some("false".into());
        }
        let [default] = self.arg.get_default_values() else { return None };
        Some(default.to_string_lossy().into_owned())
    }

    /// Its description, without the notes about defaults and variables.
    pub(crate) fn help(&self) -> String {
        let help = self.full_help();
        let end = help.find(" [").unwrap_or(help.len());
        help[..end].to_owned()
    }

    /// The description of a default that depends on the host.
    pub(crate) fn default_in_words(&self) -> Option<String> {
        let help = self.full_help();
        let (_, words) = help.split_once("[default: ")?;
        Some(words.split(']').next().unwrap_or(words).to_owned())
    }

    fn full_help(&self) -> String {
        let help = self.arg.get_help().map(ToString::to_string).unwrap_or_default();
        help.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Parses a switch in the environment or in a file.
    pub(super) fn switch(raw: &OsStr) -> Result<bool, String> {
        match raw.to_str().map(str::to_ascii_lowercase).as_deref() {
            Some("true" | "yes" | "on" | "1") => Ok(true),
            Some("false" | "no" | "off" | "0") => Ok(false),
            _ => Err("this setting is on or off; write true or false".into()),
        }
    }

    /// The command-line arguments for these values.
    pub(super) fn words(&self, raws: &[OsString]) -> Vec<OsString> {
        let Some(long) = self.arg.get_long() else { return raws.to_vec() };
        if self.kind == Kind::Switch {
            let on = raws.iter().any(|raw| Self::switch(raw) == Ok(true));
            return if on { vec![format!("--{long}").into()] } else { Vec::new() };
        }
        let word = |raw: &OsString| {
            let mut word = OsString::from(format!("--{long}="));
            word.push(raw);
            word
        };
        raws.iter().map(word).collect()
    }

    /// Why a value is invalid, and what to write instead.
    pub(super) fn check(&self, raw: &OsStr) -> Result<(), String> {
        if raw.is_empty() {
            return Err("the value is empty; write a value, or leave this setting out".into());
        }
        if self.kind == Kind::Switch {
            return Self::switch(raw).map(drop);
        }
        let alone = Command::new("mez").no_binary_name(true).disable_help_flag(true);
        let alone = alone.arg(self.arg.clone().env(None::<&'static str>).required(false));
        let Err(error) = alone.try_get_matches_from(self.words(&[raw.to_owned()])) else { return Ok(()) };
        let choices = self.choices();
        Err(match (error.kind(), std::error::Error::source(&error)) {
            (ErrorKind::InvalidValue, _) if !choices.is_empty() => {
                format!("there is no such choice; write one of {}", choices.join(", "))
            }
            (_, Some(why)) => why.to_string(),
            _ => format!("the value cannot be read; write {}", self.value_name()),
        })
    }

    /// The values in a file with their positions, or the remedy.
    pub(super) fn values(
        &self,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<Vec<(OsString, Range<usize>)>, String> {
        match value.get_ref() {
            DeValue::Array(values) if self.is_list => {
                values.iter().map(|value| Ok((self.value(value)?, value.span()))).collect()
            }
            _ => Ok(vec![(self.value(value)?, value.span())]),
        }
    }

    fn value(&self, value: &Spanned<DeValue<'_>>) -> Result<OsString, String> {
        match (self.kind, value.get_ref()) {
            (Kind::Text | Kind::Size | Kind::Time, DeValue::String(text)) => Ok(text.to_string().into()),
            (Kind::Size | Kind::Whole | Kind::Number, DeValue::Integer(number)) => {
                let number = i128::from_str_radix(number.as_str(), number.radix());
                number.map(|number| number.to_string().into()).map_err(|_| "the number is too large".into())
            }
            (Kind::Number, DeValue::Float(number)) => Ok(number.as_str().into()),
            (Kind::Switch, DeValue::Boolean(on)) => Ok(on.to_string().into()),
            (_, other) => Err(format!("{} is not the right type; {}", kind_of(other), self.example())),
        }
    }

    /// How to write a value of this type.
    pub(crate) fn example(&self) -> String {
        let key = &self.key;
        match self.kind {
            _ if self.is_list => format!("write a list of texts, such as {key} = [\"…\", \"…\"]"),
            Kind::Text => format!("write a text in quotes: {key} = \"…\""),
            Kind::Size => format!("write a size, such as {key} = \"512MiB\""),
            Kind::Time => format!("write a time with its unit, such as {key} = \"90s\" or \"7d\""),
            Kind::Whole => format!("write a whole number without quotes, such as {key} = 64"),
            Kind::Number => format!("write a number without quotes, such as {key} = 0.5"),
            Kind::Switch => format!("write {key} = true or {key} = false"),
        }
    }
}

fn value_name(arg: &Arg) -> &str {
    arg.get_value_names().and_then(|names| names.first()).map_or(arg.get_id().as_str(), |name| name.as_str())
}

fn kind_of(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
