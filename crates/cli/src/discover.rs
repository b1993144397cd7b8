//! `mez discover`: looks for edges on the local network.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use mez_node::discovery::{Advert, Findings, Found, Network, Patience, Refused, find};
use mez_node::identity::{Credentials, KeyFolder, Role};
use mez_node::runtime::block_on;
use serde_json::{Value, json};

use crate::columns::NOTHING;
use crate::failure::Failure;
use crate::text::{parse_period, table};

/// The longest search.
const TIME_MAX: Duration = Duration::from_secs(60);

/// Look for edges on the local network, and verify that they belong to this site
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mez discover                     the edges that answer, with their ports and the address of the page
  mez discover --json              one line of JSON for each edge

An edge answers if it was started with --announce. Each edge must prove with its certificate that it belongs to the site whose keys this host has. \
The column PROVEN gives the result. Anybody on the network can announce anything, so programs use only edges that have proved it. \
The exit status is 1 if there is none.")]
pub(crate) struct DiscoverArgs {
    /// Print one line of JSON for each edge
    #[arg(long)]
    json: bool,
    /// How long to wait for answers, such as 5s
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_period)]
    time: Duration,
    /// Folder with the keys of this host [default: ~/.config/mez/keys]
    #[arg(long, value_name = "DIR", env = "MEZ_KEYS")]
    keys: Option<PathBuf>,
}

pub(crate) fn run(args: &DiscoverArgs) -> Result<(), Failure> {
    if args.time > TIME_MAX {
        return Err(Failure::usage(format!(
            "--time may be at most {} s; give a shorter time",
            TIME_MAX.as_secs()
        )));
    }
    let credentials = KeyFolder::find(args.keys.as_deref()).ok().and_then(|folder| any(&folder));
    let patience = Patience { lasts: args.time, settles: false };
    let findings = block_on(find(Network::LOCAL, credentials.as_ref(), patience))?;
    let findings =
        findings.map_err(|error| Failure::text(format!("cannot search the network for edges: {error}")))?;
    let mut out = io::stdout().lock();
    if args.json {
        findings.found.iter().try_for_each(|found| writeln!(out, "{}", of_found(found)))?;
        findings.refused.iter().try_for_each(|refused| writeln!(out, "{}", of_refused(refused)))?;
    } else if !(findings.found.is_empty() && findings.refused.is_empty()) {
        out.write_all(lines(&findings).as_bytes())?;
    }
    match (findings.found.is_empty(), findings.refused.is_empty()) {
        (false, _) => Ok(()),
        (true, true) => Err(Failure::text(format!(
            "no edge answered within {} s; start one with `mez edge --announce`. The network must carry multicast (UDP 5353) between the two hosts",
            args.time.max(Duration::from_secs(1)).as_secs()
        ))),
        (true, false) => Err(Failure::text("no edge of this host's site answered")),
    }
}

/// An identity of this host: an application's, or else a camera's.
fn any(folder: &KeyFolder) -> Option<Credentials> {
    folder.credentials(Role::App, None).ok().or_else(|| {
        let identities = folder.identity_files().ok()?.into_iter().filter_map(|file| file.identity);
        let camera = identities.into_iter().find(|identity| identity.role == Role::Camera)?;
        folder.credentials(Role::Camera, Some(&camera.name)).ok()
    })
}

fn lines(findings: &Findings) -> String {
    let port = |port: Option<u16>| port.map_or(NOTHING.to_owned(), |port| port.to_string());
    let row = |advert: &Advert, name: String, address: String, page: Option<String>, proven: String| {
        let Advert { site, link, grpc, enrol, .. } = advert;
        let [site, link, grpc, enrol] = [site.to_string(), link.to_string(), port(*grpc), port(*enrol)];
        [name, site, address, link, grpc, enrol, page.unwrap_or_else(|| NOTHING.to_owned()), proven]
    };
    let found = findings.found.iter().map(|Found { identity, address, advert }| {
        let page = advert.page(*address);
        row(advert, identity.name.to_string(), address.to_string(), page, "yes".into())
    });
    let refused = findings.refused.iter().map(|Refused { advert, why }| {
        let address = advert.addresses.first();
        let page = address.and_then(|address| advert.page(*address));
        let address = address.map_or(NOTHING.to_owned(), ToString::to_string);
        row(advert, advert.edge.to_string(), address, page, format!("no: it {why}"))
    });
    let rows: Vec<_> = found.chain(refused).collect();
    table(["EDGE", "SITE", "ADDRESS", "LINK", "GRPC", "ENROL", "PAGE", "PROVEN"], &rows)
}

fn of_found(Found { identity, address, advert }: &Found) -> Value {
    let mut value = of_advert(advert);
    value["edge"] = json!(identity.name.to_string());
    value["address"] = json!(address.to_string());
    value["page"] = json!(advert.page(*address));
    value["proven"] = json!(true);
    value
}

fn of_refused(Refused { advert, why }: &Refused) -> Value {
    let mut value = of_advert(advert);
    value["proven"] = json!(false);
    value["why"] = json!(format!("it {why}"));
    value
}

fn of_advert(advert: &Advert) -> Value {
    let Advert { site, edge, addresses, link, grpc, enrol, web } = advert;
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    json!({
        "edge": edge.to_string(), "site": site.to_string(), "addresses": addresses,
        "link": link, "grpc": grpc, "enrol": enrol, "web": web,
    })
}
