//! The answers in JSON, as `docs/schema/openapi.json` describes them. A test compares both.

use std::collections::BTreeMap;

use serde::Serialize;

/// The edge and the site that it belongs to.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Site {
    pub(super) edge_start: u64,
    pub(super) now_utc_ms: u64,
    pub(super) site: String,
    pub(super) edge: String,
    pub(super) version: &'static str,
    pub(super) uptime_ms: u64,
    pub(super) grpc_port: Option<u16>,
    pub(super) socket: Option<String>,
    pub(super) signed_in: SignedIn,
    pub(super) ready: Health,
    pub(super) cameras: usize,
    pub(super) cameras_connected: usize,
    pub(super) applications: usize,
    pub(super) log_bytes: u64,
    pub(super) store_bytes: Option<u64>,
    pub(super) channels: Vec<Channel>,
    pub(super) certificates: Vec<EndingCertificate>,
}

/// The caller of the request.
#[derive(Clone, Debug, Serialize)]
pub(super) struct SignedIn {
    pub(super) identity: String,
    pub(super) by: &'static str,
    pub(super) until_utc_ms: Option<u64>,
}

/// Whether the edge does its work.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Health {
    pub(super) ok: bool,
    pub(super) failing: Vec<&'static str>,
}

/// A declared channel.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Channel {
    pub(super) name: String,
    pub(super) bits_per_second: Option<f64>,
    pub(super) cameras: Vec<ChannelCamera>,
}

/// A camera on a declared channel.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ChannelCamera {
    pub(super) name: String,
    pub(super) share_frame_bytes: Option<u64>,
}

/// A certificate and its expiry.
#[derive(Clone, Debug, Serialize)]
pub(super) struct EndingCertificate {
    pub(super) of: String,
    pub(super) ends_utc_ms: u64,
}

/// Cameras.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Cameras {
    pub(super) edge_start: u64,
    pub(super) now_utc_ms: u64,
    pub(super) cameras: Vec<Camera>,
}

/// A camera, or a derived stream.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Camera {
    pub(super) name: String,
    pub(super) derived_from: Vec<String>,
    pub(super) publishers: Option<usize>,
    pub(super) connected: bool,
    pub(super) identity: String,
    pub(super) source: Option<Source>,
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) frames_per_second: f64,
    pub(super) received_frames_per_second: f64,
    pub(super) newest: Option<Newest>,
    pub(super) published_bits_per_second: Option<f64>,
    pub(super) crossed_bits_per_second: Option<f64>,
    pub(super) link_bits_per_second: Option<f64>,
    pub(super) round_trip_ms: Option<f64>,
    pub(super) clock_error_ms: Option<f64>,
    pub(super) channel: Option<String>,
    pub(super) share_frame_bytes: Option<u64>,
    pub(super) frames: Frames,
    pub(super) log_bytes: u64,
    pub(super) edge_store: Option<Store>,
    pub(super) camera_store: Option<Store>,
    pub(super) contracts: Vec<Contract>,
    pub(super) picture: Option<String>,
}

/// Whether a camera's source gives frames.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Source {
    pub(super) state: &'static str,
    pub(super) reason: String,
    pub(super) lasts_ms: Option<f64>,
    pub(super) retry_ms: Option<f64>,
}

/// The newest frame of a camera.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Newest {
    pub(super) epoch: u64,
    pub(super) sequence: u64,
    pub(super) captured_utc_ms: u64,
    pub(super) age_ms: Option<f64>,
    pub(super) bytes: usize,
    pub(super) rung: String,
    pub(super) encoding: &'static str,
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) accuracy: Option<f64>,
}

/// What has become of a camera's frames.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Frames {
    pub(super) published: u64,
    pub(super) refused: u64,
    pub(super) received: u64,
    pub(super) late: u64,
    pub(super) cancelled: u64,
    pub(super) refused_at_edge: u64,
    pub(super) not_decoded: u64,
    pub(super) link_bytes: u64,
}

/// A log on a disk.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Store {
    pub(super) bytes: u64,
    pub(super) lost: u64,
    pub(super) degraded: String,
}

