//! Changes the text of a rights file, and keeps everything else in it as people wrote it.
//!
//! A change is made in the text at the places that the parser names, so comments, order and blank lines
//! stay. The result is parsed again. If the result differs from the intended rights, the text is not changed
//! and the user is asked to edit the file by hand: TOML allows forms that these functions cannot edit.

use std::ops::Range;

use mez_core::rights::{Grant, Stance};
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::text::{RightsText, RightsTextError};

/// Why a text was not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// The text is invalid.
    #[error(transparent)]
    Text(#[from] RightsTextError),
    /// The text is written in a form that cannot be changed without loss.
    #[error(
        "this command cannot change the file, because of the way it is written; edit the file by hand: {wanted}"
    )]
    ByHand {
        /// What to write.
        wanted: String,
    },
    /// There is no such grant.
    #[error("there is no grant {grant}; `mez keys grants` lists all grants")]
    Absent {
        /// The grant.
        grant: String,
    },
}

/// Returns the text with one more grant, or the same text if the grant is already there.
pub fn with_grant(text: &str, grant: &Grant) -> Result<String, EditError> {
    let mut wanted = RightsText::parse(text)?;
    if !wanted.grants.insert(grant.clone()) {
        return Ok(text.into());
    }
    let table = DeTable::parse(text).expect("it was parsed just now");
    let camera = quoted(grant.cameras.as_str());
    let mut changed = text.to_owned();
    match find(table.get_ref(), grant) {
        Found::Cameras { cameras, .. } => {
            let last = cameras.last().expect("an empty list is refused");
            changed.insert_str(last.span().end, &format!(", {camera}"));
        }
        Found::Verbs(after) => {
            insert_line(&mut changed, after, &format!("{} = [{camera}]", grant.verb));
        }
        Found::Nothing => {
            let end = changed.trim_end().len();
            changed.truncate(end);
            let gap = if end == 0 { "" } else { "\n\n" };
            let header = quoted(&grant.grantee.to_string());
            changed.push_str(&format!("{gap}[grants.{header}]\n{} = [{camera}]\n", grant.verb));
        }
    }
    checked(changed, &wanted, || {
        format!("[grants.{}] {} = [{camera}]", quoted(&grant.grantee.to_string()), grant.verb)
    })
}

/// Returns the text without a grant.
pub fn without_grant(text: &str, grant: &Grant) -> Result<String, EditError> {
    let mut wanted = RightsText::parse(text)?;
    if !wanted.grants.remove(grant) {
        return Err(EditError::Absent { grant: grant.to_string() });
    }
    let table = DeTable::parse(text).expect("it was parsed just now");
    let mut changed = text.to_owned();
    if let Found::Cameras { header, key, list, cameras, only } = find(table.get_ref(), grant) {
        let is_it = |camera: &Spanned<DeValue<'_>>| camera.get_ref().as_str() == Some(grant.cameras.as_str());
        let place = cameras.iter().position(is_it).expect("the grant was read from here");
        if cameras.len() > 1 {
            changed.replace_range(element(text, cameras, place), "");
        } else {
            changed.replace_range(whole_lines(text, key.start..list.end), "");
            if only {
                // The header is before the removed line, so its position is still valid.
                changed.replace_range(whole_lines(text, header), "");
            }
        }
    }
    checked(changed, &wanted, || format!("take out {grant}"))
}

/// Returns the text with another stance.
pub fn with_stance(text: &str, stance: Stance) -> Result<String, EditError> {
    let wanted = RightsText { stance, ..RightsText::parse(text)? };
    let table = DeTable::parse(text).expect("it was parsed just now");
    let value = match stance {
        Stance::Deny => "\"deny\"",
        Stance::Open => "\"open\"",
    };
    let mut changed = text.to_owned();
    match table.get_ref().iter().find(|(key, _)| &**key.get_ref() == "default") {
        Some((_, old)) => changed.replace_range(old.span(), value),
        None => changed.insert_str(0, &format!("default = {value}\n")),
    }
    checked(changed, &wanted, || format!("default = {value}"))
}

/// Where to change the text.
enum Found<'a> {
    /// The verb exists: the span of the table's header, of the verb, and of its
    /// list, the cameras in the list, and whether the table has only this verb.
    Cameras {
        header: Range<usize>,
        key: Range<usize>,
        list: Range<usize>,
        cameras: &'a DeArray<'a>,
        only: bool,
    },
    /// The table exists, but not the verb. A line can be inserted after this position.
    Verbs(usize),
    /// The table does not exist.
    Nothing,
}

