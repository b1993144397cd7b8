//! Writes and parses one flat JSON object on one line. Its values are texts and whole numbers.
//!
//! Core has no library for JSON, and the log needs only this. Other programs read the log as ordinary JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::iter::Peekable;
use std::str::Chars;

/// A value of the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Text(String),
    Number(u64),
}

/// Adds a text to an object that is being written.
pub(super) fn put_text(object: &mut String, name: &str, value: &str) {
    begin(object, name);
    object.push('"');
    for character in value.chars() {
        match character {
            '"' => object.push_str("\\\""),
            '\\' => object.push_str("\\\\"),
            '\n' => object.push_str("\\n"),
            // Also characters beyond ASCII that end a line or control a terminal.
            control if control.is_control() || matches!(control, '\u{2028}' | '\u{2029}') => {
                let _ = write!(object, "\\u{:04x}", u32::from(control));
            }
            other => object.push(other),
        }
    }
    object.push('"');
}

/// Adds a number.
pub(super) fn put_number(object: &mut String, name: &str, value: u64) {
    begin(object, name);
    let _ = write!(object, "{value}");
}

fn begin(object: &mut String, name: &str) {
    object.push(if object.is_empty() { '{' } else { ',' });
    let _ = write!(object, "\"{name}\":");
}

/// Parses an object; `None` if the line has another form, or a field twice.
pub(super) fn parse(line: &str) -> Option<BTreeMap<String, Value>> {
    let mut rest = line.chars().peekable();
    let mut fields = BTreeMap::new();
    take(&mut rest, '{')?;
    loop {
        let name = text(&mut rest)?;
        take(&mut rest, ':')?;
        let value = match rest.peek()? {
            '"' => Value::Text(text(&mut rest)?),
            _ => Value::Number(number(&mut rest)?),
        };
        if fields.insert(name, value).is_some() {
            return None;
        }
        match rest.next()? {
            ',' => {}
            '}' => return rest.next().is_none().then_some(fields),
            _ => return None,
        }
    }
}

fn take(rest: &mut Peekable<Chars<'_>>, wanted: char) -> Option<()> {
    (rest.next()? == wanted).then_some(())
}

fn text(rest: &mut Peekable<Chars<'_>>) -> Option<String> {
    take(rest, '"')?;
    let mut read = String::new();
    loop {
        match rest.next()? {
            '"' => return Some(read),
            '\\' => match rest.next()? {
                'n' => read.push('\n'),
                'u' => {
                    let digits: String = rest.by_ref().take(4).collect();
                    let code = u32::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 4)?;
                    read.push(char::from_u32(code)?);
                }
                escaped @ ('"' | '\\') => read.push(escaped),
                _ => return None,
            },
            other => read.push(other),
        }
    }
}

fn number(rest: &mut Peekable<Chars<'_>>) -> Option<u64> {
    let mut digits = String::new();
    while let Some(digit) = rest.next_if(char::is_ascii_digit) {
        digits.push(digit);
    }
    digits.parse().ok()
}
