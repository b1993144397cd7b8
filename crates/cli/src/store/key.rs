//! `mez store key`: makes the key with which the frames of a store are encrypted.

use std::path::PathBuf;

use clap::Args;
use mez_node::identity::KeyFolder;
use mez_node::persist::keys::{STORE_KEY_FILE, create_store_key, rotate_store_key};

use crate::failure::Failure;

/// Make the key for the stores on this host, or add a newer key
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mez store key                 once, before the first broker starts with --store
  mez store key --rotate        add a new key, which brokers use from their next start; old frames stay readable

Anybody who has the file can read the frames. Without the file, nobody can read them. Keep a copy in a safe place.")]
pub(super) struct KeyArgs {
    /// File for the store's keys [default: store.key in the folder of keys]
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Add a newer key to the file
    #[arg(long)]
    rotate: bool,
    /// Folder with the keys of this host [default: $MEZ_KEYS, else ~/.config/mez/keys]
    #[arg(long, value_name = "DIR")]
    keys: Option<PathBuf>,
}

pub(super) fn run(args: KeyArgs) -> Result<(), Failure> {
    let file = match args.file {
        Some(file) => file,
        None => KeyFolder::location(args.keys.as_deref())?.join(STORE_KEY_FILE),
    };
    let made = if args.rotate { rotate_store_key(&file)? } else { create_store_key(&file)? };
    let file = file.display();
    if args.rotate {
        println!(
            "Added the key {made} to {file}. Brokers encrypt with it from their next start. Older frames stay \
             readable for as long as the older keys are in the file."
        );
    } else {
        println!(
            "Created the key {made} for stores on this host's disk, in {file}.
Anybody who has the file can read the frames. Without the file, nobody can read them. Keep a copy in a safe place.
Brokers keep frames with `mez camera … --store DIR` and `mez edge --store DIR`."
        );
    }
    Ok(())
}
