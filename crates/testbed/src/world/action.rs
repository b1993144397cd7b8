//! Lists the actions on a running world: faults, their ends, and changes of what is wanted.

use super::spec::{ApplicationId, CameraId, EdgeId, RightsId, TakeSpec};
use crate::disk::Faults;

/// What a camera host remembers of its counter of starts at a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// All starts.
    Kept,
    /// All but the last write, so the last epoch is used again.
    LastWriteLost,
    /// Nothing: the disk was replaced.
    Lost,
}

/// A host with clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// A camera's host.
    Camera(CameraId),
    /// An edge's host.
    Edge(EdgeId),
}

/// A member of a site, with a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Member {
    /// A camera's host. A thief of its identity has the certificate that the camera had when the thief was created.
    Camera(CameraId),
    /// An application.
    Application(ApplicationId),
    /// An edge.
    Edge(EdgeId),
}

/// What a deny list names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The serial number of the member's present certificate.
    Serial,
    /// The member's name: all certificates issued to the member so far.
    Name,
}

/// What the operator of a site does on the host of the first edge, which keeps the site's authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SiteAction {
    /// Revokes a member. The first edge reads the list within a second.
    Revoke(Member, By),
    /// Takes a revocation back.
    Unrevoke(Member, By),
    /// Issues another certificate to a member. A camera's or an edge's process restarts with it, and an application subscribes again.
    Enrol(Member),
    /// Copies the deny list from before so many changes into the edge's key folder.
    Copy(EdgeId, usize),
}

/// A fault, its end, or a change of what is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The camera's link is cut: nothing passes, and no connection is closed.
    Cut(CameraId),
    /// The link carries again.
    Restore(CameraId),
    /// The link carries this many bits per second from now on. On a shared medium, the rate applies to all
    /// links of a queue together, or to the camera's Wi-Fi station.
    Rate(CameraId, u64),
    /// The link carries its specified rate divided by this number. 1 is the full rate.
    Slow(CameraId, u64),
    /// All connections of the camera's link end, and both sides know it.
    Break(CameraId),
    /// The camera broker's process is killed, with its log.
    KillCamera(CameraId),
    /// The camera broker's process starts.
    StartCamera(CameraId, Counter),
    /// The edge broker's process is killed, with its replica logs.
    KillEdge(EdgeId),
    /// The edge broker's process starts. Its applications subscribe again.
    StartEdge(EdgeId),
    /// The wall clock is stepped forwards by this many seconds, or backwards if negative.
    StepWall(Host, i64),
    /// The host's processes are frozen, as on a host without a free processor. Incoming data waits.
    Freeze(Host),
    /// The host's processes continue.
    Thaw(Host),
    /// The host loses power. Its process ends, and any part of the unsynced data may be left on its disk.
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
    /// The camera's source is lost, and the broker is told. The camera publishes nothing.
    LoseSource(CameraId),
    /// The camera publishes again.
    Publish(CameraId),
    /// The camera's publisher takes answers like this from now on, or none.
    TakeAnswers(CameraId, Option<TakeSpec>),
    /// A thief of a camera's identity ([`World::thief`](super::World::thief)) starts and dials with this epoch.
    Claim(CameraId, u64),
    /// The thief closes its connections and stops.
    Leave(CameraId),
    /// The edge is killed, and starts with a state file that contains an epoch of the camera that no start
    /// can follow. An edge with bounds never writes such a state.
    Poison(CameraId),
    /// The operator of the edge resets the camera.
    Reset(CameraId),
    /// The edge's rights are replaced by these. Its operator has changed or revoked rights.
    Rights(EdgeId, RightsId),
    /// The membership of the site changes.
    Site(SiteAction),
    /// Of its two edges, the camera and all others on its link now reach this one only. Nothing happens while one of the hosts is frozen.
    Move(CameraId, EdgeId),
    /// Every fault ends: links carry, all processes but rivals run, applications subscribe and take frames.
    /// Revoked members stay revoked, and a revoked thief continues.
    Heal,
}
