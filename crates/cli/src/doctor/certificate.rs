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
    "`mez keys token ROLE/NAME` where the site was made, then `mez keys enrol TOKEN --edge HOST` here";

pub(super) fn check(subject: &Subject) -> Vec<Finding> {
    let keys = match &subject.keys {
        Ok(keys) => keys,
        Err(KeyFolderError::NotFound { looked }) if !subject.needs_keys() => {
            let found = format!(
                "there are no keys (looked at: {looked}), and none are needed on the edge's own host"
            );
            return vec![Finding::skipped(Check::Certificate, found)];
        }
        Err(error) => return vec![without_keys(error)],
    };
    if subject.now < keys.validity().not_before {
        return vec![Finding::skipped(Check::Certificate, "nothing holds by this host's clock: see clock")];
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
            "on the edge host: `mez keys init`; on any other: `mez keys enrol TOKEN --edge HOST`; keys elsewhere: --keys or MEZ_KEYS",
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
        "{} of site {}, until {} ({days} days)",
        identity.short(),
        identity.site,
        Moment(validity.not_after)
    );
    let authority = keys.validity().not_after.duration_since(now).unwrap_or_default();
    if authority < ROTATE_BEFORE {
        let until = Moment(keys.validity().not_after);
        return Finding::warning(
            Check::Certificate,
            format!("the authority of site {} ends at {until}", keys.site()),
            "`mez keys rotate` where the site was made: hosts follow by themselves",
        );
    }
    // A certificate without a file was issued for this check, and is made anew at each start.
    let late = validity.due() + validity.lasts() / LATE_SHARE;
    if now > late && credentials.file().is_some() {
        let found = format!("{found}: it should have been renewed by {}", Moment(validity.due()));
        return Finding::warning(
            Check::Certificate,
            found,
            "run a program with it that reaches an edge with a signer, and see its log; if none does before the end, enrol anew",
        );
    }
    Finding::ok(Check::Certificate, found)
}

fn missing(error: &CredentialsError) -> Finding {
    match error {
        CredentialsError::Missing { wanted, folder, held, token_for } => Finding::fault(
            Check::Certificate,
            format!("{} holds no identity to act as {wanted} with; it holds {held}", folder.display()),
            format!(
                "`mez keys token {token_for}` where the site was made, then `mez keys enrol TOKEN --edge HOST` here"
            ),
        ),
        CredentialsError::NotNow { identity, path, validity, now } => Finding::fault(
            Check::Certificate,
            format!(
                "the certificate of {identity} in {} holds {validity}, and this host's clock says {now}",
                path.display()
            ),
            format!(
                "set the clock if it is wrong; else enrol anew: `mez keys token {}` where the site was made, then \
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
            "a camera acts under its name, and no identity of this host has one",
            "say which camera with --camera NAME, such as dock/cam1",
        ),
        error => Finding::fault_of(Check::Certificate, error, ENROL),
    }
}
