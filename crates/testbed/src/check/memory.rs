//! Checks bounds: of logs, memory held for readers, connections, and clients at a door. Also checks that honest clients are admitted.

use std::time::Duration;

use super::Checks;
use crate::time::{Moment, secs};

/// The most dials in progress of one process.
const DIALS_MAX: usize = 8;
/// The most open connections of one process at the camera.
const CONNECTIONS_MAX: usize = 8;
/// The most open connections of one link at the edge, including those of killed processes.
const EDGE_CONNECTIONS_MAX: usize = 48;
/// The longest time until a visitor is admitted, whatever attackers do.
const ADMITTED_WITHIN: Duration = secs(2);

/// What a camera's process and its link hold.
pub(crate) struct CameraHolds {
    /// For a running process: bytes in its log, the log's budget, and open connections.
    pub(crate) process: Option<(u64, u64, usize)>,
    /// How many processes are on the link, and their dials.
    pub(crate) processes: usize,
    pub(crate) dials: usize,
    /// Open connections of the link at the edge.
    pub(crate) edge_connections: usize,
}

/// What an edge's door holds.
pub(crate) struct DoorHolds {
    /// Connections that are not authenticated, and their bound.
    pub(crate) strangers: (usize, usize),
    /// Authenticated connections that have not sent a request, and their bound.
    pub(crate) prefaces: (usize, usize),
    /// Entries in the driver's table.
    pub(crate) held: usize,
}

impl Checks {
    pub(crate) fn watch_camera_memory(&mut self, camera: usize, holds: &CameraHolds) {
        if let Some((bytes, bytes_max, connections)) = holds.process {
            self.expect(bytes <= bytes_max, "memory", || {
                format!("the log of camera {camera} holds {bytes} of {bytes_max} bytes")
            });
            self.expect(connections <= CONNECTIONS_MAX, "memory", || {
                format!("camera {camera} has {connections} connections open")
            });
        }
        let CameraHolds { processes, dials, edge_connections, .. } = *holds;
        self.expect(dials <= DIALS_MAX * processes, "memory", || format!("{dials} dials on one link"));
        self.expect(edge_connections <= EDGE_CONNECTIONS_MAX, "memory", || {
            format!("{edge_connections} connections of camera {camera} are open at the edge")
        });
    }

    /// `excess` concerns a log of which readers hold more evicted bytes than they may: how many they hold, and how many they may.
    pub(crate) fn watch_edge_memory(
        &mut self,
        edge: usize,
        (log_bytes, log_bytes_max): (u64, u64),
        excess: Option<(u64, u64)>,
    ) {
        if let Some((bytes, bytes_max)) = excess {
            let text = format!(
                "{bytes} bytes that a log of edge {edge} let go of are held for readers, of {bytes_max}"
            );
            self.fail("memory", text);
        }
        self.expect(log_bytes <= log_bytes_max, "memory", || {
            format!("the replica logs of edge {edge} hold {log_bytes} of {log_bytes_max} bytes")
        });
    }

    pub(crate) fn watch_door(&mut self, edge: usize, holds: &DoorHolds) {
        let DoorHolds { strangers: (strangers, strangers_max), prefaces: (prefaces, prefaces_max), held } =
            *holds;
        let within =
            strangers <= strangers_max && prefaces <= prefaces_max && held <= strangers_max + prefaces_max;
        self.expect(within, "memory", || {
            format!(
                "at the door of edge {edge} wait {strangers} strangers and {prefaces} others; {held} are held"
            )
        });
    }

    /// Checks a visitor that has tried to get in since `since`, and was turned away so often.
    pub(crate) fn watch_visitor(&mut self, visitor: usize, since: Moment, turned_away: u64) {
        self.expect(self.now.since(since) <= ADMITTED_WITHIN, "admitted", || {
            format!(
                "visitor {visitor} tries to get in since {since}, and was turned away {turned_away} times"
            )
        });
    }
}
