//! Operators on JSON lists. The text of a row is preserved byte for byte.

use bytes::Bytes;
use serde::de::IgnoredAny;

use super::Key;

/// The most decimals to which numbers are rounded. A 64-bit float has no more.
const DECIMALS_MAX: usize = 15;

/// The first `most` rows.
pub(super) fn head(body: &Bytes, most: usize) -> Result<Bytes, String> {
    let rows = rows(body)?;
    Ok(if most >= rows.len() { body.clone() } else { list(&rows[..most]) })
}

/// Every `every`th row, beginning with the first.
pub(super) fn every(body: &Bytes, every: usize) -> Result<Bytes, String> {
    let rows: Vec<&[u8]> = rows(body)?.into_iter().step_by(every.max(1)).collect();
    Ok(if every <= 1 { body.clone() } else { list(&rows) })
}

/// The rows whose value is at least `least`.
pub(super) fn at_least(body: &Bytes, key: Option<&Key>, least: f64) -> Result<Bytes, String> {
    let all = rows(body)?;
    let mut kept = Vec::with_capacity(all.len());
    for row in &all {
        if number(row, key)? >= least {
            kept.push(*row);
        }
    }
    Ok(if kept.len() == all.len() { body.clone() } else { list(&kept) })
}

/// Rounds all numbers with a fraction to `decimals`, and writes each in its shortest form.
pub(super) fn rounded(body: &Bytes, decimals: usize) -> Result<Bytes, String> {
    if decimals > DECIMALS_MAX {
        return Err(format!(
            "{decimals} is for arrays; JSON numbers are rounded to 0 to {DECIMALS_MAX} decimals"
        ));
    }
    checked(body)?;
    let mut out = Vec::with_capacity(body.len());
    let mut rest: &[u8] = body;
    while let Some(first) = rest.first() {
        let length = match first {
            b'"' => string_bytes(rest),
            b'-' | b'0'..=b'9' => rest.iter().take_while(|byte| b"+-.eE0123456789".contains(byte)).count(),
            _ => 1,
        };
        let (token, behind) = rest.split_at(length.clamp(1, rest.len()));
        let is_number = *first == b'-' || first.is_ascii_digit();
        if is_number && token.iter().any(|byte| b".eE".contains(byte)) {
            out.extend_from_slice(round(token, decimals)?.as_bytes());
        } else {
            out.extend_from_slice(token);
        }
        rest = behind;
    }
    Ok(out.into())
}

/// The shortest form of a number rounded to `decimals`.
fn round(token: &[u8], decimals: usize) -> Result<String, String> {
    // The standard library parses exactly; `serde_json` may be wrong in the last bit.
    let value: f64 = str::from_utf8(token).ok().and_then(|text| text.parse().ok()).ok_or("no number")?;
    if !value.is_finite() {
        return Err(format!("{} is larger than a 64-bit float", String::from_utf8_lossy(token)));
    }
    let fixed = format!("{value:.decimals$}");
    let fixed = if decimals > 0 { fixed.trim_end_matches('0').trim_end_matches('.') } else { &fixed };
    let fixed = if fixed == "-0" { "0" } else { fixed };
    let scientific = fixed.parse::<f64>().map(|rounded| format!("{rounded:e}")).unwrap_or_default();
    let is_shorter = !scientific.is_empty() && scientific.len() < fixed.len();
    let made = if is_shorter { scientific.as_str() } else { fixed };
    // Rounding to almost all decimals may lengthen the text. Then the number stays as it is.
    Ok(if made.len() <= token.len() { made.to_owned() } else { String::from_utf8_lossy(token).into_owned() })
}

/// The value of a row that `key` names.
fn number(row: &[u8], key: Option<&Key>) -> Result<f64, String> {
    let (part, which) = match key {
        None => (
            Some(serde_json::from_slice(row)),
            "a row is not a number; give a key that says which value of a row counts".to_owned(),
        ),
        Some(Key::Column(column)) => {
            let items =
                items(row).ok_or_else(|| format!("a row is not a list, so it has no column {column}"))?;
            (
                items.get(*column).map(|item| serde_json::from_slice(item)),
                format!("a row has no number in column {column}"),
            )
        }
        Some(Key::Member(name)) => {
            let members: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(row)
                .map_err(|_| format!("a row is not an object, so it has no {name:?}"))?;
            (
                members
                    .get(name)
                    .map(|member| member.as_f64().ok_or_else(|| serde::de::Error::custom("no number"))),
                format!("a row has no number {name:?}"),
            )
        }
    };
    part.and_then(Result::ok).ok_or(which)
}

/// The rows of a body.
fn rows(body: &Bytes) -> Result<Vec<&[u8]>, String> {
    checked(body)?;
    items(body).ok_or_else(|| "it is not a list of rows".to_owned())
}

fn checked(body: &Bytes) -> Result<(), String> {
    serde_json::from_slice::<IgnoredAny>(body).map(|_| ()).map_err(|error| format!("it is not JSON: {error}"))
}

