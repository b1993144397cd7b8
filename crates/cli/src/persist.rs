//! Options of `mez camera` and `mez edge` for frames on disk.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use mez_core::store::Durability;
use mez_node::persist::PersistOptions;
use mez_node::persist::keys::find_store_keys;

use crate::config::Contradictions;
use crate::failure::Failure;
use crate::text::{parse_bytes, parse_duration};

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Frames on disk")]
pub(crate) struct PersistArgs {
    /// Folder of a store. Frames are also written there, encrypted, and survive a restart of the broker [default: frames are only in memory]
    #[arg(long, value_name = "DIR", env = "MEZ_STORE")]
    store: Option<PathBuf>,
    /// File with the store's keys, which `mez store key` makes [default: the keys in the variable MEZ_STORE_KEY itself, else the systemd credential mez-store-key, else store.key in the folder of keys]
    #[arg(long, value_name = "FILE", env = "MEZ_STORE_KEY_FILE")]
    store_key: Option<PathBuf>,
    /// Disk space for each camera. If it is full, the oldest frames are dropped
    #[arg(long, value_name = "SIZE", default_value = "4GiB", value_parser = parse_disk_bytes, env = "MEZ_STORE_BYTES")]
    store_bytes: u64,
    /// Maximum age of frames on disk, such as 72h [default: frames stay until their space is needed]
    #[arg(long, value_name = "TIME", value_parser = parse_age, env = "MEZ_STORE_AGE")]
    store_age: Option<Duration>,
    /// How much a power cut may lose: half a minute (async), one second (group), or a fifth of a second (sync)
    #[arg(long, value_enum, default_value_t = DurabilityArg::Group, env = "MEZ_DURABILITY")]
    durability: DurabilityArg,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DurabilityArg {
    Async,
    Group,
    Sync,
}

impl PersistArgs {
    /// The options with their keys. `None` if no folder is given.
    pub(crate) fn options(&self, keys: Option<&std::path::Path>) -> Result<Option<PersistOptions>, Failure> {
        let Some(folder) = self.store.clone() else { return Ok(None) };
        let ring = find_store_keys(self.store_key.as_deref(), keys)?;
        Ok(Some(PersistOptions {
            durability: match self.durability {
                DurabilityArg::Async => Durability::Async,
                DurabilityArg::Group => Durability::Group,
                DurabilityArg::Sync => Durability::Sync,
            },
            disk_bytes_max: self.store_bytes,
            disk_age_max: self.store_age,
            ..PersistOptions::new(folder, ring)
        }))
    }
}

impl PersistArgs {
    /// Whether frames are kept on disk.
    pub(crate) fn is_on(&self) -> bool {
        self.store.is_some()
    }

    /// Finds settings of a store for which no folder is set. `given` ignores variables, since they may be set for all brokers of a host.
    pub(crate) fn contradictions(&self, given: &dyn Fn(&str) -> bool) -> Contradictions {
        const OF_STORE: [&str; 4] = ["store_key", "store_bytes", "store_age", "durability"];
        let idle = OF_STORE.into_iter().filter(|key| !self.is_on() && given(key));
        let what = "this setting has no effect, because frames are kept only in memory; name a folder with store (--store), or leave this setting out";
        idle.map(|key| (key, what.into())).collect()
    }
}

/// Parses the disk space of a camera. A log needs room for a few segments at least.
fn parse_disk_bytes(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        bytes if bytes < 16 << 20 => {
            Err("a camera's log on disk needs at least 16MiB; write 16MiB or more".into())
        }
        bytes => Ok(bytes),
    }
}

fn parse_age(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        age if age < Duration::from_secs(60) => {
            Err("frames on disk are kept for at least a minute; write 1m or more".into())
        }
        age => Ok(age),
    }
}
