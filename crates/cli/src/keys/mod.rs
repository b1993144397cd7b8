//! `mez keys`: creates a site, and lets hosts and applications join it.

mod audit;
mod revoke;
mod rights;
mod rotate;
mod show;
#[cfg(test)]
mod tests;
mod told;

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::{Args, Subcommand};
use mez_core::revocation::SubjectError;
use mez_core::rights::{Grantee, GranteeError};
use mez_node::discovery::{FindError, Network, enrolment_on};
use mez_node::identity::authority::AuthorityError;
use mez_node::identity::enrol::{EnrolError, ServeError, enrol_blocking};
use mez_node::identity::folder::{AUTHORITY_CERTIFICATE, AUTHORITY_KEY, KeyFolderError};
use mez_node::identity::name::IdentityError;
use mez_node::identity::renew::{SignerError, SignerServer};
use mez_node::identity::token::{TokenError, TokenTextError};
use mez_node::identity::{
    EnrolmentServer, FileError, Fingerprint, Identity, KeyFolder, Moment, Role, SiteAuthority, SiteName,
    Token, TokenStore, host_name,
};
use mez_node::ports;
use mez_node::revocation::RevokedError;
use mez_node::rights::RightsError;
use mez_node::runtime::block_on;

use crate::config::EdgePlaces;
use crate::failure::Failure;

/// Make a site, let hosts and applications join it, grant and revoke rights, and list the identities of this host.
#[derive(Debug, Args)]
#[command(after_help = "\
A site is one certificate authority with the cameras, edges and applications that trust it. Each of them has a certificate, and a private key \
that never leaves its host. Every broker needs a site.

Examples:
  Make a site. Programs on this host can use it at once:
    mez keys init
  Let a camera on another host join. First make a one-time token on this host:
    mez keys token camera/dock/cam1
  Then, while `mez edge` runs here, use the token on the camera's host:
    mez keys enrol TOKEN --edge HOST

