//! Parses camera names, and the patterns that select cameras.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The most segments of a name or a pattern. It bounds the work of matching `**`, which tries every split.
pub const SEGMENTS_MAX: usize = 8;
/// The most bytes in one segment. A name becomes a path on disk, and a file system allows 255 bytes for each
/// part.
pub const SEGMENT_BYTES_MAX: usize = 64;
/// The most characters of a refused text that an error repeats, so that a hostile text cannot fill a log.
const SHOWN_CHARS_MAX: usize = 256;

/// The name of a camera: one to eight segments joined by `/`, such as `dock/cam1`. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CameraName(Arc<str>);

impl CameraName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for CameraName {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        for_each_segment(text, |segment| {
            if is_plain(segment) { Ok(()) } else { Err(NameError::Character { name: shown(text) }) }
        })?;
        Ok(Self(text.into()))
    }
}

impl fmt::Display for CameraName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for CameraName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CameraName({})", self.0)
    }
}

/// Selects cameras: a name in which a segment may be `*` (any one segment) or `**` (any number of them).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CameraPattern(Arc<str>);

impl CameraPattern {
    /// The pattern as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The one camera that this pattern names, if it holds no wildcard.
    pub fn as_camera(&self) -> Option<CameraName> {
        self.0.parse().ok()
    }

    /// Whether `camera` is selected.
    pub fn matches(&self, camera: &CameraName) -> bool {
        let pattern: Vec<&str> = self.0.split('/').collect();
        let name: Vec<&str> = camera.0.split('/').collect();
        segments_match(&pattern, &name)
    }

    /// Whether this pattern selects every camera that `other` selects. `true` is
    /// always right. `false` is wrong for a few pairs, such as `**/*` and `a/**`.
    pub fn includes(&self, other: &Self) -> bool {
        let (wide, other): (Vec<&str>, Vec<&str>) =
            (self.0.split('/').collect(), other.0.split('/').collect());
        segments_include(&wide, &other)
    }

    /// Whether some name matches both patterns, if names could have any number of segments.
    pub fn overlaps(&self, other: &Self) -> bool {
        let one: Vec<&str> = self.0.split('/').collect();
        let two: Vec<&str> = other.0.split('/').collect();
        segments_overlap(&one, &two)
    }
}

impl FromStr for CameraPattern {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        for_each_segment(text, |segment| match segment {
            "*" | "**" => Ok(()),
            _ if segment.contains('*') => Err(NameError::PartialWildcard { name: shown(text) }),
            _ if is_plain(segment) => Ok(()),
            _ => Err(NameError::Character { name: shown(text) }),
        })?;
        Ok(Self(text.into()))
    }
}

impl From<&CameraName> for CameraPattern {
    /// The pattern that selects this camera alone.
    fn from(name: &CameraName) -> Self {
        Self(Arc::clone(&name.0))
    }
}

impl fmt::Display for CameraPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for CameraPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CameraPattern({})", self.0)
    }
}

/// Why a text is not a camera name or pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing between two slashes, or nothing at all.
    #[error(
        "camera name {name:?} has an empty segment; write names like dock/cam1, without a slash at either end"
    )]
    EmptySegment {
        /// The text that was refused.
        name: String,
    },
    /// More than [`SEGMENTS_MAX`] segments.
    #[error("camera name {name:?} has more than {SEGMENTS_MAX} segments between slashes; use fewer")]
    TooManySegments {
        /// The text that was refused.
        name: String,
    },
    /// A segment of more than [`SEGMENT_BYTES_MAX`] bytes.
    #[error("camera name {name:?} has a segment longer than {SEGMENT_BYTES_MAX} characters; shorten it")]
    LongSegment {
        /// The text that was refused.
        name: String,
    },
    /// A character that names may not hold.
    #[error(
        "camera name {name:?} holds a character that is not allowed; use letters, digits, '.', '_' and '-', \
         and '/' between segments"
    )]
    Character {
        /// The text that was refused.
        name: String,
    },
    /// A `*` beside other characters.
    #[error(
        "pattern {name:?} mixes '*' with other characters; '*' stands for one whole segment, '**' for any number"
    )]
    PartialWildcard {
        /// The text that was refused.
        name: String,
    },
}

fn for_each_segment(
    text: &str,
    mut check: impl FnMut(&str) -> Result<(), NameError>,
) -> Result<(), NameError> {
    let mut segments = 0;
    for segment in text.split('/') {
        segments += 1;
        if segments > SEGMENTS_MAX {
            return Err(NameError::TooManySegments { name: shown(text) });
        }
        if segment.is_empty() {
            return Err(NameError::EmptySegment { name: shown(text) });
        }
        if segment.len() > SEGMENT_BYTES_MAX {
            return Err(NameError::LongSegment { name: shown(text) });
        }
        check(segment)?;
    }
    Ok(())
}

/// The part of a refused text that an error repeats.
fn shown(text: &str) -> String {
    text.chars().take(SHOWN_CHARS_MAX).collect()
}

