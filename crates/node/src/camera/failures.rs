//! Decides which failures of connections are logged as warnings: each once, and none that no longer matters.

/// Remembers the failure that was logged last.
#[derive(Default)]
pub(super) struct Failures {
    last: String,
}

impl Failures {
    /// Whether to log that a connection failed, or that the edge refused it. `is_up`: another connection of the camera is in
    /// use. Attempts overlap, so an attempt from before the edge was reachable may fail after a later attempt has succeeded.
    pub(super) fn is_news(&mut self, reason: &str, is_up: bool) -> bool {
        if is_up || reason == self.last {
            return false;
        }
        reason.clone_into(&mut self.last);
        true
    }

    /// Notes that the camera has connected, or has lost its connection: the next failure is news.
    pub(super) fn handle_link(&mut self) {
        self.last.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A camera starts before its edge. Attempts from this time end after it has connected.
    #[test]
    fn an_attempt_that_was_overtaken_is_no_news() {
        let (mut failures, reason) = (Failures::default(), "no answer from edge.local:7601 within 2s");
        assert!(failures.is_news(reason, false));
        assert!(!failures.is_news(reason, false), "told twice");
        failures.handle_link();
        assert!(!failures.is_news(reason, true), "told although the camera is connected");
        failures.handle_link();
        assert!(failures.is_news(reason, false), "the edge is gone again, and nobody is told");
    }
}