The folder of keys is that of --keys; otherwise of the variable MEZ_KEYS; otherwise of the edge's file of settings (edge.toml); otherwise \
$XDG_CONFIG_HOME/mez/keys or ~/.config/mez/keys. So the commands use the same folder as `mez edge` with the same --config.")]
pub struct KeysArgs {
    /// Folder with the keys of this host [default: $MEZ_KEYS, else as in edge.toml, else ~/.config/mez/keys]
    #[arg(long, value_name = "DIR", global = true)]
    keys: Option<PathBuf>,
    /// The edge's folder for state, with its audit log. Changes of rights are reported there [default: $MEZ_STATE, else as in edge.toml, else /var/lib/mez
    /// for root, ~/.local/state/mez for others]
    #[arg(long, value_name = "DIR", global = true)]
    state: Option<PathBuf>,
    /// File of settings of this host's edge, with these folders, or `off` for none [default: $MEZ_EDGE_CONFIG, else edge.toml in ~/.config/mez, else in
    /// /etc/mez]
    #[arg(long, value_name = "FILE|off", global = true)]
    config: Option<OsString>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a new site, with this host as its authority
    #[command(after_help = "\
Examples:
  mez keys init
  mez keys init --site harbour --keys /etc/mez/keys

The command writes authority.key and authority.pem. It does not overwrite files. Keep authority.key secret, and keep a copy in a safe place.")]
    Init {
        /// Name of the site, in lower case [default: the name of this host]
        #[arg(long, value_name = "NAME")]
        site: Option<SiteName>,
    },
    /// Make a one-time token with which one host or application can join
    #[command(after_help = "\
Examples:
  One camera:
    mez keys token camera/dock/cam1
  A host that may publish dock/cam1, dock/cam2 and so on:
    mez keys token camera/dock
  An application that may watch the dock's cameras and send results back:
    mez keys token app/counter --watch 'dock/*' --reply 'dock/*'
  An application that publishes what it found in their frames:
    mez keys token app/faces --watch 'dock/*' --publish 'dock/*/faces'
  An application that may join within a day:
    mez keys token app/counter --valid 1d
  A camera in a public place, with certificates that last for one day:
    mez keys token camera/street/cam1 --lifetime 1d
  An edge to which clients in other languages connect as edge.example:
    mez keys token edge/main --dns edge.example

Run the command on the host where the site was made. It prints only the token to the standard output, so that a script can read it.")]
    Token {
        /// Who will join: camera/NAME, edge/NAME or app/NAME
        #[arg(value_name = "IDENTITY")]
        identity: String,
        /// How long the token is valid: 90s, 30m, 1h, 7d
        #[arg(long, value_name = "TIME", default_value = "1h", value_parser = parse_duration)]
        valid: Duration,
        /// How long its certificates last: 1s to 90d. They are renewed automatically after two thirds of this time
        #[arg(long, value_name = "TIME", default_value = "30d", value_parser = parse_duration)]
        lifetime: Duration,
        /// Only for edges: host name or address to which gRPC clients in other languages connect; may be repeated
        #[arg(long, value_name = "NAME")]
        dns: Vec<String>,
        #[command(flatten)]
        grants: rights::TokenGrants,
    },
    /// Grant rights to an application or a user, at the edge of this host
    #[command(after_help = "\
Examples:
  An application may watch two cameras, and send its results back:
    mez keys grant app/counter watch,reply dock/cam1 dock/cam2
  Every application may list the cameras, with their states:
    mez keys grant 'app/**' observe '**'
  A user of this host may read the past. The permissions of the edge's socket must also let the user in:
    mez keys grant user/1000 read 'yard/*'

Verbs: watch (live frames), read (frames of the past), originals (frames as they were published, from the camera's log), reply, publish (derived \
streams), observe (lists and states), profile (use a profile of its own), operate (reset and forget cameras), export. join and administer are reserved.

A running edge applies a change within about a second, also to streams that are open.")]
    Grant(rights::GrantArgs),
    /// Withdraw grants. Streams that need them end within seconds
    #[command(after_help = "\
Examples:
  One camera:
    mez keys ungrant app/counter watch dock/cam1
  All grants of an application:
    mez keys ungrant app/counter")]
    Ungrant(rights::UngrantArgs),
    /// List the grants of everybody, or of one application or user
    #[command(after_help = "\
Examples:
  mez keys grants
  mez keys grants app/counter")]
    Grants {
        /// For whom: app/NAME, edge/NAME or user/NUMBER [default: everybody]
        #[arg(value_name = "WHO")]
        who: Option<Grantee>,
    },
    /// Show whether only grants count at this edge, or make only grants count
    #[command(after_help = "\
Examples:
  mez keys rights
  At a site that is older than grants, make only grants count from now on:
    mez keys rights --strict")]
    Rights {
        /// Refuse everything that no grant allows
        #[arg(long)]
        strict: bool,
    },
    /// Revoke certificates: edges that have the new deny list close their connections within seconds, and refuse new ones
    #[command(after_help = "\
Examples:
  A stolen camera, with all certificates that it got until now:
    mez keys revoke camera/dock/cam1 --because 'stolen from the dock'
  Its replacement joins under the same name, with a new token:
    mez keys token camera/dock/cam1
  One certificate, by the serial number that `mez cameras show` and `mez keys show` print:
    mez keys revoke 3f2a90c4d1e65b7788990a1b2c3d4e5f

Run the command where the site was made. The edge of this host applies the list within a second. Edges with `--signer` and the name of this host apply it \
within a second after that. Any other edge gets the list when a camera connects to it that was connected to one of these edges, which may never happen. \
To be sure, copy revoked.list into its folder of keys; that edge then applies it within a second.

If an edge was revoked by mistake, it needs a new certificate after `mez keys unrevoke`, because cameras that still have the older list do not connect to \
it. An edge with a signer renews its certificate at once.")]
    Revoke(revoke::RevokeArgs),
    /// Remove entries from the deny list that were revoked by mistake
    #[command(after_help = "Example:\n  mez keys unrevoke camera/dock/cam1")]
    Unrevoke {
        /// What to accept again, as `mez keys revoked` lists it
        #[arg(value_name = "WHO|SERIAL", required = true)]
        what: Vec<String>,
    },
    /// List what is revoked
    #[command(after_help = "Example:\n  mez keys revoked")]
    Revoked,
    /// Print the audit log of the edge on this host: who joined, was refused, read the past, exported, changed rights, reset or forgot cameras
    #[command(after_help = "\
Examples:
  mez keys audit --since -1d
  mez keys audit --who 'app/**' --kind refused,read --json
  mez keys audit --follow
  Check whether somebody has changed the log, now and later:
    mez keys audit --verify
    mez keys audit --verify --noted 2931:5f1c…

Each record contains the hash of the previous one, so a changed record is detected. The command always checks the whole log. If something is wrong, it \
says what, and ends with status 1. But somebody who can write the log can replace all records from some point on. To detect this, keep the output of \
--verify on another host, and later compare with --noted.

Repeated records are counted in one record, which is written after a minute, then after two, four and so on, at most an hour.

Lines are in the order in which the edge wrote them. A count has the time of the last record that it counts, and a report of a command has the time of the \
command. So a line may have an earlier time than the line above it.")]
    Audit(audit::AuditArgs),
    /// Join a site with a token. The private key is made on this host and never leaves it
    #[command(after_help = "\
Examples:
  With a token that was made on edge.local:
    mez keys enrol mez1.AbC… --edge edge.local
  The same, if that edge was started with --announce and is on the same network:
    mez keys enrol mez1.AbC…
  Make and use a token in one step, if you can log in to the edge's host:
    ssh edge.local mez keys token camera/dock | mez keys enrol - --edge edge.local

The token also proves that the edge is the right one. A host may have several identities: run the command once for each of them. \
Programs renew the certificates automatically. If a certificate has expired, enrol again with the same identity.")]
    Enrol {
        /// The token, or - to read it from the standard input
        #[arg(value_name = "TOKEN")]
        token: String,
        /// The host where the site was made, on which `mez edge` or `mez keys serve` runs [default: the edge of the token's site that answers on the local network]
        #[arg(long, value_name = "HOST[:PORT]")]
        edge: Option<String>,
    },
    /// Replace the site's authority by a new one, without interruption
    #[command(after_help = "\
Examples:
  mez keys rotate
  Somebody may have the old key: trust it only two more days, while all members renew their certificates:
    mez keys rotate --overlap 2d

Members change to the new authority when they renew their certificates; their connections stay open. Both authorities are trusted until the overlap ends. \
Then the old one is no longer trusted anywhere. A member that was not connected during the overlap must enrol again. Tokens that are not used yet are \
void: make new ones.")]
    Rotate(rotate::RotateArgs),
    /// Serve enrolment without an edge, and renew certificates for the edge of this host
    #[command(after_help = "\
Examples:
  mez keys serve --listen 10.0.0.7:7652
  The authority's key belongs to another user than the edge, which has no access to it:
    mez keys serve --signer /run/mez/signer.sock
    mez edge --signer unix:///run/mez/signer.sock

`mez edge` does both by itself, unless it has --signer. The command ends with Ctrl-C.")]
    Serve {
        /// Unix socket at which the edge of this host requests renewed certificates
        #[arg(long, value_name = "PATH")]
        signer: Option<PathBuf>,
        /// Address and port to listen on
        #[arg(long, value_name = "ADDRESS:PORT", default_value_t = every_address())]
        listen: SocketAddr,
    },
    /// List the identities of this host and how long they are valid
    #[command(after_help = "Example:\n  mez keys list")]
    List,
    /// Show the details of the site's authority, or of one identity of this host
    #[command(after_help = "\
Examples:
  The site's authority. Its fingerprint is the same on every host of the site:
    mez keys show
  An identity, with the files that a client in another language needs:
    mez keys show app/counter")]
    Show {
        /// Identity of this host, such as app/counter [default: the site's authority]
        #[arg(value_name = "IDENTITY")]
        identity: Option<String>,
    },
}

/// Runs `mez keys`. Blocks, so it must not be called inside an async runtime.
pub(crate) fn run(mut args: KeysArgs) -> Result<(), Failure> {
    let edge = EdgePlaces::find(args.config.as_deref(), args.keys.as_deref(), args.state.as_deref())?;
    // The key folder of an edge with a signer does not contain the authority's key.
    if !(edge.has_signer && args.command.is_of_authority()) {
        args.keys = edge.keys;
    }
    args.state = edge.state;
    let (log, edge_name) = (told::log(args.state.as_deref()), edge.name);
    // Not locked, because other threads write log lines while this serves.
    let mut terminal = Terminal { out: &mut io::stdout(), notes: &mut io::stderr(), log, edge_name };
    terminal.run(args).map_err(Failure::new)
}

impl Command {
    /// Whether it needs the authority's key.
    fn is_of_authority(&self) -> bool {
        matches!(
            self,
            Self::Init { .. }
                | Self::Token { .. }
                | Self::Rotate(_)
                | Self::Revoke(_)
                | Self::Unrevoke { .. }
                | Self::Serve { .. }
        )
    }
}

/// Why a command of `mez keys` failed. Every text contains a remedy.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// The key folder was not found, or could not be opened.
    #[error(transparent)]
    Folder(#[from] KeyFolderError),
    /// The authority could not be created or loaded.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// The given text is not an identity of this site.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// No token was made.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The given text is not a token.
    #[error(transparent)]
    TokenText(#[from] TokenTextError),
    /// This host was not enrolled.
    #[error(transparent)]
    Enrol(#[from] EnrolError),
    /// No edge is named, and none was found.
    #[error(transparent)]
    Find(#[from] FindError),
    /// Enrolment could not be served.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The signer could not be served.
    #[error(transparent)]
    Signer(#[from] SignerError),
    /// The rights of this host's edge could not be used.
    #[error(transparent)]
    Rights(#[from] RightsError),
    /// The site's deny list could not be used.
    #[error(transparent)]
    Revoked(#[from] RevokedError),
    /// The given text cannot be revoked.
    #[error(transparent)]
    Subject(#[from] SubjectError),
    /// The given text is only a part of a serial number.
    #[error(
        "{serial} is only a part of a serial number: serial numbers of certificates have 32 hexadecimal digits; copy the whole number \
         from `mez keys show` or `mez cameras show`"
    )]
    PartOfSerial {
        /// The given digits.
        serial: String,
    },
    /// The audit log of this host's edge could not be printed.
    #[error(transparent)]
    Audit(#[from] audit::AuditFailure),
    /// The given text is not a grantee.
    #[error(transparent)]
    Grantee(#[from] GranteeError),
    /// The edge of this host cannot be locked out by revoking it.
    #[error(
        "{what} is the edge of this host, which has the authority's key: after a revocation it issues itself another certificate at once, and \
         continues. If somebody may have its old certificate, add --own: all connections to the edge are then made again. To remove the edge, \
         stop it. If somebody may have the authority's key, run `mez keys rotate`"
    )]
    OwnEdge {
        /// The member or serial number that was to be revoked.
        what: String,
    },
    /// There is no such grant to remove.
    #[error("{grantee} has no such grant; `mez keys grants` lists all grants")]
    NotGranted {
        /// The grantee.
        grantee: String,
    },
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// This host does not have the identity.
    #[error("this host has no identity {wanted}: {folder} holds {held}", folder = folder.display())]
    NotHeld {
        /// The requested identity.
        wanted: String,
        /// The key folder.
        folder: PathBuf,
        /// The identities in it.
        held: String,
    },
    /// Reading or writing the terminal failed.
    #[error("cannot read or write the terminal: {0}")]
    Terminal(#[from] io::Error),
}

/// The outputs. `out` is for people and programs, `notes` only for people.
struct Terminal<'a> {
    out: &'a mut dyn Write,
    notes: &'a mut dyn Write,
    /// The audit log to which changes are reported, if there is one.
    log: Option<PathBuf>,
    /// The name of this host's edge in its settings.
    edge_name: Option<String>,
}

impl Terminal<'_> {
    fn run(&mut self, args: KeysArgs) -> Result<(), KeysError> {
        let keys = args.keys.as_deref();
        match args.command {
            Command::Init { site } => self.init(keys, site),
            Command::Token { identity, valid, lifetime, dns, grants } => {
                self.token(keys, &identity, (valid, lifetime), &dns, &grants)
            }
            Command::Rotate(args) => self.rotate(&KeyFolder::find(keys)?, &args),
            Command::Grant(args) => self.grant(&KeyFolder::find(keys)?, args),
            Command::Ungrant(args) => self.ungrant(&KeyFolder::find(keys)?, &args),
            Command::Grants { who } => self.grants(&KeyFolder::find(keys)?, who.as_ref()),
            Command::Rights { strict } => self.rights(&KeyFolder::find(keys)?, strict),
            Command::Revoke(args) => self.revoke(&KeyFolder::find(keys)?, &args),
            Command::Unrevoke { what } => self.unrevoke(&KeyFolder::find(keys)?, &what),
            Command::Revoked => self.revoked(&KeyFolder::find(keys)?),
            Command::Audit(audit) => Ok(self.audit(&audit, args.state.as_deref())?),
            Command::Enrol { token, edge } => self.enrol(keys, &token, edge),
            Command::Serve { signer, listen } => self.serve(keys, signer.as_deref(), listen),
            Command::List => self.list(&KeyFolder::find(keys)?, SystemTime::now()),
            Command::Show { identity } => self.show(&KeyFolder::find(keys)?, identity.as_deref()),
        }
    }

    fn init(&mut self, keys: Option<&Path>, site: Option<SiteName>) -> Result<(), KeysError> {
        let folder = KeyFolder::location(keys)?;
        let site = site.unwrap_or_else(|| SiteName::from_host_name(&host_name()));
        let authority = SiteAuthority::create(&folder, &site)?;
        let fingerprint = Fingerprint::of(authority.certificate());
        writeln!(
            self.out,
            "Created the site {site}. Its certificate authority is on this host, and is valid until {until}.

  {key}
      its private key: anybody who has it can decide who belongs to the site; keep it secret, and keep a copy in a safe place
  {certificate}
      its certificate, which every member gets
  {fingerprint}
      its fingerprint, which is the same on every host of the site

Programs of this user can use the site at once: start an edge with `mez edge`.
For another host, make a token here: `mez keys token camera/dock/cam1`, or
`mez keys token app/counter --watch 'dock/*'`: applications may do only what they are granted.",
            until = Moment(authority.validity().not_after),
            key = folder.join(AUTHORITY_KEY).display(),
            certificate = folder.join(AUTHORITY_CERTIFICATE).display(),
        )?;
        Ok(())
    }

    fn token(
        &mut self,
        keys: Option<&Path>,
        identity: &str,
        lasting: (Duration, Duration),
        dns: &[String],
        grants: &rights::TokenGrants,
    ) -> Result<(), KeysError> {
        let keys = KeyFolder::find(keys)?;
        let identity = Identity::parse_within(keys.site(), identity)?;
        let granted = grants.of(&identity)?;
        let token = TokenStore::create_for(&keys, &identity, dns, lasting)?;
        writeln!(self.out, "{token}")?;
        writeln!(
            self.notes,
            "
With this token, one host can join site {site} as {short}, once, until {until}. Keep it secret, like a password.
Run this on that host, while `mez edge` or `mez keys serve` runs here (port {port}):

  mez keys enrol TOKEN --edge {host}",
            short = identity.short(),
            site = identity.site,
            until = Moment(token.expires()),
            port = ports::ENROL,
            host = host_name(),
        )?;
        self.give(&keys, &identity, granted)
    }

    fn enrol(&mut self, keys: Option<&Path>, token: &str, edge: Option<String>) -> Result<(), KeysError> {
        let folder = KeyFolder::location(keys)?;
        let token: Token = if token == "-" { from_standard_input()? } else { token.parse()? };
        let edge = edge.map_or_else(|| nearby(&token), Ok)?;
        let enrolled = enrol_blocking(&token, &edge, &folder)?;
        let Identity { site, role, name } = &enrolled.identity;
        writeln!(
            self.out,
            "This host is now {role}/{name} of site {site}, until {until}.
Its private key is in {file}, and never leaves this host.",
            until = Moment(enrolled.validity.not_after),
            file = enrolled.file.display(),
        )?;
        match role {
            Role::Camera => {
                writeln!(self.out, "{}", publishing(&name.to_string()))
            }
            Role::Edge => writeln!(self.out, "Start it with `mez edge`."),
            Role::App => writeln!(self.out, "Receive with `mez subscribe` or, in Python, mez.subscribe(…)."),
        }?;
        Ok(())
    }

    fn serve(
        &mut self,
        keys: Option<&Path>,
        signer: Option<&Path>,
        listen: SocketAddr,
    ) -> Result<(), KeysError> {
        let keys = KeyFolder::find(keys)?;
        let _signer = signer.map(|path| SignerServer::start(&keys, path)).transpose()?;
        if let Some(path) = signer {
            writeln!(
                self.out,
                "Signs at {path}. Start the edge with `mez edge --signer unix://{path}`.",
                path = path.display()
            )?;
        }
        let server = EnrolmentServer::new(&keys)?.start(listen)?;
        let (site, address) = (keys.site(), server.address());
        writeln!(
            self.out,
            "Hosts with a token can join site {site} at {address}. Make tokens in another terminal with \
             `mez keys token`; end with Ctrl-C."
        )?;
        self.out.flush()?;
        server.run_until_interrupted()?;
        writeln!(self.out, "Enrolment has ended. Unused tokens stay valid until they expire.")?;
        Ok(())
    }
}

/// The enrolment address for a device without a configured edge. The token decides whether the site is the right one.
fn nearby(token: &Token) -> Result<String, KeysError> {
    Ok(block_on(enrolment_on(Network::LOCAL, &token.identity().site))??)
}

/// How to publish with an identity of this name. A name of one segment is a place, such
/// as `dock`. Then the camera gets a name below it, which the pattern `dock/*` matches.
fn publishing(identity: &str) -> String {
    let camera = if identity.contains('/') { identity.to_owned() } else { format!("{identity}/cam1") };
    let place = camera.rsplit_once('/').map_or(identity, |(place, _)| place);
    format!(
        "It may publish the camera {identity} and every camera below it. Publish with
  mez camera {camera} --edge HOST --source …
or, in Python, mez.publisher(\"{camera}\", …). Applications get its frames with mez subscribe '{place}/*'."
    )
}

fn every_address() -> SocketAddr {
    SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, ports::ENROL))
}

fn from_standard_input() -> Result<Token, KeysError> {
    // A token has a few hundred characters.
    let mut text = String::new();
    io::stdin().lock().take(4096).read_to_string(&mut text)?;
    Ok(text.parse()?)
}

/// Parses `90s`, `30m`, `1h` or `7d`.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a duration; write a whole number and a unit: 90s, 30m, 1h or 7d");
    let unit = text.chars().next_back().ok_or_else(wrong)?;
    let seconds: u64 = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 24 * 3600,
        _ => return Err(wrong()),
    };
    let number: u64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(wrong)
}
