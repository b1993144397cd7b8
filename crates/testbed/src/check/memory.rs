//! Checks bounds: of logs, of what is held for readers, of connections, and of those who wait at a door. It also checks that honest
//! clients get in.

use std::time::Duration;

use super::Checks;
use crate::time::{Moment, secs};

/// The most dials that one process may have under way.
const DIALS_MAX: usize = 8;
/// The most connections of one process that may be open at the camera.
const CONNECTIONS_MAX: usize = 8;
/// The most connections of one link that may be open at the edge, those of killed processes included.
const EDGE_CONNECTIONS_MAX: usize = 48;
/// The longest time until a visitor gets in, whatever attackers do.
const ADMITTED_WITHIN: Duration = secs(2);

/// What a camera's process and its link hold.
pub(crate) struct CameraHolds {
    /// Bytes in its log and the log's budget, and open connections, if it runs.
    pub(crate) process: Option<(u64, u64, usize)>,
    /// Processes on its link, and their dials.
    pub(crate) processes: usize,
    pub(crate) dials: usize,
    /// Connections of its link that are open at the edge.
    pub(crate) edge_connections: usize,
}

/// Who is at an edge's door.
pub(crate) struct DoorHolds {
    /// Connections that have not proved who they are, and their bound.
    pub(crate) strangers: (usize, usize),
    /// Those that have, and have not said what they want; and their bound.
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

    /// `excess` is of a log that has let go of more than readers may hold: how much they hold, and how much they may.
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

    /// A visitor tries to get in since then, and was turned away so often.
    pub(crate) fn watch_visitor(&mut self, visitor: usize, since: Moment, turned_away: u64) {
        self.expect(self.now.since(since) <= ADMITTED_WITHIN, "admitted", || {
            format!(
                "visitor {visitor} tries to get in since {since}, and was turned away {turned_away} times"
            )
        });
    }
}