/// What a subscription asks for on a camera, and what it gets.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Contract {
    pub(super) subscription: u64,
    pub(super) application: String,
    pub(super) group: Option<String>,
    pub(super) state: Option<&'static str>,
    pub(super) reason: String,
    pub(super) since_utc_ms: Option<u64>,
    pub(super) latency_bound_ms: Option<f64>,
    pub(super) latency_p50_ms: Option<f64>,
    pub(super) latency_p95_ms: Option<f64>,
    pub(super) latency_at: &'static str,
    pub(super) on_time_share: Option<f64>,
    pub(super) on_time_share_wanted: f64,
    pub(super) accuracy_floor: Option<f64>,
    pub(super) accuracy: Option<f64>,
    pub(super) min_fps: f64,
    pub(super) priority: i32,
    pub(super) on_infeasible: &'static str,
    pub(super) frames_per_second: f64,
    pub(super) delivered: u64,
    pub(super) skipped: BTreeMap<&'static str, u64>,
}

/// Subscriptions and groups.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Applications {
    pub(super) edge_start: u64,
    pub(super) now_utc_ms: u64,
    pub(super) applications: Vec<Application>,
    pub(super) groups: Vec<Group>,
}

/// A subscription of an application.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Application {
    pub(super) subscription: u64,
    pub(super) application: String,
    pub(super) group: Option<String>,
    pub(super) pattern: String,
    pub(super) deliver: &'static str,
    pub(super) began_utc_ms: u64,
    pub(super) frames_per_second: f64,
    pub(super) cameras: Vec<OnCamera>,
}

/// The state of a subscription on a camera.
#[derive(Clone, Debug, Serialize)]
pub(super) struct OnCamera {
    pub(super) camera: String,
    pub(super) contract: Contract,
}

/// A group of readers.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Group {
    pub(super) name: String,
    pub(super) owner: String,
    pub(super) pattern: String,
    pub(super) deliver: &'static str,
    pub(super) survives: bool,
    pub(super) degraded: String,
    pub(super) asleep: bool,
    pub(super) members: Vec<Member>,
    pub(super) lanes: Vec<Lane>,
    pub(super) given: u64,
    pub(super) done: u64,
    pub(super) dead: u64,
    pub(super) lost: u64,
    pub(super) open: usize,
}

/// A member of a group.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Member {
    pub(super) application: String,
    pub(super) given: u64,
    pub(super) done: u64,
    pub(super) failed: u64,
    pub(super) open: usize,
}

/// How far a group has come on a camera.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Lane {
    pub(super) camera: String,
    pub(super) open: usize,
    pub(super) lag: Option<u64>,
}

/// The last replies of applications to a camera's frames.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Replies {
    pub(super) edge_start: u64,
    pub(super) now_utc_ms: u64,
    pub(super) replies: Vec<Reply>,
}

/// The last reply of an application.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Reply {
    pub(super) application: String,
    pub(super) epoch: u64,
    pub(super) sequence: u64,
    pub(super) since_ms: f64,
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) found: usize,
    pub(super) detections: Vec<Found>,
}

/// A detected object.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Found {
    pub(super) xyxy: [f32; 4],
    pub(super) score: Option<f32>,
    pub(super) class_id: Option<i32>,
    pub(super) class_name: String,
    pub(super) tracker_id: Option<i64>,
}

/// An event.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Event {
    pub(super) id: String,
    pub(super) utc_ms: u64,
    pub(super) kind: &'static str,
    pub(super) severity: &'static str,
    pub(super) camera: Option<String>,
    pub(super) application: Option<String>,
    pub(super) subscription: Option<u64>,
    pub(super) state: &'static str,
    pub(super) before: Option<&'static str>,
    pub(super) sentence: String,
}

/// An error (RFC 9457).
#[derive(Clone, Debug, Serialize)]
pub(super) struct Problem {
    pub(super) status: u16,
    pub(super) reason: std::borrow::Cow<'static, str>,
    pub(super) detail: String,
}