fn find<'a>(table: &'a DeTable<'a>, grant: &Grant) -> Found<'a> {
    let below = |table: &'a DeTable<'a>, name: &str| {
        table.iter().find(|(key, _)| **key.get_ref() == *name).and_then(|(key, value)| {
            match value.get_ref() {
                DeValue::Table(inner) => Some((key.span(), inner)),
                _ => None,
            }
        })
    };
    let grants = below(table, "grants");
    let Some((header, verbs)) = grants.and_then(|(_, grants)| below(grants, &grant.grantee.to_string()))
    else {
        return Found::Nothing;
    };
    for (key, list) in verbs {
        if let (true, DeValue::Array(cameras)) = (&**key.get_ref() == grant.verb.as_str(), list.get_ref()) {
            let only = verbs.len() == 1;
            return Found::Cameras { header, key: key.span(), list: list.span(), cameras, only };
        }
    }
    Found::Verbs(verbs.iter().map(|(_, list)| list.span().end).max().unwrap_or(header.end))
}

/// Inserts a line after the line that contains `after`.
fn insert_line(text: &mut String, after: usize, line: &str) {
    match text[after..].find('\n') {
        Some(length) => text.insert_str(after + length + 1, &format!("{line}\n")),
        None => text.push_str(&format!("\n{line}\n")),
    }
}

/// The lines that contain a range, with their line ends.
fn whole_lines(text: &str, place: Range<usize>) -> Range<usize> {
    let start = text[..place.start].rfind('\n').map_or(0, |before| before + 1);
    let end = text[place.end..].find('\n').map_or(text.len(), |length| place.end + length + 1);
    start..end
}

/// The range to remove for one element of a list: its whole line if the line has only this element, else the element with the comma beside it.
fn element(text: &str, cameras: &DeArray<'_>, place: usize) -> Range<usize> {
    let own = cameras.get(place).map(Spanned::span).unwrap_or_default();
    let line = whole_lines(text, own.clone());
    let before = text[line.start..own.start].trim().is_empty();
    let behind = text[own.end..line.end].trim_start_matches(',').trim_start();
    if before && (behind.is_empty() || behind.starts_with('#')) {
        return line;
    }
    let left = place.checked_sub(1).and_then(|left| cameras.get(left)).map(|left| left.span().end..own.end);
    // A comment on the previous element stays.
    let left = left.filter(|gap| !text[gap.start..own.start].contains('#'));
    let right = cameras.get(place + 1).map(|right| own.start..right.span().start);
    left.or(right).unwrap_or(own)
}

/// A text in TOML's quotes. No name in Mez contains a character that needs escaping.
fn quoted(text: &str) -> String {
    format!("\"{text}\"")
}

