//! Removes secrets from texts: those known on this host, and words that look like secrets.
//!
//! In doubt a word is removed, since support can ask for it.

use std::env;
use std::fs;

use mez_node::identity::KeyFolder;
use mez_node::persist::keys::{STORE_KEY_FILE, STORE_KEY_VARIABLE};
use mez_node::source::without_credentials;

use super::super::subject::Subject;

/// Replaces a secret.
const HIDDEN: &str = "***";
/// Shorter secrets are not searched, since they would match in too many places.
const KNOWN_BYTES_MIN: usize = 4;
/// A random-looking run of letters and digits of at least this length counts as a key.
const RUN_BYTES_MIN: usize = 32;
/// Names that are followed by a secret, in lower case.
const NAMES: [&str; 9] =
    ["password", "passwd", "passphrase", "secret", "token", "credential", "api_key", "apikey", "store_key"];

/// The secrets known on this host.
pub(super) struct Secrets(Vec<String>);

impl Secrets {
    pub(super) fn of(subject: &Subject) -> Self {
        let mut known = Vec::new();
        for name in [STORE_KEY_VARIABLE, "MEZ_SOURCE_CREDENTIALS"] {
            known.extend(env::var(name));
        }
        let file =
            KeyFolder::location(subject.keys_given.as_deref()).map(|folder| folder.join(STORE_KEY_FILE)).ok();
        let keys = subject.stores.iter().filter_map(|store| store.key.clone());
        for file in file.into_iter().chain(keys) {
            let text = fs::read_to_string(file).unwrap_or_default();
            known.extend(text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned));
        }
        let mut words: Vec<String> = Vec::new();
        for text in known {
            // Of USER:PASSWORD, also the password alone.
            words.extend(text.split_once(':').map(|(_, password)| password.to_owned()));
            words.extend(text.lines().map(|line| line.trim().to_owned()));
        }
        Self::from_words(words)
    }

    fn from_words(mut words: Vec<String>) -> Self {
        words.retain(|word| word.len() >= KNOWN_BYTES_MIN);
        // Longest first, since a secret may contain another one.
        words.sort_by_key(|word| std::cmp::Reverse(word.len()));
        Self(words)
    }

    /// The text without secrets.
    pub(super) fn redact(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        // The end of a log may begin within a key.
        let (begins, ends) = (text.find("-----BEGIN"), text.find("-----END"));
        let mut in_key = ends.is_some_and(|end| begins.is_none_or(|begin| end < begin));
        for line in text.split_inclusive('\n') {
            if line.contains("-----BEGIN") && line.contains("PRIVATE KEY") {
                in_key = true;
                out.push_str("(a private key was here)\n");
            }
            if !in_key {
                out.push_str(&self.redact_line(line));
            }
            if line.contains("-----END") && line.contains("PRIVATE KEY") {
                in_key = false;
            }
        }
        out
    }

    fn redact_line(&self, line: &str) -> String {
        let mut line = line.to_owned();
        for known in &self.0 {
            line = line.replace(known.as_str(), HIDDEN);
        }
        line = without_credentials(&line);
        line = without_values(&line);
        without_keys(&line)
    }
}

/// Hides the value after a secret's name and `=` or `:`.
fn without_values(line: &str) -> String {
    let small = line.to_ascii_lowercase();
    if small.contains("authorization:") {
        let at = small.find("authorization:").unwrap_or_default();
        return format!("{}Authorization: {HIDDEN}\n", &line[..at]);
    }
    let mut out = line.to_owned();
    for name in NAMES {
        let mut from = 0;
        while let Some(at) = out[from..].to_ascii_lowercase().find(name).map(|at| from + at) {
            let after = at + name.len();
            from = after;
            let rest = &out[after..];
            // The rest of the name (`TOKENS`, `_FILE`), then `=` or `:`, with optional quotes and blanks.
            let tail = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            let marks = rest[tail..]
                .find(|c: char| !matches!(c, '"' | '\'' | ' ' | '=' | ':'))
                .unwrap_or(rest.len() - tail);
            let between = &rest[tail..tail + marks];
            if !between.contains(['=', ':']) {
                continue;
            }
            let begin = after + tail + marks;
            let value = &out[begin..];
            let quote = between.chars().next_back().filter(|last| matches!(last, '"' | '\''));
            let ends = |c: char| match quote {
                // A quoted value may contain blanks.
                Some(quote) => c == quote || c == '\n',
                None => c.is_whitespace() || matches!(c, '"' | '\'' | ',' | '}' | '&'),
            };
            let end = value.find(ends).unwrap_or(value.len());
            out.replace_range(begin..begin + end, HIDDEN);
            from = begin + HIDDEN.len();
        }
    }
    out
}

