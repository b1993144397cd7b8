//! `mez keys revoke`, `unrevoke` and `revoked`: change and show the deny list.

use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use mez_core::audit::{Event, Kind};
use mez_core::revocation::{Entry, Subject};
use mez_core::rights::Grant;
use mez_core::units::Timestamp;
use mez_node::clock::wall_now;
use mez_node::identity::{
    Identity, KeyFolder, Moment, Name, Role, SiteAuthority, TokenStore, Validity, host_name,
};
use mez_node::revocation::{RevokedError, RevokedFile, SignedList, seconds};
use mez_node::rights::RightsFile;

use super::{KeysError, Terminal};

/// The least bytes of a serial number. A site's authority draws 16 random bytes, and leading zeros may be dropped.
const SERIAL_BYTES_MIN: usize = 14;

/// The most grants of a member that are named.
const GRANTS_SHOWN: usize = 6;

/// What is revoked, and why.
#[derive(Debug, Args)]
pub struct RevokeArgs {
    /// camera/NAME, edge/NAME or app/NAME: all certificates that it got until now. Or the serial number of one certificate
    #[arg(value_name = "WHO|SERIAL", required = true)]
    what: Vec<String>,
    /// The reason, for people. The revoked member also gets it
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    because: String,
    /// Allow to revoke the edge of this host. It makes itself a new certificate, and all connections to it are made again
    #[arg(long)]
    own: bool,
}

impl Terminal<'_> {
    pub(super) fn revoke(&mut self, keys: &KeyFolder, args: &RevokeArgs) -> Result<(), KeysError> {
        let authority = keys.load_authority()?;
        let subjects = subjects(keys, &args.what)?;
        whole(&subjects)?;
        if !args.own
            && let Some(own) = own_edge(keys, self.edge_name.as_deref(), &subjects)?
        {
            return Err(KeysError::OwnEdge { what: own.to_string() });
        }
        // First, so that nobody joins with an old token between the two steps.
        let withdrawn = self.withdraw_tokens(keys, &subjects)?;
        let because: String = args.because.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut now = SystemTime::now();
        let held = file(keys).edit(&authority, |list| {
            // Taken under the lock, so that no renewal runs: all certificates issued before are older than `now`, and denied.
            now = SystemTime::now();
            let until = (now + Validity::MEMBER_MAX).min(authority.validity().not_after);
            let entry = Entry { since: seconds(now), until: seconds(until), because: because.clone() };
            let add = |list: mez_core::revocation::Revocations, subject: &Subject| {
                list.with(seconds(now), subject.clone(), entry.clone())
            };
            Ok(subjects.iter().try_fold(list, add)?)
        })?;
        // Certificates have whole seconds. After this wait, new certificates are newer than the revocation.
        sleep(Duration::from_secs(1).saturating_sub(since_second(now)));
        for subject in &subjects {
            let of = match subject {
                Subject::Serial(_) => "the certificate with this serial number".into(),
                Subject::Member(_) => format!("its certificates that were issued until {}", Moment(now)),
            };
            writeln!(self.out, "Revoked: {subject} ({of})")?;
            self.tell(&denial(subject).why(&*because))?;
        }
        if withdrawn > 0 {
            writeln!(self.notes, "Unused tokens that are void now: {withdrawn}")?;
        }
        self.say_grants(keys, &subjects)?;
        self.say_where(keys, &held)
    }

    pub(super) fn unrevoke(&mut self, keys: &KeyFolder, what: &[String]) -> Result<(), KeysError> {
        let authority: SiteAuthority = keys.load_authority()?;
        let subjects = subjects(keys, what)?;
        let held = file(keys).edit(&authority, |list| {
            subjects.iter().try_fold(list, |list, subject| {
                let not_revoked = || RevokedError::NotRevoked { subject: subject.to_string() };
                list.without(subject).ok_or_else(not_revoked)
            })
        })?;
        for subject in &subjects {
            writeln!(self.out, "Accepted again: {subject}")?;
            self.tell(&denial(subject).why("accepted again"))?;
        }
        self.say_where(keys, &held)
    }

    pub(super) fn revoked(&mut self, keys: &KeyFolder) -> Result<(), KeysError> {
        let held = file(keys).read()?;
        if held.list.is_empty() {
            writeln!(self.notes, "Nothing is revoked at the site {}.", keys.site())?;
            return Ok(());
        }
        let rows: Vec<[String; 4]> = held
            .list
            .entries()
            .map(|(subject, entry)| {
                let because = entry.because.replace(char::is_control, " ");
                [subject.to_string(), moment(entry.since), moment(entry.until), because]
            })
            .collect();
        self.table(["WHAT", "REVOKED", "EXPIRES", "BECAUSE"], &rows)?;
        writeln!(
            self.notes,
            "Version {} of the deny list of the site {}.",
            held.list.version(),
            keys.site()
        )?;
        Ok(())
    }

    fn withdraw_tokens(&self, keys: &KeyFolder, subjects: &[Subject]) -> Result<usize, KeysError> {
        let tokens = TokenStore::of(keys);
        let mut withdrawn = 0;
        for subject in subjects {
            if let Subject::Member(member) = subject {
                withdrawn += tokens.withdraw(&Identity::parse_within(keys.site(), member.as_str())?)?;
            }
        }
        Ok(withdrawn)
    }

    /// Names the grants that stay: they belong to a name, and apply to everyone who joins under it later.
    fn say_grants(&mut self, keys: &KeyFolder, subjects: &[Subject]) -> Result<(), KeysError> {
        // Without a file there are no grants. An invalid file is reported by every other command.
        let Ok(rights) = RightsFile::of(keys.path()).read() else { return Ok(()) };
        for subject in subjects {
            let Subject::Member(member) = subject else { continue };
            let of = |grant: &&Grant| grant.grantee.to_string() == member.as_str();
            let grants: Vec<String> = rights.grants.iter().filter(of).map(ToString::to_string).collect();
            if !grants.is_empty() {
                writeln!(
                    self.notes,
                    "Grants that stay, for anybody who joins as {member} with a new token: {}. To remove them too, run `mez keys ungrant {member}` here \
                     and on the host of each other edge.",
                    shown(&grants),
                )?;
            }
        }
        Ok(())
    }

    fn say_where(&mut self, keys: &KeyFolder, held: &SignedList) -> Result<(), KeysError> {
        writeln!(
            self.notes,
            "Version {version} of the deny list is in {path}. The edge of this host applies it within a second, edges with `--signer` and the name of \
             this host a second later. Any other edge gets it only when a camera connects to it that was connected to one of these edges. To be \
             sure, copy the file into its folder of keys; that edge then applies it within a second.",
            version = held.list.version(),
            path = file(keys).path().display(),
        )?;
        Ok(())
    }
}

