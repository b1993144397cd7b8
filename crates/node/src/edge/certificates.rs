//! Knows when the certificates of members expire: certificates that members showed to this edge or got through it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use super::lock;

/// The expiry of each member's newest certificate: one entry per member that connected since the edge started. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct MemberCertificates(Arc<Mutex<BTreeMap<String, SystemTime>>>);

impl MemberCertificates {
    /// Notes the expiry of a certificate that a member showed or got. The last note counts: the member uses this certificate now or will soon.
    pub(super) fn note(&self, identity: String, ends: SystemTime) {
        lock(&self.0).insert(identity, ends);
    }

    /// When a member's certificate expires. `None`: no certificate was seen since the edge started.
    pub(super) fn ends(&self, identity: &str) -> Option<SystemTime> {
        lock(&self.0).get(identity).copied()
    }
}
