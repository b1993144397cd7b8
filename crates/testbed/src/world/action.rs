//! Lists what can be done to a running world: faults, their ends, and changes of what is asked.

use super::spec::{ApplicationId, CameraId, EdgeId, RightsId};
use crate::disk::Faults;

/// What a camera host remembers of its epoch counter at a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// All of it.
    Kept,
    /// All but the last write, so that the last epoch comes again.
    LastWriteLost,
    /// Nothing: the disk was replaced.
    Lost,
}

/// A host with clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// A camera's.
    Camera(CameraId),
    /// An edge's.
    Edge(EdgeId),
}

/// A member of a site, with a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Member {
    /// A camera's host. A thief of its identity has the certificate that it had when the thief was made.
    Camera(CameraId),
    /// An application.
    Application(ApplicationId),
    /// An edge.
    Edge(EdgeId),
}

/// What stands on a deny list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The serial number of the certificate that the member has now.
    Serial,
    /// The member's name: all certificates that it was given until then.
    Name,
}

/// What the operator of a site does where the site was made, beside the first edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SiteAction {
    /// A member is revoked. The first edge reads that within a second.
    Revoke(Member, By),
    /// It was a mistake.
    Unrevoke(Member, By),
    /// A member gets another certificate. A camera's and an edge's process start anew with it, an application subscribes again.
    Enrol(Member),
    /// The deny list of so many changes ago is copied into the edge's folder of keys.
    Copy(EdgeId, usize),
}

/// A fault, its end, or a change of what is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing passes on the camera's link, and no connection is closed.
    Cut(CameraId),
    /// The link carries again.
    Restore(CameraId),
    /// The link carries this many bits per second from now on. If the link shares a medium, the rate holds for all links of a queue
    /// together, or for the camera's station on Wi-Fi.
    Rate(CameraId, u64),
    /// The link carries its specified rate divided by this. 1 is all of it.
    Slow(CameraId, u64),
    /// All connections of the camera's link end, and both sides know.
    Break(CameraId),
    /// The camera broker's process is killed, with its log.
    KillCamera(CameraId),
    /// The camera broker's process starts.
    StartCamera(CameraId, Counter),
    /// The edge broker's process is killed, with its replica logs.
    KillEdge(EdgeId),
    /// The edge broker's process starts. Its applications subscribe again.
    StartEdge(EdgeId),
    /// The wall clock is set forwards by this many seconds, or backwards if negative.
    StepWall(Host, i64),
    /// The host's processes stand still, as on a host without a free processor. What comes for them waits.
    Freeze(Host),
    /// The host's processes continue.
    Thaw(Host),
    /// The host loses its power. Its process is gone, and anything may be left of what was not synced to its disk.
    CutPower(Host),
    /// The host's disk has this fault from now on, or none.
    Disk(Host, Faults),
    /// The application takes no more frames.
    Stall(ApplicationId),
    /// The application takes frames again.
    Resume(ApplicationId),
    /// The application subscribes.
    Subscribe(ApplicationId),
    /// The application unsubscribes.
    Unsubscribe(ApplicationId),
    /// The camera stops publishing.
    Silence(CameraId),
    /// What the camera gets its frames from is gone, and its broker is told. It publishes nothing.
    LoseSource(CameraId),
    /// The camera publishes again.
    Publish(CameraId),
    /// A thief of a camera's identity ([`World::thief`](super::World::thief)) begins to dial, with this epoch.
    Claim(CameraId, u64),
    /// The thief ends its connections, and is gone.
    Leave(CameraId),
    /// The edge is killed, and starts with a state file that holds an epoch of the camera that no other can follow. No edge with bounds writes such a
    /// state.
    Poison(CameraId),
    /// The operator of the edge resets the camera.
    Reset(CameraId),
    /// The edge's rights are these from now on. Its operator has changed them, or has revoked somebody's.
    Rights(EdgeId, RightsId),
    /// Something changes in who is a member of the site.
    Site(SiteAction),
    /// Of its edges the camera, with all who share its link, reaches this one from now on, and no other. Nothing happens while one of the hosts
    /// stands still.
    Move(CameraId, EdgeId),
    /// Every fault ends: links carry, processes run but for rivals, applications subscribe and take frames. Whoever was revoked
    /// stays so; a thief that was revoked stays.
    Heal,
}