/// The first grants, and the number of the others.
fn shown(grants: &[String]) -> String {
    let first = grants.iter().take(GRANTS_SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    match grants.len().saturating_sub(GRANTS_SHOWN) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

fn file(keys: &KeyFolder) -> RevokedFile {
    RevokedFile::of(keys.path(), keys.trust())
}

/// Parses members of this site (short or as full URIs) and serial numbers.
fn subjects(keys: &KeyFolder, what: &[String]) -> Result<Vec<Subject>, KeysError> {
    let subject = |text: &String| match text.contains('/') {
        true => Ok(Identity::parse_within(keys.site(), text)?.short().parse()?),
        false => Ok(text.parse()?),
    };
    what.iter().map(subject).collect()
}

/// Returns an error for truncated serial numbers, since revoking them would have no effect.
fn whole(subjects: &[Subject]) -> Result<(), KeysError> {
    subjects.iter().try_for_each(|subject| match subject {
        Subject::Serial(serial) if serial.bytes().len() < SERIAL_BYTES_MIN => {
            Err(KeysError::PartOfSerial { serial: serial.to_string() })
        }
        Subject::Serial(_) | Subject::Member(_) => Ok(()),
    })
}

/// The subject that is this host's edge. It has the authority's key, so revoking it does not lock it out.
fn own_edge<'a>(
    keys: &KeyFolder,
    name: Option<&str>,
    subjects: &'a [Subject],
) -> Result<Option<&'a Subject>, KeysError> {
    let files = keys.identity_files()?;
    let held = files.iter().filter_map(|file| file.content.as_ref().ok());
    let held = held.filter(|held| held.identity().role == Role::Edge);
    // Its name in its settings, its default name, and the names and serial numbers of its certificates.
    let name = name.map_or_else(|| Name::from_host_name(&host_name()).to_string(), str::to_owned);
    let mut own = vec![format!("{}/{name}", Role::Edge)];
    own.extend(held.flat_map(|held| [held.identity().short(), held.facts().serial.clone()]));
    Ok(subjects.iter().find(|subject| own.contains(&subject.to_string())))
}

/// The audit event of a subject.
fn denial(subject: &Subject) -> Event {
    Event::new(wall_now(), Kind::Revoked, "").what(subject.to_string())
}

fn since_second(now: SystemTime) -> Duration {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    Duration::from_nanos(since.subsec_nanos().into())
}

fn moment(at: Timestamp) -> String {
    Moment(UNIX_EPOCH + Duration::from_nanos(at.as_nanos())).to_string()
}