/// Hides tokens of Mez, and long random-looking runs.
fn without_keys(line: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '_' | '-' | '=' | '.');
    let (mut out, mut rest) = (String::with_capacity(line.len()), line);
    while let Some(begin) = rest.find(is_part) {
        let (before, run) = rest.split_at(begin);
        let end = run.find(|c| !is_part(c)).unwrap_or(run.len());
        let (run, after) = run.split_at(end);
        out.push_str(before);
        out.push_str(if is_token(run) || run.split('.').any(looks_drawn) { HIDDEN } else { run });
        rest = after;
    }
    out.push_str(rest);
    out
}

fn is_token(run: &str) -> bool {
    run.strip_prefix("mez1.").is_some_and(|rest| rest.len() > 8)
}

/// Whether a long run has upper case, lower case and digits, and not the many short parts of a path or name.
fn looks_drawn(run: &str) -> bool {
    let has = |is: fn(&char) -> bool| run.chars().any(|c| is(&c));
    let parts = run.chars().filter(|c| matches!(c, '/' | '_' | '-')).count();
    run.len() >= RUN_BYTES_MIN
        && has(char::is_ascii_uppercase)
        && has(char::is_ascii_lowercase)
        && has(char::is_ascii_digit)
        && parts * 8 <= run.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redacted(text: &str) -> String {
        Secrets::from_words(vec!["hunter2".into()]).redact(text)
    }

    #[test]
    fn what_is_secret_goes() {
        let store_key = "q83vEjRWeJq83vEjRWeJq83vEjRWeJASNFZ4kBI0Vng=";
        let token = "mez1.AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8.ZWRnZQ";
        for (text, secret) in [
            ("the camera's password is hunter2", "hunter2"),
            ("rtsp://bob:s3cret@10.0.0.9/stream", "s3cret"),
            ("http://10.0.0.9/video?key=abc123&x=1", "abc123"),
            ("MEZ_STORE_KEY=short", "short"),
            ("{\"api_key\": \"xyz\", \"other\": 1}", "xyz"),
            ("password = 'open sesame'", "open sesame"),
            ("Authorization: Bearer aaa.bbb", "aaa.bbb"),
            (store_key, store_key),
            (token, token),
            (&format!("mez keys enrol {token} --edge edge.local"), token),
        ] {
            let said = redacted(text);
            assert!(secret.split(' ').all(|word| !said.contains(word)), "{text}: {said}");
        }
        let pem = "a\n-----BEGIN PRIVATE KEY-----\nMIGHAgEA\n-----END PRIVATE KEY-----\nb\n";
        assert_eq!(redacted(pem), "a\n(a private key was here)\nb\n");
        // The end of a log, which begins within a key.
        assert_eq!(redacted(&pem[30..]), "b\n");
    }

    #[test]
    fn what_helps_stays() {
        for text in [
            "2026-11-23T09:00:00.000000Z  WARN mez_node::link: no answer from edge.local:7650 within 2s",
            "the token was already used",
            "fingerprint 3b1f0c9d8e7a6b5c4d3e2f1a0b9c8d7e6f5a4b3c2d1e0f9a8b7c6d5e4f3a2b1c",
            "/home/Anna/Projects/Camera-2/recordings/2026/november/dock.mp4",
            "camera+dock+cam1.pem 600",
        ] {
            assert_eq!(redacted(text), text);
        }
    }
}
