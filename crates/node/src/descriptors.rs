//! Raises this process's limit of open files and connections.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The limit that Mez requests. It suffices for the maximum of connections at every port.
const WANTED: u64 = 4096;

/// The current limit.
pub fn max() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Raises the limit up to what the system allows. The initial limit is usually 1,024, and many more are allowed.
pub fn raise() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = WANTED.min(maximum.unwrap_or(u64::MAX));
    if current.is_some_and(|current| current < wanted) {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
    }
    if max() < WANTED {
        tracing::info!(
            descriptors = max(),
            "the limit of open files is low, so fewer clients can connect at once; raise the limit: ulimit -n {WANTED}"
        );
    }
}
