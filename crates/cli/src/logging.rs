//! Options of log lines, which all commands have, and their output.

use std::io::{self, IsTerminal};
use std::sync::OnceLock;

use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;

use crate::EVERYWHERE;
use crate::live::LogLines;

/// How a command logs.
#[derive(Clone, Debug, Args)]
pub(crate) struct LogArgs {
    /// Format of log lines: text for people, JSON for programs
    #[arg(long, global = true, help_heading = EVERYWHERE, value_enum, default_value_t = LogFormat::Text, env = "MEZ_LOG_FORMAT")]
    log_format: LogFormat,
    /// Level of log lines: error, warn, info, debug, or a filter such as mez_node=debug
    #[arg(long, global = true, help_heading = EVERYWHERE, value_name = "FILTER", default_value = "info", value_parser = parse_filter, env = "MEZ_LOG")]
    pub(crate) log: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

fn parse_filter(text: &str) -> Result<String, String> {
    // `EnvFilter` would take an unknown word for a module name, and hide all other modules.
    let is_known =
        |word: &str| LEVELS.contains(&word.to_ascii_lowercase().as_str()) || word.starts_with("mez");
    let words = text.split(',').map(str::trim).filter(|word| !word.contains(['=', '[', ':']));
    if let Some(word) = words.filter(|word| !word.is_empty()).find(|word| !is_known(word)) {
        return Err(format!(
            "{word:?} is not a log level; write {}, or a filter such as mez_node=debug",
            LEVELS.join(", ")
        ));
    }
    let parsed = EnvFilter::try_new(text).map_err(|error| format!("{error}; try info, or mez_node=debug"));
    parsed.map(|_| text.to_owned())
}

/// The levels, from none to all.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Changes the filter of log lines. Returns false on failure.
type SetFilter = Box<dyn Fn(EnvFilter) -> bool + Send + Sync>;

static SET_FILTER: OnceLock<SetFilter> = OnceLock::new();

impl LogArgs {
    /// Writes log lines to standard error, so that standard output contains only results.
    pub(crate) fn start(&self) {
        let builder = tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::new(&self.log))
            .with_writer(|| LogLines)
            .with_target(false);
        // A second call in a process, from Python, keeps the settings of the first.
        let set: SetFilter = match self.log_format {
            LogFormat::Text => {
                let builder = builder.with_ansi(io::stderr().is_terminal()).with_filter_reloading();
                let handle = builder.reload_handle();
                let _ = builder.try_init();
                Box::new(move |filter| handle.reload(filter).is_ok())
            }
            LogFormat::Json => {
                let builder = builder.json().with_filter_reloading();
                let handle = builder.reload_handle();
                let _ = builder.try_init();
                Box::new(move |filter| handle.reload(filter).is_ok())
            }
        };
        let _ = SET_FILTER.set(set);
    }

    /// Changes the level of log lines in a running process.
    pub(crate) fn change(&self) {
        let changed = SET_FILTER.get().is_some_and(|set| set(EnvFilter::new(&self.log)));
        if !changed {
            tracing::error!("the log level could not be changed");
        }
    }
}