/// The items of a list, byte for byte. `None` if `text` is no list. `text` must be one JSON value.
fn items(text: &[u8]) -> Option<Vec<&[u8]>> {
    let text = text.trim_ascii();
    let inner = text.strip_prefix(b"[")?.strip_suffix(b"]")?;
    let (mut items, mut begin, mut depth, mut at) = (Vec::new(), 0, 0usize, 0);
    while at < inner.len() {
        match inner[at] {
            b'"' => {
                at += string_bytes(&inner[at..]);
                continue;
            }
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                items.push(inner[begin..at].trim_ascii());
                begin = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    let last = inner[begin..].trim_ascii();
    if !last.is_empty() {
        items.push(last);
    }
    Some(items)
}

/// The length of the string at the beginning of `text`, including its quotes.
fn string_bytes(text: &[u8]) -> usize {
    let mut at = 1;
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    text.len()
}

fn list(rows: &[&[u8]]) -> Bytes {
    let mut out = Vec::with_capacity(rows.iter().map(|row| row.len() + 1).sum::<usize>() + 2);
    out.push(b'[');
    for (place, row) in rows.iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        out.extend_from_slice(row);
    }
    out.push(b']');
    out.into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn body(text: &str) -> Bytes {
        Bytes::copy_from_slice(text.as_bytes())
    }

    #[test]
    fn rows_are_kept_as_they_were_written() {
        let text = body(r#" [ {"a": 1.50, "b":"x,]\" y"} ,[1, [2 ]], 3e0, "z"] "#);
        assert_eq!(head(&text, 2).unwrap(), r#"[{"a": 1.50, "b":"x,]\" y"},[1, [2 ]]]"#);
        assert_eq!(head(&text, 0).unwrap(), "[]");
        assert_eq!(head(&text, 4).unwrap(), text, "all of them: nothing is changed");
        assert_eq!(every(&text, 2).unwrap(), r#"[{"a": 1.50, "b":"x,]\" y"},3e0]"#);
        assert_eq!(every(&text, 1).unwrap(), text);
        assert_eq!(head(&body("[]"), 3).unwrap(), "[]");
        for none in ["{}", "7", "\"[]\"", "", "[1", "[1]]", "[1,]"] {
            head(&body(none), 1).unwrap_err();
        }
    }

    #[test]
    fn rows_below_the_threshold_go() {
        let numbers = body("[3, -1, 2.5, 1e2]");
        assert_eq!(at_least(&numbers, None, 2.5).unwrap(), "[3,2.5,1e2]");
        let table = body(r#"[["a",5],["b",1]]"#);
        assert_eq!(at_least(&table, Some(&Key::Column(1)), 2.0).unwrap(), r#"[["a",5]]"#);
        let objects = body(r#"[{"n":5},{"n":1}]"#);
        assert_eq!(at_least(&objects, Some(&Key::Member("n".into())), 2.0).unwrap(), r#"[{"n":5}]"#);
        for (text, key) in [
            (&table, None),
            (&table, Some(Key::Column(0))),
            (&table, Some(Key::Column(9))),
            (&numbers, Some(Key::Column(0))),
            (&objects, Some(Key::Member("m".into()))),
            (&table, Some(Key::Member("n".into()))),
        ] {
            at_least(text, key.as_ref(), 0.0).unwrap_err();
        }
    }

    #[test]
    fn numbers_with_a_fraction_are_rounded_and_nothing_else() {
        let text = body(r#"{"v 1.555":[1.555,-0.04,12345678901234567890,1.5e-3,"2.777",0.10]}"#);
        assert_eq!(
            rounded(&text, 2).unwrap(),
            r#"{"v 1.555":[1.55,-0.04,12345678901234567890,0,"2.777",0.1]}"#
        );
        assert_eq!(rounded(&body("[-0.4, 6e-4, 2.5e20]"), 0).unwrap(), "[0, 0, 2.5e20]");
        assert_eq!(rounded(&body("6e-4"), 3).unwrap(), "1e-3");
        rounded(&text, 16).unwrap_err();
        rounded(&body("[1e999]"), 2).unwrap_err();
    }

    proptest! {
        /// The result of any operator is valid JSON, and not larger than the body.
        #[test]
        fn nothing_grows(values in prop::collection::vec(-1e6f64..1e6, 0..20), digits in 0usize..=15, n in 1usize..25) {
            let text: Bytes = serde_json::to_vec(&values).unwrap().into();
            for made in [rounded(&text, digits), head(&text, n), every(&text, n), at_least(&text, None, 0.0)] {
                let made = made.unwrap();
                prop_assert!(made.len() <= text.len());
                let back: Vec<f64> = serde_json::from_slice(&made).unwrap();
                prop_assert!(back.len() <= values.len());
            }
            let made = rounded(&text, digits).unwrap();
            // Parsed exactly: `serde_json` may be wrong in the last bit.
            let back = items(&made).unwrap().into_iter().map(|item| str::from_utf8(item).unwrap().parse::<f64>().unwrap());
            for (rounded, value) in back.zip(&values) {
                // A float has only about 16 digits, even if more are requested.
                let bound = 0.500001 * 10f64.powi(-(digits as i32)) + value.abs() * f64::EPSILON;
                prop_assert!((rounded - value).abs() <= bound);
            }
        }

        #[test]
        fn no_text_makes_it_panic(text in ".*", n in 0usize..20) {
            let text: Bytes = text.into_bytes().into();
            let _ = (head(&text, n), every(&text, n), rounded(&text, n), at_least(&text, Some(&Key::Column(n)), 0.0));
        }
    }
}
