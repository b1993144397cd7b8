//! Raises the limit of open files and connections of this process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// File descriptors that Mez asks the system for. With this many, every port can have as many connections as it allows.
const WANTED: u64 = 4096;

/// How many there may be.
pub fn max() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Raises the limit as far as the system allows. It usually starts at 1,024, and many more are allowed.
pub fn raise() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = WANTED.min(maximum.unwrap_or(u64::MAX));
    if current.is_some_and(|current| current < wanted) {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
    }
    if max() < WANTED {
        tracing::info!(
            descriptors = max(),
            "the limit of open files is low, so fewer clients can connect at once; raise it: ulimit -n {WANTED}"
        );
    }
}
