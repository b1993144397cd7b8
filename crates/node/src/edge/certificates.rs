//! Knows when the certificates of members end, as far as they were shown to this edge or got from it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use super::lock;

/// When the newest certificate of each member ends. Cheap to clone.
///
/// As many entries as there are members of the site that have connected since the edge's start.
#[derive(Clone, Debug, Default)]
pub(super) struct MemberCertificates(Arc<Mutex<BTreeMap<String, SystemTime>>>);

impl MemberCertificates {
    /// A member has shown a certificate, or got one. The last one counts: it is the one that the member uses, or will use.
    pub(super) fn note(&self, identity: String, ends: SystemTime) {
        lock(&self.0).insert(identity, ends);
    }

    /// When a member's certificate ends. `None`: none was seen since the edge's start.
    pub(super) fn ends(&self, identity: &str) -> Option<SystemTime> {
        lock(&self.0).get(identity).copied()
    }
}
