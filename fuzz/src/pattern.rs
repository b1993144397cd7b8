//! Fuzzes camera names and the patterns that select them.

use mez_core::name::{CameraName, CameraPattern, SEGMENTS_MAX};

/// The input is a pattern, a line break, and a name.
pub fn camera_pattern(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (pattern, name) = text.split_once('\n').unwrap_or((&text, ""));
    let name = name.parse::<CameraName>();
    if let Ok(name) = &name {
        assert_eq!(name.to_string().parse::<CameraName>().as_ref(), Ok(name));
        let alone: CameraPattern = name.as_str().parse().expect("every name is a pattern");
        assert!(alone.matches(name));
    }
    let Ok(pattern) = pattern.parse::<CameraPattern>() else { return };
    assert!(pattern.as_str().split('/').count() <= SEGMENTS_MAX);
    assert_eq!(pattern.to_string().parse::<CameraPattern>().as_ref(), Ok(&pattern));
    assert_eq!(pattern.as_camera().is_none(), pattern.as_str().contains('*'));
    if let Ok(name) = name {
        assert_eq!(pattern.matches(&name), matches(pattern.as_str(), name.as_str()), "{pattern} on {name}");
    }
}

/// A second matcher, with a table instead of recursion. `reached[i][j]`: the first `i` segments of the pattern match the first `j` of the name.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<&str>, Vec<&str>) = (pattern.split('/').collect(), name.split('/').collect());
    let mut reached = vec![vec![false; name.len() + 1]; pattern.len() + 1];
    reached[0][0] = true;
    for (i, &segment) in pattern.iter().enumerate() {
        for j in 0..=name.len() {
            reached[i + 1][j] = if segment == "**" {
                reached[i][j] || j > 0 && reached[i + 1][j - 1]
            } else {
                j > 0 && reached[i][j - 1] && (segment == "*" || segment == name[j - 1])
            };
        }
    }
    reached[pattern.len()][name.len()]
}
