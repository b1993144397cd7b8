//! Findings of checks, and their output.

use std::fmt;

use serde_json::{Value, json};

/// The checks, in the order of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Check {
    Settings,
    Certificate,
    Revocation,
    Permissions,
    Clock,
    Reach,
    Udp,
    Mtu,
    Version,
    Grant,
    Ports,
    Codec,
    Decoder,
    Ffmpeg,
    Source,
    Disk,
    Audit,
}

impl Check {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Settings => "settings",
            Self::Certificate => "certificate",
            Self::Revocation => "revocation",
            Self::Permissions => "permissions",
            Self::Clock => "clock",
            Self::Reach => "reach",
            Self::Udp => "udp",
            Self::Mtu => "mtu",
            Self::Version => "version",
            Self::Grant => "grant",
            Self::Ports => "ports",
            Self::Codec => "codec",
            Self::Decoder => "decoder",
            Self::Ffmpeg => "ffmpeg",
            Self::Source => "source",
            Self::Disk => "disk",
            Self::Audit => "audit",
        }
    }
}

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    /// The check was not possible, because something else is wrong.
    Skipped,
    Ok,
    Warning,
    Fault,
}

impl Level {
    const fn name(self) -> &'static str {
        match self {
            Self::Skipped => "skipped",
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Fault => "fault",
        }
    }
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) check: Check,
    pub(super) level: Level,
    /// The result as a sentence.
    pub(super) found: String,
    /// The remedy, if there is one.
    pub(super) remedy: Option<String>,
}

impl Finding {
    pub(super) fn ok(check: Check, found: impl Into<String>) -> Self {
        Self { check, level: Level::Ok, found: found.into(), remedy: None }
    }

    pub(super) fn skipped(check: Check, why: impl Into<String>) -> Self {
        Self { check, level: Level::Skipped, found: why.into(), remedy: None }
    }

    pub(super) fn warning(check: Check, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { check, level: Level::Warning, found: found.into(), remedy: Some(remedy.into()) }
    }

    pub(super) fn fault(check: Check, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { check, level: Level::Fault, found: found.into(), remedy: Some(remedy.into()) }
    }

    /// A fault from an error whose text ends with a semicolon and the remedy. `otherwise` is the remedy of other errors.
    pub(super) fn fault_of(check: Check, error: impl fmt::Display, otherwise: &str) -> Self {
        let text = error.to_string();
        match text.split_once("; ") {
            Some((found, remedy)) => Self::fault(check, found, remedy),
            None => Self::fault(check, text, otherwise),
        }
    }

    /// The finding as JSON.
    pub(super) fn to_json(&self) -> Value {
        json!({
            "check": self.check.name(),
            "level": self.level.name(),
            "found": self.found,
            "remedy": self.remedy,
        })
    }
}

/// Width of the columns before a result: the level and the name of the check.
const INDENT: usize = 9 + 13;

/// All findings as lines, for a terminal of this width.
pub(super) fn lines(findings: &[Finding], width: Option<usize>) -> Vec<String> {
    let mut out = Vec::new();
    let width = width.map(|width| width.saturating_sub(INDENT).max(24));
    for finding in findings {
        let head = format!("{:<9}{:<13}", finding.level.name(), finding.check.name());
        let found = crate::live::wrap(&finding.found, width);
        let remedy =
            finding.remedy.iter().flat_map(|remedy| crate::live::wrap(&format!("→ {remedy}"), width));
        for (number, line) in found.into_iter().chain(remedy).enumerate() {
            let before = if number == 0 { head.clone() } else { " ".repeat(INDENT) };
            out.push(format!("{before}{line}"));
        }
    }
    out
}

/// All findings as one JSON object.
pub(super) fn report(findings: &[Finding]) -> Value {
    let count = |level| findings.iter().filter(|finding| finding.level == level).count();
    json!({
        "software": mez_node::api::SOFTWARE,
        "faults": count(Level::Fault),
        "warnings": count(Level::Warning),
        "checks": findings.iter().map(Finding::to_json).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_finding_says_what_and_what_to_do() {
        let fault = Finding::fault_of(Check::Ports, "UDP 7650 is taken; stop the other one", "look");
        assert_eq!(
            (fault.found.as_str(), fault.remedy.as_deref()),
            ("UDP 7650 is taken", Some("stop the other one"))
        );
        let bare = Finding::fault_of(Check::Ports, "it is broken", "look");
        assert_eq!(bare.remedy.as_deref(), Some("look"));
        let said = lines(&[fault, Finding::ok(Check::Codec, "works")], None);
        assert_eq!(said[0], "fault    ports        UDP 7650 is taken");
        assert!(
            said[1].trim_start().starts_with("→ stop") && said[2].starts_with("ok       codec"),
            "{said:?}"
        );
        let report = report(&[bare]);
        assert_eq!((&report["faults"], &report["checks"][0]["check"]), (&json!(1), &json!("ports")));
    }
}
