//! The settings in force for brokers and programs of this host (from this command's options, variables, files and defaults), and their faults.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use super::finding::{Check, Finding};
use super::subject::{Side, Subject, SubjectArgs};
use crate::camera::CameraArgs;
use crate::config::{Examined, Fault, Origin, Role, Typed, examine, unknown_variables, whose};
use crate::connect::ConnectArgs;
use crate::edge::EdgeArgs;

/// The settings of each side, even if this host does not have the side.
pub(super) struct Settings {
    edge: Examined,
    camera: Examined,
    app: Examined,
    /// The faults of a file without a valid role.
    nobodys: Vec<Fault>,
}

impl Settings {
    pub(super) fn of(args: &SubjectArgs) -> Self {
        let file = args.config.as_deref().filter(|file| file.as_os_str() != "off");
        let (role, nobodys) = match file.map(whose) {
            Some(Ok(role)) => (Some(role), Vec::new()),
            Some(Err(faults)) => (None, faults),
            None => (None, Vec::new()),
        };
        let typed = |asked: Role| {
            let config = args.config.clone().filter(|_| file.is_none() || role == Some(asked));
            Typed::given(config.map(PathBuf::into_os_string), args.given(asked))
        };
        Self {
            nobodys,
            edge: examine::<EdgeArgs>(&typed(Role::Edge)),
            camera: examine::<CameraArgs>(&typed(Role::Camera)),
            app: examine::<ConnectArgs>(&typed(Role::App)),
        }
    }

    fn side(&self, side: Side) -> &Examined {
        match side {
            Side::Edge => &self.edge,
            Side::Camera => &self.camera,
            Side::App => &self.app,
        }
    }

    /// The settings file of a side.
    pub(super) fn file(&self, side: Side) -> Option<&PathBuf> {
        self.side(side).file.as_ref()
    }

    fn raws(&self, side: Side, key: &str) -> &[OsString] {
        let line = self.side(side).lines.iter().find(|line| line.setting.key == key);
        line.map(|line| line.raws.as_slice()).unwrap_or_default()
    }

    /// The values of a setting.
    pub(super) fn all(&self, side: Side, key: &str) -> Vec<String> {
        self.raws(side, key).iter().map(|raw| raw.to_string_lossy().into_owned()).collect()
    }

    /// The value of a setting, if it is valid.
    pub(super) fn value<T: FromStr>(&self, side: Side, key: &str) -> Option<T> {
        self.raws(side, key).first()?.to_str()?.parse().ok()
    }

    /// The value of a setting that is a path.
    pub(super) fn path(&self, side: Side, key: &str) -> Option<PathBuf> {
        self.raws(side, key).first().map(PathBuf::from)
    }

    /// Whether a fault only says that a setting is missing which may also be given on the broker's command line.
    fn is_left_out(&self, side: Side, fault: &Fault) -> bool {
        side == Side::Camera
            && ["camera", "edge"].contains(&fault.field.as_str())
            && self.raws(side, &fault.field).is_empty()
            && !self.camera.faults.iter().any(|other| other.field == fault.field && other.value.is_some())
    }
}

pub(super) fn check(subject: &Subject) -> Vec<Finding> {
    let finding = |fault: &Fault, remedy: &str| Finding::fault_of(Check::Settings, fault, remedy);
    let nobodys = subject.settings.nobodys.iter();
    let mut findings: Vec<Finding> = nobodys
        .map(|fault| {
            finding(fault, "begin the file with role = \"edge\", role = \"camera\" or role = \"app\"")
        })
        .collect();
    for side in Side::ALL {
        let Examined { file, faults, .. } = subject.settings.side(side);
        // A variable that nothing on this host reads does no harm.
        let matters = |fault: &&Fault| subject.is(side) || matches!(fault.origin, Origin::File(..));
        let is_there = |fault: &&Fault| !subject.settings.is_left_out(side, fault);
        let remedy = format!("see `mez config show {}`", side.role().name());
        let wrong = faults.iter().filter(matters).filter(is_there);
        let wrong: Vec<Finding> = wrong.map(|fault| finding(fault, &remedy)).collect();
        if let (true, Some(path)) = (wrong.is_empty(), file) {
            let found = format!("{} {}", side.role().reads(), path.display());
            findings.push(Finding::ok(Check::Settings, found));
        }
        findings.extend(wrong);
    }
    let variables = unknown_variables();
    let unread =
        variables.iter().map(|name| Finding::warning(Check::Settings, name.to_string(), name.remedy()));
    findings.extend(unread);
    if findings.is_empty() {
        findings.push(Finding::ok(
            Check::Settings,
            "there is no settings file: flags, environment variables and defaults apply",
        ));
    }
    findings
}