fn checked(
    changed: String,
    wanted: &RightsText,
    by_hand: impl FnOnce() -> String,
) -> Result<String, EditError> {
    if RightsText::parse(&changed).as_ref() == Ok(wanted) {
        return Ok(changed);
    }
    Err(EditError::ByHand { wanted: by_hand() })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn grant(text: &str) -> Grant {
        let words: Vec<&str> = text.split_whitespace().collect();
        Grant {
            grantee: words[0].parse().unwrap(),
            verb: words[1].parse().unwrap(),
            cameras: words[2].parse().unwrap(),
        }
    }

    const WRITTEN: &str = "# Our site.
default = \"deny\"

# Counts people.
[grants.\"app/counter\"]
watch = [
  \"dock/cam1\", # the gate
  \"dock/cam2\", # the ramp
]
reply = [\"dock/cam1\", \"dock/cam2\"] # boxes

[grants.\"user/1000\"]
# Anna.
operate = [\"**\"]
";

    #[test]
    fn a_grant_comes_where_it_belongs_and_nothing_else_moves() {
        let cases = [
            ("app/counter reply yard/*", "\"dock/cam2\"] # boxes", "\"dock/cam2\", \"yard/*\"] # boxes"),
            (
                "app/counter watch yard/*",
                "\"dock/cam2\", # the ramp",
                "\"dock/cam2\", \"yard/*\", # the ramp",
            ),
            ("app/counter read dock/*", "] # boxes\n", "] # boxes\nread = [\"dock/*\"]\n"),
            ("user/1000 read dock/*", "operate = [\"**\"]\n", "operate = [\"**\"]\nread = [\"dock/*\"]\n"),
            (
                "app/new watch dock/*",
                "operate = [\"**\"]\n",
                "operate = [\"**\"]\n\n[grants.\"app/new\"]\nwatch = [\"dock/*\"]\n",
            ),
        ];
        for (text, was, becomes) in cases {
            assert_eq!(with_grant(WRITTEN, &grant(text)).unwrap(), WRITTEN.replace(was, becomes), "{text}");
        }
        assert_eq!(with_grant(WRITTEN, &grant("app/counter watch dock/cam1")).unwrap(), WRITTEN);
        let first = with_grant("", &grant("app/** watch **")).unwrap();
        assert_eq!(first, "[grants.\"app/**\"]\nwatch = [\"**\"]\n");
    }

    #[test]
    fn a_grant_goes_with_its_own_comment_and_no_other() {
        let cases = [
            ("app/counter watch dock/cam1", "  \"dock/cam1\", # the gate\n", ""),
            ("app/counter watch dock/cam2", "  \"dock/cam2\", # the ramp\n", ""),
            (
                "app/counter reply dock/cam1",
                "\"dock/cam1\", \"dock/cam2\"] # boxes",
                "\"dock/cam2\"] # boxes",
            ),
            (
                "app/counter reply dock/cam2",
                "\"dock/cam1\", \"dock/cam2\"] # boxes",
                "\"dock/cam1\"] # boxes",
            ),
            ("user/1000 operate **", "[grants.\"user/1000\"]\n# Anna.\noperate = [\"**\"]\n", "# Anna.\n"),
        ];
        for (text, was, becomes) in cases {
            assert_eq!(
                without_grant(WRITTEN, &grant(text)).unwrap(),
                WRITTEN.replace(was, becomes),
                "{text}"
            );
        }
        let absent = without_grant(WRITTEN, &grant("app/counter read **")).unwrap_err();
        assert!(absent.to_string().contains("mez keys grants"), "{absent}");
    }

    #[test]
    fn a_file_that_is_written_otherwise_is_left_alone() {
        let inline = "grants = { \"app/a\" = { watch = [\"x\"] } }\n";
        let refused = with_grant(inline, &grant("app/b watch y")).unwrap_err();
        assert!(matches!(refused, EditError::ByHand { .. }), "{refused}");
        assert!(matches!(with_grant("default = ", &grant("app/b watch y")), Err(EditError::Text(_))));
    }

    #[test]
    fn the_stance_is_changed_or_written() {
        let strict = with_stance("# old\ndefault = \"open\" # for now\n", Stance::Deny).unwrap();
        assert_eq!(strict, "# old\ndefault = \"deny\" # for now\n");
        let written = with_stance("[grants.\"app/a\"]\nwatch = [\"x\"]\n", Stance::Open).unwrap();
        assert_eq!(RightsText::parse(&written).unwrap().stance, Stance::Open);
    }

    fn some_grants() -> impl Strategy<Value = Vec<Grant>> {
        let names = prop::sample::select(&["app/a", "app/b/c", "app/**", "edge/x", "user/7", "user/*"][..]);
        let verbs = prop::sample::select(&["watch", "read", "reply"][..]);
        let cameras = prop::sample::select(&["x", "x/y", "x/*", "**"][..]);
        let one =
            (names, verbs, cameras).prop_map(|(who, verb, camera)| grant(&format!("{who} {verb} {camera}")));
        prop::collection::vec(one, 0..20)
    }

    proptest! {
        /// Adding and removing grants one by one gives the intended rights, and keeps people's comments.
        #[test]
        fn grants_come_and_go(given in some_grants(), taken in some_grants()) {
            let mut wanted: BTreeSet<Grant> = RightsText::parse(WRITTEN).unwrap().grants;
            let mut text = WRITTEN.to_owned();
            for grant in given {
                text = with_grant(&text, &grant).unwrap();
                wanted.insert(grant);
            }
            for grant in taken {
                match without_grant(&text, &grant) {
                    Ok(without) => {
                        prop_assert!(wanted.remove(&grant));
                        text = without;
                    }
                    Err(error) => {
                        prop_assert!(matches!(error, EditError::Absent { .. }), "{}", error);
                        prop_assert!(!wanted.contains(&grant));
                    }
                }
            }
            prop_assert_eq!(RightsText::parse(&text).unwrap().grants, wanted);
            // The other comments go with the grants that they describe.
            for comment in ["# Our site.", "# Counts people.", "# Anna."] {
                prop_assert!(text.contains(comment), "{} is gone from {}", comment, text);
            }
        }
    }
}
