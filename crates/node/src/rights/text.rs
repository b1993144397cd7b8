//! The text of a rights file, parsed.
//!
//! ```toml
//! default = "deny"
//!
//! [grants."app/counter"]
//! watch = ["dock/*"]
//! reply = ["dock/cam1"]
//! ```

use std::collections::BTreeSet;
use std::ops::Range;

use mez_core::rights::{Grant, Grantee, Rights, Stance, Verb};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The content of a rights file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RightsText {
    /// What happens to a request without a grant. Default: it is refused.
    pub stance: Stance,
    /// All grants.
    pub grants: BTreeSet<Grant>,
}

/// Why a text is not valid. Nothing in it counts then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {field}: {what}")]
pub struct RightsTextError {
    /// The line, from 1.
    pub line: usize,
    /// The field, such as `grants."app/counter".watch`.
    pub field: String,
    /// What is wrong, and what to do.
    pub what: String,
}

impl RightsTextError {
    /// The bytes are not UTF-8 at `place`.
    pub(super) fn not_text(bytes: &[u8], place: usize) -> Self {
        let line = bytes[..place].iter().filter(|byte| **byte == b'\n').count() + 1;
        let what = "it is not UTF-8 text: save it as UTF-8, or restore it from a copy";
        Self { line, field: "the file".into(), what: what.into() }
    }
}

impl RightsText {
    /// Parses a text. The error names the first fault.
    pub fn parse(text: &str) -> Result<Self, RightsTextError> {
        let table = DeTable::parse(text).map_err(|error| RightsTextError {
            line: line_of(text, error.span().unwrap_or_default().start),
            field: "the file".into(),
            what: format!("it is not TOML: {}", error.message()),
        })?;
        let mut read = Self::default();
        for (key, value) in table.get_ref() {
            let at = At { text, field: key.get_ref().to_string() };
            match (&**key.get_ref(), value.get_ref()) {
                ("default", DeValue::String(stance)) => read.stance = at.stance(stance, &value.span())?,
                ("default", _) => return Err(at.error(&value.span(), "write \"deny\" or \"open\"")),
                ("grants", DeValue::Table(grants)) => read.grants = all_grants(text, grants)?,
                ("grants", _) => {
                    return Err(at.error(&value.span(), "write tables such as [grants.\"app/counter\"]"));
                }
                _ => {
                    return Err(
                        at.error(&key.span(), "unknown field; a file of rights has default and grants")
                    );
                }
            }
        }
        Ok(read)
    }

    /// The rights that the text gives.
    pub fn rights(&self) -> Rights {
        Rights::new(self.stance, self.grants.iter().cloned())
    }
}

/// A field of the text, for error messages.
struct At<'a> {
    text: &'a str,
    field: String,
}

impl At<'_> {
    fn error(&self, span: &Range<usize>, what: impl Into<String>) -> RightsTextError {
        RightsTextError { line: line_of(self.text, span.start), field: self.field.clone(), what: what.into() }
    }

    fn stance(&self, text: &str, span: &Range<usize>) -> Result<Stance, RightsTextError> {
        match text {
            "deny" => Ok(Stance::Deny),
            "open" => Ok(Stance::Open),
            _ => Err(self.error(
                span,
                format!(
                    "{text:?} is not a valid value; write \"deny\", or \"open\" for everything that was allowed before grants existed"
                ),
            )),
        }
    }
}

fn line_of(text: &str, place: usize) -> usize {
    text.bytes().take(place).filter(|byte| *byte == b'\n').count() + 1
}

fn all_grants(text: &str, table: &DeTable<'_>) -> Result<BTreeSet<Grant>, RightsTextError> {
    let mut grants = BTreeSet::new();
    for (key, value) in table {
        let at = At { text, field: format!("grants.{:?}", key.get_ref()) };
        let grantee: Grantee = key
            .get_ref()
            .parse()
            .map_err(|error: mez_core::rights::GranteeError| at.error(&key.span(), error.to_string()))?;
        let DeValue::Table(verbs) = value.get_ref() else {
            return Err(
                at.error(&value.span(), "write verbs with cameras below it, such as watch = [\"dock/*\"]")
            );
        };
        for (key, cameras) in verbs {
            let at = At { text, field: format!("{}.{}", at.field, key.get_ref()) };
            let verb: Verb = key
                .get_ref()
                .parse()
                .map_err(|error: mez_core::rights::UnknownVerb| at.error(&key.span(), error.to_string()))?;
            let DeValue::Array(patterns) = cameras.get_ref() else {
                return Err(
                    at.error(&cameras.span(), "write a list of cameras, such as [\"dock/*\", \"yard/cam1\"]")
                );
            };
            if patterns.is_empty() {
                return Err(at.error(&cameras.span(), "the list is empty; name cameras, or remove the line"));
            }
            for pattern in patterns.iter() {
                let grant = Grant { grantee: grantee.clone(), verb, cameras: one_pattern(&at, pattern)? };
                if let Some(twice) = grants.replace(grant) {
                    return Err(
                        at.error(&pattern.span(), format!("{} is listed twice; remove one", twice.cameras))
                    );
                }
            }
        }
    }
    Ok(grants)
}

