//! `mez doctor --bundle FILE.tar.gz`: collects logs, configuration and metrics for support, without secrets.

mod archive;
mod collect;
mod redact;

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use self::redact::Secrets;
use super::finding::Finding;
use super::subject::Subject;
use crate::failure::Failure;

/// Writes the bundle to a new file that only its owner may read. Does not overwrite a file.
pub(super) fn write(
    subject: &Subject,
    findings: &[Finding],
    include: &[PathBuf],
    file: &Path,
) -> Result<usize, Failure> {
    let secrets = Secrets::of(subject);
    let texts: Vec<(String, String)> = collect::all(subject, findings, include)
        .into_iter()
        .map(|(name, text)| (secrets.redact(&name), secrets.redact(&text)))
        .collect();
    let cannot = |error: io::Error| {
        Failure::text(format!(
            "cannot write the bundle {}: {error}; name a new file in a folder where you may write",
            file.display()
        ))
    };
    let packed = archive::pack(&texts).map_err(cannot)?;
    let mut out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file).map_err(cannot)?;
    out.write_all(&packed).and_then(|()| out.sync_all()).map_err(cannot)?;
    Ok(texts.len())
}
