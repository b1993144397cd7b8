//! Checks whether this host has the identities that it needs, and whether they are valid.

use std::time::{Duration, SystemTime};

use mez_node::identity::authority::AuthorityError;
use mez_node::identity::credentials::IdentityFileError;
use mez_node::identity::folder::{CredentialsError, KeyFolderError};
use mez_node::identity::{Credentials, KeyFolder, Moment};

use super::finding::{Check, Finding};
use super::subject::Subject;

/// When to recommend a new authority before the end of the old one: as early as the old one will stay trusted.
const ROTATE_BEFORE: Duration = Duration::from_secs(90 * 24 * 3600);
/// A renewal that is late by 1/10 of the certificate's lifetime is a warning.
const LATE_SHARE: u32 = 10;
const ENROL: &str =
    "run `mez keys token ROLE/NAME` where the site was made, then `mez keys enrol TOKEN --edge HOST` here";

pub(super) fn check(subject: &Subject) -> Vec<Finding> {
    let keys = match &subject.keys {
        Ok(keys) => keys,
        Err(KeyFolderError::NotFound { looked }) if !subject.needs_keys() => {
            let found = format!("no keys were found (looked at: {looked}); the edge's own host needs none");
            return vec![Finding::skipped(Check::Certificate, found)];
        }
        Err(error) => return vec![without_keys(error)],
    };
    if subject.now < keys.validity().not_before {
        return vec![Finding::skipped(
            Check::Certificate,
            "not checked, because this host's clock is wrong: see clock",
        )];
    }
    let mut findings: Vec<Finding> = subject
        .credentials
        .iter()
        .map(|(_, found)| match found {
            Ok(credentials) => held(credentials, keys, subject.now),
            Err(error) => missing(error),
        })
        .collect();
    if subject.credentials.is_empty() {
        let found = format!(
            "site {}, {}; no identity is needed on the edge's own host",
            keys.site(),
            keys.path().display()
        );
        findings.push(Finding::ok(Check::Certificate, found));
    }
    findings
}

fn without_keys(error: &KeyFolderError) -> Finding {
    match error {
        KeyFolderError::NotFound { looked } => Finding::fault(
            Check::Certificate,
            format!("no keys were found. Looked at: {looked}"),
            "on the edge host, run `mez keys init`; on any other host, run `mez keys enrol TOKEN --edge HOST`; if the keys are in another folder, name it with --keys or MEZ_KEYS",
        ),
        KeyFolderError::Exposed { .. } => Finding::skipped(Check::Certificate, "see permissions"),
        error => Finding::fault_of(Check::Certificate, error, ENROL),
    }
}

fn held(credentials: &Credentials, keys: &KeyFolder, now: SystemTime) -> Finding {
    let (identity, validity) = (credentials.identity(), credentials.validity());
    let left = validity.not_after.duration_since(now).unwrap_or_default();
    let days = left.as_secs() / (24 * 3600);
    let found = format!(
        "{} of site {}, valid until {} ({days} days)",
        identity.short(),
        identity.site,
        Moment(validity.not_after)
    );
    let authority = keys.validity().not_after.duration_since(now).unwrap_or_default();
    if authority < ROTATE_BEFORE {
        let until = Moment(keys.validity().not_after);
        return Finding::warning(
            Check::Certificate,
            format!("the certificate authority of site {} expires at {until}", keys.site()),
            "run `mez keys rotate` where the site was made; the other hosts get the new authority automatically",
        );
    }
    // A certificate without a file was issued for this check, and is made anew at each start.
    let late = validity.due() + validity.lasts() / LATE_SHARE;
    if now > late && credentials.file().is_some() {
        let found = format!("{found}: it should have been renewed by {}", Moment(validity.due()));
        return Finding::warning(
            Check::Certificate,
            found,
            "a program that uses the certificate renews it when it reaches an edge with a signer: start one and read its log; if the certificate expires, enrol again",
        );
    }
    Finding::ok(Check::Certificate, found)
}

fn missing(error: &CredentialsError) -> Finding {
    match error {
        CredentialsError::Missing { wanted, folder, held, token_for } => Finding::fault(
            Check::Certificate,
            format!("{} has no identity that can act as {wanted}; it holds {held}", folder.display()),
            format!(
                "run `mez keys token {token_for}` where the site was made, then `mez keys enrol TOKEN --edge HOST` here"
            ),
        ),
        CredentialsError::NotNow { identity, path, validity, now } => Finding::fault(
            Check::Certificate,
            format!(
                "the certificate of {identity} in {} is valid {validity}, but this host's clock says {now}",
                path.display()
            ),
            format!(
                "if the clock is wrong, set it; otherwise enrol again: `mez keys token {}` where the site was made, then \
                 `mez keys enrol TOKEN --edge HOST` here",
                identity.short()
            ),
        ),
        CredentialsError::Identity(IdentityFileError::Exposed { .. })
        | CredentialsError::Key(AuthorityError::Exposed { .. }) => {
            Finding::skipped(Check::Certificate, "the key is not used: see permissions")
        }
        CredentialsError::NoName => Finding::fault(
            Check::Certificate,
            "the camera's name is not known: this host has no identity of a camera",
            "name the camera with --camera, such as --camera dock/cam1",
        ),
        error => Finding::fault_of(Check::Certificate, error, ENROL),
    }
}
