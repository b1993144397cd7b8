//! `mez edge open`: makes a link that signs a browser in to the page of this host's edge.

use std::io::{self, IsTerminal, Write};

use clap::Args;
use mez_node::clock::wall_now;
use mez_node::runtime::block_on;
use qrcode::QrCode;
use qrcode::render::unicode::Dense1x2;

use crate::connect::ConnectArgs;
use crate::failure::Failure;

/// Make a link that signs a browser in to the page of the edge on this host, once
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mez edge open                      as the user that the edge runs as, who may see everything
  mez edge open --as app/wall        as an application, with its grants, for example for a screen on the wall
  xdg-open \"$(mez edge open)\"       opens the link at once

The link works for five minutes and for one browser. The browser stays signed in for at most 12 hours. Anybody who has the link can use it, so keep it \
secret, like a password. The browser does not know the site's authority, and warns. Compare the fingerprint of the certificate that the browser shows with \
the one that is printed here. The edge must run with the page: `mez edge --web`.")]
pub(crate) struct OpenArgs {
    /// Sign in as this application, with its grants, instead of this user
    #[arg(long = "as", value_name = "app/NAME")]
    identity: Option<String>,
    /// Do not print the QR code
    #[arg(long)]
    no_qr: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

pub(crate) fn run(args: OpenArgs) -> Result<(), Failure> {
    let link = block_on(async {
        let edge = args.connect.connect("mez edge open").await?;
        Ok::<_, Failure>(edge.open_page(args.identity.as_deref()).await?)
    })??;
    // Explanations are only for terminals. A program gets only the link.
    let (mut out, for_people) = (io::stdout().lock(), io::stdout().is_terminal());
    if for_people && !args.no_qr {
        let code = QrCode::new(&link.link)?;
        // Phone cameras expect dark on light, but terminals are mostly light on dark.
        let code = code.render::<Dense1x2>().dark_color(Dense1x2::Light).light_color(Dense1x2::Dark).build();
        writeln!(out, "{code}\n")?;
    }
    writeln!(out, "{}", link.link)?;
    if for_people {
        let minutes = link.link_ends.saturating_since(wall_now()).as_secs().div_ceil(60);
        let hours = link.session_ends.saturating_since(wall_now()).as_secs() / 3600;
        let fingerprint: Vec<String> =
            link.certificate_sha256.iter().map(|byte| format!("{byte:02X}")).collect();
        writeln!(
            out,
            "\nthe link works for {minutes} minutes, in one browser, which then stays signed in as {} for {hours} hours",
            link.identity
        )?;
        writeln!(
            out,
            "SHA-256 fingerprint of the certificate that the browser shows: {}",
            fingerprint.join(":")
        )?;
    }
    Ok(())
}