fn is_plain(segment: &str) -> bool {
    // "." and ".." would become folders of their own wherever a camera's name becomes a path.
    segment.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
        && !segment.bytes().all(|b| b == b'.')
}

fn segments_match(pattern: &[&str], name: &[&str]) -> bool {
    match pattern.split_first() {
        None => name.is_empty(),
        Some((&"**", rest)) => (0..=name.len()).any(|skip| segments_match(rest, &name[skip..])),
        Some((&segment, rest)) => match name.split_first() {
            Some((&first, tail)) => (segment == "*" || segment == first) && segments_match(rest, tail),
            None => false,
        },
    }
}

fn segments_include(wide: &[&str], other: &[&str]) -> bool {
    match (wide.split_first(), other.split_first()) {
        (None, None) => true,
        // `**` stands for no segment, or for the other's first segment and possibly more.
        (Some((&"**", rest)), _) => {
            segments_include(rest, other)
                || other.split_first().is_some_and(|(_, other)| segments_include(wide, other))
        }
        (Some((&first, wide)), Some((&second, other))) => {
            second != "**" && (first == "*" || first == second) && segments_include(wide, other)
        }
        (Some(_), None) | (None, Some(_)) => false,
    }
}

fn segments_overlap(one: &[&str], two: &[&str]) -> bool {
    match (one.split_first(), two.split_first()) {
        (None, None) => true,
        // `**` stands for no segment, or for the other's first segment and possibly more.
        (Some((&"**", rest)), _) => {
            segments_overlap(rest, two)
                || two.split_first().is_some_and(|(_, two)| segments_overlap(one, two))
        }
        (_, Some((&"**", _))) => segments_overlap(two, one),
        (Some((&first, one)), Some((&second, two))) => {
            (first == second || first == "*" || second == "*") && segments_overlap(one, two)
        }
        (Some(_), None) | (None, Some(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_includes_what_selects_no_other_names() {
        let table = [
            ("dock/*", "dock/cam1", true),
            ("dock/cam1", "dock/*", false),
            ("dock/**", "dock/*", true),
            ("dock/*", "dock/**", false),
            ("dock/**", "dock", true),
            ("**", "a/**/b", true),
            ("**", "**", true),
            ("*/*", "dock/**", false),
            ("a/**/b", "a/*/c/b", true),
            ("a/**/b", "a/**/c", false),
            ("**/*", "**", false),
            ("**/*", "a/**", false),
        ];
        for (wide, other, expected) in table {
            let (wide, other): (CameraPattern, CameraPattern) =
                (wide.parse().unwrap(), other.parse().unwrap());
            assert_eq!(wide.includes(&other), expected, "{wide} {other}");
        }
    }

    #[test]
    fn patterns_overlap_where_a_name_suits_both() {
        let table = [
            ("dock/*", "dock/cam1", true),
            ("dock/*", "*/cam1", true),
            ("dock/*", "yard/*", false),
            ("dock/**", "dock", true),
            ("dock/**", "**/cam1", true),
            ("dock/*", "dock/*/*", false),
            ("**", "a/b/c", true),
            ("a/**/b", "a/c/**/d", false),
            ("a/**/b", "**/c/b", true),
            ("*", "**/b/c", false),
        ];
        for (one, two, expected) in table {
            let (one, two): (CameraPattern, CameraPattern) = (one.parse().unwrap(), two.parse().unwrap());
            assert_eq!((one.overlaps(&two), two.overlaps(&one)), (expected, expected), "{one} and {two}");
        }
    }

    #[test]
    fn patterns_select_by_segment() {
        let table = [
            ("dock/cam1", "dock/cam1", true),
            ("dock/*", "dock/cam1", true),
            ("dock/*", "dock/north/cam1", false),
            ("dock/**", "dock/north/cam1", true),
            ("dock/**", "dock", true),
            ("**", "anything/at/all", true),
            ("**/cam1", "dock/north/cam1", true),
            ("*/cam1", "cam1", false),
            ("**/north/**", "a/north", true),
            ("dock/*", "yard/cam1", false),
        ];
        for (pattern, name, expected) in table {
            let pattern: CameraPattern = pattern.parse().unwrap();
            assert_eq!(pattern.matches(&name.parse().unwrap()), expected, "{pattern} on {name}");
        }
    }

    #[test]
    fn bad_names_are_refused_with_a_reason() {
        for bad in [
            "",
            "/",
            "dock/",
            "/dock",
            "dock//cam",
            "döck",
            "a b",
            "..",
            "dock/../x",
            "dock/*",
            "a/b/c/d/e/f/g/h/i",
        ] {
            assert!(bad.parse::<CameraName>().is_err(), "{bad:?} was accepted");
        }
        assert!("x".repeat(65).parse::<CameraName>().is_err());
        assert_eq!(
            "dock/cam*".parse::<CameraPattern>(),
            Err(NameError::PartialWildcard { name: "dock/cam*".into() })
        );
    }
}
