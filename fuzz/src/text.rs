//! Scripts as text: one step per line, with its name and named arguments. Text after `#` is a comment.
//!
//! ```text
//! hello slot=0 camera=0 start=1   # as dock/cam1, epoch 1
//! ```
//!
//! An argument that is not given is 0. The arguments can also be called `a`, `b` and `c`, in their order. `code=` gives the step's first byte if
//! it is not the one of its name, because several bytes mean the same step. A script whose first byte contains settings begins with `settings N`.

use std::fmt::Write;

/// A step's name and its arguments. Its index in a list of kinds is its first byte.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// The step's name.
    pub name: &'static str,
    /// The names of its arguments; empty if an argument has no meaning.
    pub args: [&'static str; 3],
}

/// The language of a target's scripts.
#[derive(Clone, Copy, Debug)]
pub struct Language {
    /// All kinds of steps.
    pub kinds: &'static [Kind],
    /// Whether the first byte contains settings, and is not part of a step.
    pub has_settings: bool,
}

const PLAIN: [&str; 3] = ["a", "b", "c"];

impl Language {
    /// The bytes of a script.
    ///
    /// # Errors
    /// The problem, with its line.
    pub fn parse(&self, text: &str) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or("").trim()).enumerate();
        let mut lines = lines.filter(|(_, line)| !line.is_empty()).map(|(number, line)| (number + 1, line));
        if self.has_settings {
            let (number, line) = lines.next().ok_or("the script is empty; begin with: settings 0")?;
            let value = line
                .strip_prefix("settings ")
                .ok_or_else(|| format!("line {number}: begin with: settings 0"))?;
            bytes.push(byte(value).map_err(|problem| format!("line {number}: {problem}"))?);
        }
        for (number, line) in lines {
            let step = self.step(line).map_err(|problem| format!("line {number}: {problem}"))?;
            bytes.extend(step);
        }
        Ok(bytes)
    }

    fn step(&self, line: &str) -> Result<[u8; 4], String> {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or("");
        let place = self.kinds.iter().position(|kind| kind.name == name);
        let place = place.ok_or_else(|| format!("there is no step {name:?}"))?;
        let kind = self.kinds[place];
        let mut step = [place as u8, 0, 0, 0];
        for word in words {
            let (key, value) = word.split_once('=').ok_or_else(|| format!("{word:?}: write NAME=NUMBER"))?;
            let named = |names: [&str; 3]| names.iter().position(|name| !name.is_empty() && *name == key);
            let place = match key {
                "code" => 0,
                _ => {
                    1 + named(kind.args)
                        .or_else(|| named(PLAIN))
                        .ok_or_else(|| format!("{name} has no {key:?}"))?
                }
            };
            step[place] = byte(value)?;
        }
        Ok(step)
    }

    /// Prints a script, such as one that a fuzzer has found. Bytes of an incomplete step at the end are left out.
    #[must_use]
    pub fn print(&self, bytes: &[u8]) -> String {
        let mut text = String::new();
        let mut bytes = bytes;
        if let Some((settings, rest)) = bytes.split_first().filter(|_| self.has_settings) {
            let _ = writeln!(text, "settings {settings}");
            bytes = rest;
        }
        for [code, args @ ..] in bytes.as_chunks::<4>().0 {
            let place = match usize::from(*code) {
                code if code < self.kinds.len() => code,
                code => code % self.kinds.len(),
            };
            let kind = self.kinds[place];
            text.push_str(kind.name);
            if usize::from(*code) != place {
                let _ = write!(text, " code={code:#04x}");
            }
            for ((arg, name), plain) in
                args.iter().zip(kind.args).zip(PLAIN).filter(|((arg, _), _)| **arg != 0)
            {
                let _ = write!(text, " {}={arg}", if name.is_empty() { plain } else { name });
            }
            text.push('\n');
        }
        text
    }
}

fn byte(text: &str) -> Result<u8, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u8::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("{text:?} is no number from 0 to 255"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: &[Kind] =
        &[Kind { name: "wait", args: ["pause", "", ""] }, Kind { name: "send", args: ["to", "", "bytes"] }];
    const LANGUAGE: Language = Language { kinds: KINDS, has_settings: true };

    #[test]
    fn a_script_is_the_same_after_it_was_printed() {
        let text = "settings 0x03\n\nwait pause=7 # a while\nsend to=1 bytes=0xff b=2\nsend code=9\n";
        let bytes = LANGUAGE.parse(text).unwrap();
        assert_eq!(bytes, [3, 0, 7, 0, 0, 1, 1, 2, 255, 9, 0, 0, 0]);
        assert_eq!(LANGUAGE.parse(&LANGUAGE.print(&bytes)), Ok(bytes));
    }

    #[test]
    fn what_makes_no_sense_is_named_with_its_line() {
        let problem = |text: &str| LANGUAGE.parse(text).unwrap_err();
        assert_eq!(problem("wait"), "line 1: begin with: settings 0");
        assert_eq!(problem("settings 0\nwiat"), "line 2: there is no step \"wiat\"");
        assert_eq!(problem("settings 0\nwait for=1"), "line 2: wait has no \"for\"");
        assert_eq!(problem("settings 0\nwait pause=300"), "line 2: \"300\" is no number from 0 to 255");
    }
}
