//! `mez keys grant`, `ungrant`, `grants` and `rights`: show and change the rights at this host's edge.

use std::str::FromStr;

use clap::Args;
use mez_core::audit::{Event, Kind};
use mez_core::name::CameraPattern;
use mez_core::rights::{Bearer, Grant, Grantee, GranteeError, Stance, UnknownVerb, Verb};
use mez_node::clock::wall_now;
use mez_node::identity::{Identity, KeyFolder, Role};
use mez_node::rights::edit::{with_grant, with_stance, without_grant};
use mez_node::rights::{RightsFile, RightsText};

use super::{KeysError, Terminal};
use crate::text::counted;

/// Verbs, separated by commas.
#[derive(Clone, Debug)]
pub(super) struct Verbs(Vec<Verb>);

impl FromStr for Verbs {
    type Err = UnknownVerb;

    fn from_str(text: &str) -> Result<Self, UnknownVerb> {
        text.split(',').map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

/// What is granted to whom.
#[derive(Debug, Args)]
pub struct GrantArgs {
    /// Who gets the grants: app/NAME, edge/NAME or user/NUMBER; app/** means every application, user/* every user of this host
    #[arg(value_name = "WHO")]
    who: Grantee,
    /// One verb, or several with commas between them
    #[arg(value_name = "VERB,…")]
    verbs: Verbs,
    /// The cameras: names or patterns such as 'dock/*'
    #[arg(value_name = "CAMERA", required = true)]
    cameras: Vec<CameraPattern>,
}

/// What is taken back from whom.
#[derive(Debug, Args)]
pub struct UngrantArgs {
    /// Who loses the grants, as in the list of `mez keys grants`
    #[arg(value_name = "WHO")]
    who: Grantee,
    /// One verb, or several with commas between them [default: all verbs]
    #[arg(value_name = "VERB,…")]
    verbs: Option<Verbs>,
    /// The cameras, as in the list of `mez keys grants` [default: all cameras of the verb]
    #[arg(value_name = "CAMERA")]
    cameras: Vec<CameraPattern>,
}

/// What somebody who joins is granted at once.
#[derive(Debug, Args)]
pub struct TokenGrants {
    /// Cameras that it may watch, such as 'dock/*'. This option and those below may be repeated
    #[arg(long, value_name = "CAMERA", value_delimiter = ',')]
    watch: Vec<CameraPattern>,
    /// Cameras whose past it may read
    #[arg(long, value_name = "CAMERA", value_delimiter = ',')]
    read: Vec<CameraPattern>,
    /// Cameras whose originals it may get, from the camera's own log
    #[arg(long, value_name = "CAMERA", value_delimiter = ',')]
    originals: Vec<CameraPattern>,
    /// Cameras that it may send results to
    #[arg(long, value_name = "CAMERA", value_delimiter = ',')]
    reply: Vec<CameraPattern>,
    /// Streams that it may publish at the edge, such as 'dock/*/faces'
    #[arg(long, value_name = "STREAM", value_delimiter = ',')]
    publish: Vec<CameraPattern>,
    /// Cameras that it may see in lists, with their states
    #[arg(long, value_name = "CAMERA", value_delimiter = ',')]
    observe: Vec<CameraPattern>,
    /// Cameras whose frames it may write into files. It also needs --watch or --read for them
    #[arg(long, value_name = "CAMERA", value_delimiter = ',')]
    export: Vec<CameraPattern>,
    /// Cameras for which it may use a profile of its own
    #[arg(long, value_name = "CAMERA", value_delimiter = ',')]
    profile: Vec<CameraPattern>,
}

impl TokenGrants {
    /// The grants for `identity`.
    pub(super) fn of(&self, identity: &Identity) -> Result<Vec<Grant>, GranteeError> {
        let all = [
            (Verb::Watch, &self.watch),
            (Verb::Read, &self.read),
            (Verb::Originals, &self.originals),
            (Verb::Reply, &self.reply),
            (Verb::Publish, &self.publish),
            (Verb::Observe, &self.observe),
            (Verb::Export, &self.export),
            (Verb::Profile, &self.profile),
        ];
        if all.iter().all(|(_, cameras)| cameras.is_empty()) {
            return Ok(Vec::new());
        }
        let grantee: Grantee = identity.short().parse()?;
        let grant = |verb, cameras: &CameraPattern| Grant {
            grantee: grantee.clone(),
            verb,
            cameras: cameras.clone(),
        };
        let grants = all.iter().flat_map(|(verb, cameras)| cameras.iter().map(|camera| grant(*verb, camera)));
        Ok(grants.collect())
    }
}

impl Terminal<'_> {
    /// Writes the grants of a token, and notes which rights the new member will lack.
    pub(super) fn give(
        &mut self,
        keys: &KeyFolder,
        identity: &Identity,
        grants: Vec<Grant>,
    ) -> Result<(), KeysError> {
        let short = identity.short();
        if !grants.is_empty() {
            return self.write_grants(keys, &grants);
        }
        let written = RightsFile::of(keys.path()).read();
        let has_grants =
            |text: &RightsText| text.grants.iter().any(|grant| grant.grantee.to_string() == short);
        if identity.role == Role::App
            && written.is_ok_and(|text| text.stance == Stance::Deny && !has_grants(&text))
        {
            writeln!(
                self.notes,
                "
It may do nothing yet: name cameras with --watch and --reply, or run `mez keys grant {short} watch,reply 'dock/*'`."
            )?;
        }
        Ok(())
    }

    pub(super) fn grant(&mut self, keys: &KeyFolder, args: GrantArgs) -> Result<(), KeysError> {
        let GrantArgs { who, verbs: Verbs(verbs), cameras } = args;
        let grants = verbs.iter().flat_map(|verb| {
            let grant = |cameras: &CameraPattern| Grant {
                grantee: who.clone(),
                verb: *verb,
                cameras: cameras.clone(),
            };
            cameras.iter().map(grant).collect::<Vec<_>>()
        });
        self.write_grants(keys, &grants.collect::<Vec<_>>())
    }

    pub(super) fn ungrant(&mut self, keys: &KeyFolder, args: &UngrantArgs) -> Result<(), KeysError> {
        let file = RightsFile::of(keys.path());
        let is_meant = |grant: &Grant| {
            grant.grantee == args.who
                && args.verbs.as_ref().is_none_or(|Verbs(verbs)| verbs.contains(&grant.verb))
                && (args.cameras.is_empty() || args.cameras.contains(&grant.cameras))
        };
        let mut taken = Vec::new();
        file.edit(|text| {
            taken.extend(RightsText::parse(&text)?.grants.into_iter().filter(is_meant));
            taken.iter().try_fold(text, |text, grant| without_grant(&text, grant))
        })?;
        if taken.is_empty() {
            return Err(KeysError::NotGranted { grantee: args.who.to_string() });
        }
        for grant in &taken {
            writeln!(self.out, "Taken back: {grant}")?;
        }
        self.tell_grants("taken back", &taken, &file)?;
        self.say_stance(&file, &file.read()?)
    }

    pub(super) fn grants(&mut self, keys: &KeyFolder, who: Option<&Grantee>) -> Result<(), KeysError> {
        let file = RightsFile::of(keys.path());
        let text = file.read_or_open()?.0;
        // For a single grantee, also grants by patterns that include it.
        let one = who.and_then(bearer);
        let is_meant = |grant: &&Grant| match (who, &one) {
            (Some(_), Some(one)) => grant.grantee.includes(one),
            (Some(who), None) => grant.grantee == *who,
            (None, _) => true,
        };
        let rows: Vec<[String; 3]> = text
            .grants
            .iter()
            .filter(is_meant)
            .map(|grant| [grant.grantee.to_string(), grant.verb.to_string(), grant.cameras.to_string()])
            .collect();
        if rows.is_empty() {
            writeln!(self.notes, "Nothing is granted.")?;
        } else {
            self.table(["WHO", "MAY", "CAMERAS"], &rows)?;
        }
        self.say_stance(&file, &text)
    }

    pub(super) fn rights(&mut self, keys: &KeyFolder, strict: bool) -> Result<(), KeysError> {
        let file = RightsFile::of(keys.path());
        if !strict {
            let text = file.read_or_open()?.0;
            let rest = if text.stance == Stance::Open { "allowed as well" } else { "refused" };
            let (path, grants) = (file.path().display(), counted(text.grants.len() as u64, "grant"));
            writeln!(self.out, "{path}: {grants}. What no grant allows is {rest}.")?;
            return self.say_stance(&file, &text);
        }
        let text = match file.create(Stance::Deny)? {
            true => file.read()?,
            false => file.edit(|text| with_stance(&text, Stance::Deny))?,
        };
        writeln!(
            self.out,
            "From now on, everything that no grant allows is refused, within seconds also for open streams. {} has {}; `mez keys grants` lists what is allowed.",
            file.path().display(),
            counted(text.grants.len() as u64, "grant"),
        )?;
        let why = format!("in {}", file.path().display());
        self.tell(&Event::new(wall_now(), Kind::Rights, "").what("strict").why(why))
    }

    fn write_grants(&mut self, keys: &KeyFolder, grants: &[Grant]) -> Result<(), KeysError> {
        let file = RightsFile::of(keys.path());
        // At a site that is older than grants, the edge may not have written the file yet.
        file.read_or_open()?;
        let text = file.edit(|text| grants.iter().try_fold(text, |text, grant| with_grant(&text, grant)))?;
        for grant in grants {
            writeln!(self.notes, "Granted: {grant}")?;
        }
        self.tell_grants("granted", grants, &file)?;
        for verb in Verb::ALL.into_iter().filter(|verb| !verb.is_asked()) {
            if grants.iter().any(|grant| grant.verb == verb) {
                writeln!(self.notes, "This version does not use {verb} yet.")?;
            }
        }
        self.say_stance(&file, &text)
    }

    fn say_stance(&mut self, file: &RightsFile, text: &RightsText) -> Result<(), KeysError> {
        if text.stance == Stance::Open {
            let path = file.path().display();
            writeln!(
                self.notes,
                "Grants restrict nothing yet, because default is \"open\" in {path}. When all applications have their grants, run `mez keys rights --strict`."
            )?;
        }
        Ok(())
    }
}

/// The bearer of a grantee without wildcards.
fn bearer(grantee: &Grantee) -> Option<Bearer> {
    match grantee {
        Grantee::App(names) => names.as_camera().map(Bearer::App),
        Grantee::Edge(names) => names.as_camera().map(Bearer::Edge),
        Grantee::User(uid) => Some(Bearer::User(*uid)),
        Grantee::EveryUser => None,
    }
}
