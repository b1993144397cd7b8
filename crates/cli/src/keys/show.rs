//! `mez keys list` and `mez keys show`: print the identities of this host and their validity.

use std::io;
use std::time::{Duration, SystemTime};

use mez_node::identity::credentials::IdentityFile;
use mez_node::identity::folder::AUTHORITY_CERTIFICATE;
use mez_node::identity::{
    EDGE_SERVER_NAME, Fingerprint, Identity, KeyFolder, Moment, Role, TokenStore, Validity,
};

use super::{KeysError, Terminal};

impl Terminal<'_> {
    pub(super) fn list(&mut self, keys: &KeyFolder, now: SystemTime) -> Result<(), KeysError> {
        writeln!(self.out, "Site {}, in {}.", keys.site(), keys.path().display())?;
        if keys.holds_authority_key() {
            let state = left(keys.validity(), now);
            writeln!(
                self.out,
                "Its authority is this host ({state}), so programs here need no identity of their own."
            )?;
        }
        let files = keys.identity_files()?;
        if files.is_empty() && !keys.holds_authority_key() {
            writeln!(
                self.out,
                "This host has no identity of this site yet; join with `mez keys enrol TOKEN --edge HOST`."
            )?;
        }
        let rows: Vec<[String; 3]> = files.iter().map(|file| row(file, now)).collect();
        if !rows.is_empty() {
            writeln!(self.out)?;
            self.table(["IDENTITY", "VALID UNTIL", "STATE"], &rows)?;
        }
        let waiting = TokenStore::of(keys).list(now)?;
        if !waiting.is_empty() {
            let rows: Vec<_> =
                waiting.iter().map(|(who, until)| [who.short(), Moment(*until).to_string()]).collect();
            writeln!(self.out)?;
            self.table(["TOKEN FOR", "USABLE UNTIL"], &rows)?;
        }
        Ok(())
    }

    pub(super) fn show(&mut self, keys: &KeyFolder, identity: Option<&str>) -> Result<(), KeysError> {
        let now = SystemTime::now();
        let authority = keys.path().join(AUTHORITY_CERTIFICATE);
        let Some(identity) = identity else {
            let here = if keys.holds_authority_key() { "on this host" } else { "on another host" };
            let mut fields = vec![
                ("site", keys.site().to_string()),
                ("fingerprint", keys.fingerprint().to_string()),
                ("valid", keys.validity().to_string()),
                ("state", left(keys.validity(), now)),
                ("certificate", authority.display().to_string()),
                ("authority's key", here.into()),
            ];
            if let Some(until) = keys.trust().overlaps_until(now) {
                fields.push(("authority before", format!("trusted until {}", Moment(until))));
            }
            self.fields(&fields)?;
            return Ok(());
        };
        let identity = Identity::parse_within(keys.site(), identity)?;
        let files = keys.identity_files()?;
        let Some(file) = files.iter().find(|file| file.identity.as_ref() == Some(&identity)) else {
            let held: Vec<_> = files.iter().flat_map(|file| &file.identity).map(Identity::short).collect();
            return Err(KeysError::NotHeld {
                wanted: identity.short(),
                folder: keys.path().into(),
                held: if held.is_empty() { "no identity".into() } else { held.join(", ") },
            });
        };
        let path = file.path.display().to_string();
        let mut fields = vec![("identity", identity.to_string())];
        match &file.content {
            Ok(credentials) => {
                let facts = credentials.facts();
                fields.extend([
                    ("serial", facts.serial.clone()),
                    ("fingerprint", Fingerprint::of(&credentials.chain()[0]).to_string()),
                    ("valid", facts.validity.to_string()),
                    ("state", state(facts.validity, now)),
                    ("renewed", Moment(facts.validity.due()).to_string()),
                ]);
                if !facts.hosts.is_empty() {
                    fields.push(("serves as", facts.hosts.join(", ")));
                }
            }
            Err(error) => fields.push(("state", error.to_string())),
        }
        fields.push(("key, certificate", path.clone()));
        self.fields(&fields)?;
        if file.content.is_ok() && identity.role == Role::App {
            writeln!(
                self.out,
                "
A gRPC client in another language needs: root certificates {}, private key and certificate chain {path} (both in one \
file), server name {EDGE_SERVER_NAME}.",
                authority.display()
            )?;
        }
        Ok(())
    }

    pub(super) fn table<const N: usize>(&mut self, head: [&str; N], rows: &[[String; N]]) -> io::Result<()> {
        let width = |column: usize| {
            let cells = rows.iter().map(|row| row[column].chars().count());
            cells.chain([head[column].len()]).max().unwrap_or(0)
        };
        let widths: [usize; N] = std::array::from_fn(width);
        for row in std::iter::once(&head.map(str::to_owned)).chain(rows) {
            let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
            writeln!(self.out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        Ok(())
    }

    fn fields(&mut self, fields: &[(&str, String)]) -> io::Result<()> {
        let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        fields.iter().try_for_each(|(name, value)| writeln!(self.out, "{name:<width$}  {value}"))
    }
}

fn row(file: &IdentityFile, now: SystemTime) -> [String; 3] {
    let name = match &file.identity {
        Some(identity) => identity.short(),
        None => file.path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
    };
    match &file.content {
        Ok(credentials) => {
            let validity = credentials.validity();
            [name, Moment(validity.not_after).to_string(), state(validity, now)]
        }
        Err(error) => [name, "-".into(), error.to_string()],
    }
}

/// The state of a member's certificate, which programs renew by themselves.
pub(super) fn state(validity: Validity, now: SystemTime) -> String {
    let left = left(validity, now);
    match validity.holds_at(now) && now > validity.due() {
        true => format!("{left}: will be renewed when a program that uses it reaches an edge"),
        false => left,
    }
}

/// The remaining validity of a certificate.
fn left(validity: Validity, now: SystemTime) -> String {
    let time = |duration: Duration| match duration.as_secs() / (24 * 3600) {
        0 => "less than a day".into(),
        1 => "1 day".into(),
        days => format!("{days} days"),
    };
    if now < validity.not_before {
        return format!("not valid before {}: check the clock", Moment(validity.not_before));
    }
    match validity.not_after.duration_since(now) {
        Ok(left) => format!("{} left", time(left)),
        Err(over) => format!("expired {} ago: enrol again", time(over.duration())),
    }
}