fn one_pattern(
    at: &At<'_>,
    value: &Spanned<DeValue<'_>>,
) -> Result<mez_core::name::CameraPattern, RightsTextError> {
    let DeValue::String(text) = value.get_ref() else {
        return Err(at.error(&value.span(), "a camera is a text, such as \"dock/cam1\" or \"dock/*\""));
    };
    text.parse().map_err(|error: mez_core::name::NameError| at.error(&value.span(), error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_who_may_do_what() {
        let text = "# ours\ndefault = \"deny\"\n\n[grants.\"app/counter\"] # counts people\nwatch = [\n  \"dock/*\", # the dock\n  \"yard/cam1\",\n]\n\
                    reply = ['dock/cam1']\n[grants.\"user/1000\"]\noperate = [\"**\"]\n";
        let read = RightsText::parse(text).unwrap();
        let grants: Vec<String> = read.grants.iter().map(ToString::to_string).collect();
        assert_eq!(
            grants,
            [
                "app/counter watch 'dock/*'",
                "app/counter watch yard/cam1",
                "app/counter reply dock/cam1",
                "user/1000 operate '**'",
            ]
        );
        assert_eq!(read.stance, Stance::Deny);
        assert_eq!(RightsText::parse("").unwrap(), RightsText::default());
    }

    #[test]
    fn what_makes_no_sense_is_named_by_line_and_field_with_a_remedy() {
        let in_grants = |line: &str| format!("default = \"deny\"\n[grants.\"app/counter\"]\n{line}\n");
        let table: &[(String, usize, &str, &str)] = &[
            ("default = \"allow\"".into(), 1, "default", "\"deny\""),
            ("default = true".into(), 1, "default", "\"deny\""),
            ("\nstrict = true".into(), 2, "strict", "default and grants"),
            ("grants = []".into(), 1, "grants", "[grants.\"app/counter\"]"),
            ("[grants.counter]\nwatch = [\"a\"]".into(), 1, "grants.\"counter\"", "app/NAME"),
            ("[grants.\"camera/dock\"]".into(), 1, "grants.\"camera/dock\"", "mez keys token app/NAME"),
            ("[grants.\"user/alice\"]".into(), 1, "grants.\"user/alice\"", "id -u"),
            ("[grants.\"app/co*\"]".into(), 1, "grants.\"app/co*\"", "one whole segment"),
            ("[grants]\n\"app/counter\" = [\"watch\"]".into(), 2, "grants.\"app/counter\"", "watch = ["),
            (in_grants("wach = [\"dock/*\"]"), 3, "grants.\"app/counter\".wach", "the verbs are watch"),
            (in_grants("watch = \"dock/*\""), 3, "grants.\"app/counter\".watch", "write a list"),
            (in_grants("watch = []"), 3, "grants.\"app/counter\".watch", "remove the line"),
            (in_grants("watch = [1]"), 3, "grants.\"app/counter\".watch", "is a text"),
            (
                in_grants("watch = [\n\"dock/*\",\n\"dock//a\"]"),
                5,
                "grants.\"app/counter\".watch",
                "empty segment",
            ),
            (in_grants("watch = [\"a\", \"b\", \"a\"]"), 3, "grants.\"app/counter\".watch", "twice"),
            (in_grants("watch = [\"a\"]\nwatch = [\"b\"]"), 4, "the file", "duplicate"),
            (in_grants("watch = [\"a\"]\n[grants.\"app/counter\"]"), 4, "the file", "duplicate"),
            (in_grants("watch = [\"dock/"), 3, "the file", "not TOML"),
        ];
        for (text, line, field, says) in table {
            let error = RightsText::parse(text).expect_err(text);
            assert_eq!((error.line, error.field.as_str()), (*line, *field), "{text}: {error}");
            assert!(error.what.contains(says), "{text}: {error}");
        }
    }

    /// A write that is cut short may lose grants. It must never add any.
    #[test]
    fn a_file_that_is_cut_opens_nothing() {
        let whole = "default = \"deny\"\n[grants.\"app/a\"]\nwatch = [\"dock/cam1\", \"yard/**\"]\nread = [\"dock/*\"]\n[grants.\"app/b\"]\nwatch = [\"x\"]\n";
        let all = RightsText::parse(whole).unwrap().grants;
        for cut in 0..whole.len() {
            if let Ok(read) = RightsText::parse(&whole[..cut]) {
                assert_eq!(read.stance, Stance::Deny, "cut at {cut}");
                assert!(read.grants.is_subset(&all), "cut at {cut}");
            }
        }
    }
}
