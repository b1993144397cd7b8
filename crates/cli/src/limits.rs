//! Options of `mez camera` and `mez edge` that limit applications.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use mez_node::api::{ApiLimits, ReaderMemoryLimits};

use crate::text::{parse_bytes, parse_count, parse_period};

/// The limits, with the defaults of [`ApiLimits`].
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Limits of applications (docs/limits.md)")]
pub(crate) struct LimitArgs {
    /// Maximum number of connections of applications, all kinds together
    #[arg(long, value_name = "N", default_value_t = ApiLimits::default().connections_max, value_parser = parse_count, env = "MEZ_CONNECTIONS_MAX")]
    connections_max: usize,
    /// Maximum number of connections of one principal (a member of the site, or a user of this host)
    #[arg(long, value_name = "N", default_value_t = ApiLimits::default().connections_per_principal_max, value_parser = parse_count, env = "MEZ_CONNECTIONS_PER_PRINCIPAL_MAX")]
    connections_per_principal_max: usize,
    /// Maximum number of subscriptions
    #[arg(long, value_name = "N", default_value_t = ApiLimits::default().subscriptions_max, value_parser = parse_count, env = "MEZ_SUBSCRIPTIONS_MAX")]
    subscriptions_max: usize,
    /// Maximum number of subscriptions of one principal
    #[arg(long, value_name = "N", default_value_t = ApiLimits::default().subscriptions_per_principal_max, value_parser = parse_count, env = "MEZ_SUBSCRIPTIONS_PER_PRINCIPAL_MAX")]
    subscriptions_per_principal_max: usize,
    /// Maximum number of simultaneous calls on one gRPC connection
    #[arg(long, value_name = "N", default_value_t = ApiLimits::default().calls_per_connection_max, value_parser = parse_count, env = "MEZ_CALLS_PER_CONNECTION_MAX")]
    calls_per_connection_max: usize,
    /// Memory for frames that applications have not taken completely, in addition to the logs
    #[arg(long, value_name = "SIZE", default_value_t = Bytes(ReaderMemoryLimits::default().bytes_max), env = "MEZ_UNREAD_BYTES_MAX")]
    unread_bytes_max: Bytes,
    /// The same for all applications of one principal together
    #[arg(long, value_name = "SIZE", default_value_t = Bytes(ReaderMemoryLimits::default().principal_bytes_max), env = "MEZ_UNREAD_BYTES_PER_PRINCIPAL_MAX")]
    unread_bytes_per_principal_max: Bytes,
    /// If an application makes no progress for this long, its memory for frames is given to another application that needs it
    #[arg(long, value_name = "TIME", default_value_t = Seconds(ReaderMemoryLimits::default().patience), env = "MEZ_UNREAD_PATIENCE")]
    unread_patience: Seconds,
    /// Bytes of frames of the past that one principal may read per second; after a pause, the bytes of one more second. `off`: no limit
    #[arg(long, value_name = "SIZE|off", default_value_t = Pace(None), env = "MEZ_PAST_BYTES_PER_SECOND")]
    past_bytes_per_second: Pace,
}

impl LimitArgs {
    /// The limits in the form of the library.
    pub(crate) fn limits(&self) -> ApiLimits {
        ApiLimits {
            connections_max: self.connections_max,
            connections_per_principal_max: self.connections_per_principal_max,
            subscriptions_max: self.subscriptions_max,
            subscriptions_per_principal_max: self.subscriptions_per_principal_max,
            calls_per_connection_max: self.calls_per_connection_max,
            reader_memory: ReaderMemoryLimits {
                bytes_max: self.unread_bytes_max.0,
                principal_bytes_max: self.unread_bytes_per_principal_max.0,
                patience: self.unread_patience.0,
            },
            past_bytes_per_second: self.past_bytes_per_second.0,
            ..ApiLimits::default()
        }
    }

    pub(crate) fn take_connections(&mut self, new: &Self) {
        self.connections_per_principal_max = new.connections_per_principal_max;
    }

    pub(crate) fn take_subscriptions(&mut self, new: &Self) {
        self.subscriptions_max = new.subscriptions_max;
    }

    pub(crate) fn take_subscriptions_of_one(&mut self, new: &Self) {
        self.subscriptions_per_principal_max = new.subscriptions_per_principal_max;
    }

    pub(crate) fn take_unread(&mut self, new: &Self) {
        self.unread_bytes_max = new.unread_bytes_max;
    }

    pub(crate) fn take_unread_of_one(&mut self, new: &Self) {
        self.unread_bytes_per_principal_max = new.unread_bytes_per_principal_max;
    }

    pub(crate) fn take_patience(&mut self, new: &Self) {
        self.unread_patience = new.unread_patience;
    }

    pub(crate) fn take_past(&mut self, new: &Self) {
        self.past_bytes_per_second = new.past_bytes_per_second;
    }

    /// Finds limits that contradict each other. `given` returns whether a limit was set by the user.
    pub(crate) fn faults(&self, given: &dyn Fn(&str) -> bool) -> Vec<(&'static str, String)> {
        let pairs = [
            (
                ("connections_per_principal_max", self.connections_per_principal_max as u64),
                ("connections_max", self.connections_max as u64),
            ),
            (
                ("subscriptions_per_principal_max", self.subscriptions_per_principal_max as u64),
                ("subscriptions_max", self.subscriptions_max as u64),
            ),
            (
                ("unread_bytes_per_principal_max", self.unread_bytes_per_principal_max.0),
                ("unread_bytes_max", self.unread_bytes_max.0),
            ),
        ];
        // A limit that was not set by the user merely has no effect.
        let contradict = pairs
            .into_iter()
            .filter(|((one, one_has), (all, all_have))| one_has > all_have && given(one) && given(all));
        contradict
            .map(|((one, _), (all, _))| {
                (
                    one,
                    format!("the limit of one principal may not be larger than the limit of all together ({all}); write a smaller value"),
                )
            })
            .collect()
    }
}

/// A size in bytes.
#[derive(Clone, Copy, Debug)]
struct Bytes(u64);

impl FromStr for Bytes {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        parse_bytes(text).map(Self)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes.is_multiple_of(1 << 20) => write!(f, "{}MiB", bytes >> 20),
            bytes => write!(f, "{bytes}"),
        }
    }
}

/// A time.
#[derive(Clone, Copy, Debug)]
struct Seconds(Duration);

impl FromStr for Seconds {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        parse_period(text).map(Self)
    }
}

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}s", self.0.as_secs_f64())
    }
}

/// Bytes per second, or no limit.
#[derive(Clone, Copy, Debug)]
struct Pace(Option<u64>);

impl FromStr for Pace {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self(None)),
            _ => parse_bytes(text)
                .map(|bytes| Self(Some(bytes)))
                .map_err(|error| format!("{error}; or off for no limit")),
        }
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(bytes) => Bytes(bytes).fmt(f),
            None => f.write_str("off"),
        }
    }
}
