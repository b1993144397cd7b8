//! `mez doctor`: finds problems on this host and on the way to its edges, and gives remedies.
//!
//! Each check is a function that returns findings, in a file of its own. All checks run at the same
//! time, with time limits, and change nothing. `network.rs` asks the edges once for all checks.

mod audit;
mod bundle;
mod certificate;
mod clock;
mod codec;
mod decoder;
mod disk;
mod ffmpeg;
mod finding;
mod grant;
mod in_force;
mod mtu;
mod network;
mod permissions;
mod ports;
mod reach;
mod revocation;
mod settings;
mod source;
mod subject;
mod udp;
mod version;

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;

use self::finding::{Check, Finding, Level, lines, report};
use self::network::Answers;
use self::subject::{Subject, SubjectArgs};
use crate::failure::Failure;
use crate::live::Screen;

/// The longest time for all checks together. Each check has its own limits, whose sum is less.
const TIME_MAX: Duration = Duration::from_secs(40);

/// Find problems on this host and on the way to its edges, and say what to do
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mez doctor                                         on the edge's host, or anywhere with keys
  mez doctor --edge edge.local --camera dock/cam1    on a camera's host, also before its first start
  mez doctor --edge edge.local --watch 'dock/*'      on an application's host: may it watch these cameras?
  mez doctor --store /var/lib/mez/store              also check the folder of a store
  mez doctor --bundle report.tar.gz --include /var/log/mez.log
                                                     pack the findings, configuration, metrics and logs, without secrets

It checks settings, certificates, the deny list, permissions of keys, clocks, the way to the edge (name, TCP, QUIC, sizes of datagrams), \
versions, grants, ports, codecs, decoders, ffmpeg, the source, disks and the audit log. It changes nothing. It uses the same files of settings as the brokers and \
programs of this user. Run it as the same user as the broker or program, with the same options and environment.

The command ends with status 1 if it found a fault.")]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    subject: SubjectArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Also write a compressed archive for support: findings, configuration, metrics and logs, without keys, tokens and passwords
    #[arg(long, value_name = "FILE.tar.gz")]
    bundle: Option<PathBuf>,
    /// A log or a configuration file to add to the archive; may be repeated
    #[arg(long, value_name = "FILE", requires = "bundle")]
    include: Vec<PathBuf>,
}

pub(crate) fn run(args: DoctorArgs) -> Result<(), Failure> {
    let subject = Arc::new(Subject::of(args.subject)?);
    let findings = examine(&subject);
    let mut out = io::stdout().lock();
    if args.json {
        writeln!(out, "{:#}", report(&findings))?;
    } else {
        lines(&findings, Screen::new().width()).iter().try_for_each(|line| writeln!(out, "{line}"))?;
    }
    out.flush()?;
    if let Some(file) = &args.bundle {
        let count = bundle::write(&subject, &findings, &args.include, file)?;
        eprintln!(
            "packed {count} files into {}; review them before you send the bundle to anybody",
            file.display()
        );
    }
    let mut faulty: Vec<&str> = findings
        .iter()
        .filter(|finding| finding.level == Level::Fault)
        .map(|finding| finding.check.name())
        .collect();
    let count = faulty.len();
    faulty.dedup();
    match count {
        0 => Ok(()),
        1 => Err(Failure::text(format!("1 fault: {}", faulty.join(", ")))),
        _ => Err(Failure::text(format!("{count} faults: {}", faulty.join(", ")))),
    }
}

/// A check.
type Work = fn(&Subject) -> Vec<Finding>;

/// Runs all checks at the same time, for at most [`TIME_MAX`].
fn examine(subject: &Arc<Subject>) -> Vec<Finding> {
    let checks: [(Check, Work); 12] = [
        (Check::Settings, settings::check),
        (Check::Certificate, certificate::check),
        (Check::Revocation, revocation::check),
        (Check::Permissions, permissions::check),
        (Check::Reach, |subject| Answers::ask(subject).judge(subject)),
        (Check::Ports, ports::check),
        (Check::Codec, |_| codec::check()),
        (Check::Decoder, decoder::check),
        (Check::Ffmpeg, ffmpeg::check),
        (Check::Source, source::check),
        (Check::Disk, disk::check),
        (Check::Audit, audit::check),
    ];
    let (sender, done) = mpsc::sync_channel(checks.len());
    let mut waiting: Vec<Check> = Vec::new();
    for (check, work) in checks {
        let (sender, subject) = (sender.clone(), Arc::clone(subject));
        waiting.push(check);
        thread::spawn(move || sender.send((check, work(&subject))));
    }
    drop(sender);
    let (mut findings, deadline) = (Vec::new(), Instant::now() + TIME_MAX);
    while !waiting.is_empty() {
        match done.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok((check, found)) => {
                waiting.retain(|other| *other != check);
                findings.extend(found);
            }
            Err(reason) => {
                findings.extend(waiting.drain(..).map(|check| unfinished(check, reason)));
            }
        }
    }
    findings.sort_by_key(|finding| finding.check);
    findings
}

fn unfinished(check: Check, reason: RecvTimeoutError) -> Finding {
    let found = match reason {
        RecvTimeoutError::Timeout => format!("no result within {} s: the check hangs", TIME_MAX.as_secs()),
        RecvTimeoutError::Disconnected => "the check itself failed".into(),
    };
    Finding::fault(
        check,
        found,
        "see the messages above, or run `mez doctor --log debug`; a folder on an unreachable network drive can be the cause",
    )
}
