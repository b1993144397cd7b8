//! `mez keys rotate`: replaces a site's authority.

use std::time::{Duration, SystemTime};

use clap::Args;
use mez_node::identity::{Fingerprint, KeyFolder, Moment, SiteAuthority, TokenStore};

use super::{KeysError, Terminal, parse_duration};

#[derive(Debug, Args)]
pub struct RotateArgs {
    /// How long certificates of the old authority are accepted. With 90d, the longest lifetime of a certificate, no member has to enrol again
    #[arg(long, value_name = "TIME", default_value = "90d", value_parser = parse_duration)]
    overlap: Duration,
    /// Replace the authority although the previous overlap has not ended
    #[arg(long)]
    force: bool,
}

impl Terminal<'_> {
    pub(super) fn rotate(&mut self, keys: &KeyFolder, args: &RotateArgs) -> Result<(), KeysError> {
        let now = SystemTime::now();
        let waiting = TokenStore::of(keys).list(now)?.len();
        let authority = SiteAuthority::rotate(keys.path(), args.overlap, now, args.force)?;
        writeln!(
            self.out,
            "Site {site} has a new authority, which is valid until {until}. Members change to it when they renew their certificates.

  {fingerprint}
      its fingerprint, which `mez keys show` prints on every host that has changed to it

Certificates of the old authority are accepted until {overlap}. Its key was deleted; keep a copy of the new authority.key in a safe place.",
            site = authority.site(),
            until = Moment(authority.validity().not_after),
            fingerprint = Fingerprint::of(authority.certificate()),
            overlap = Moment(authority.overlaps_until(now).unwrap_or(now)),
        )?;
        if waiting > 0 {
            writeln!(self.notes, "Unused tokens ({waiting}) are void: make new ones with `mez keys token`.")?;
        }
        Ok(())
    }
}
