//! Fills in answers with what was seen of the cameras that the caller may see.

use std::collections::BTreeMap;
use std::time::Duration;

use mez_core::contract::OnInfeasible;
use mez_core::frame::SkipCounts;
use mez_core::name::CameraName;
use mez_core::rights::{Bearer, Granted};
use mez_core::source::SourceStanding;
use mez_core::subscription::Deliver;
use mez_core::units::{Instant, Timestamp};
use mez_core::wire::Share;

use super::answers::{
    Application, Applications, Camera, Cameras, Channel, ChannelCamera, Contract, EndingCertificate, Found,
    Frames, Group, Lane, Member, Newest, OnCamera, Replies, Reply, SignedIn, Site, Source, Store,
};
use super::certificates::Ending;
use super::events::sees_groups_of;
use super::lags::lag;
use super::watcher::{Edge, Look, Looked};
use crate::api::SOFTWARE;
use crate::clock::{monotonic_now, wall_now};
use crate::edge::{AccountNow, GivenNow, GroupReport, LastReply, NewestFrame};
use crate::reply::Detection;

/// Milliseconds since 1970.
pub(super) fn utc_ms(moment: Timestamp) -> u64 {
    moment.as_nanos() / 1_000_000
}

/// A duration in milliseconds, with a resolution of one microsecond.
fn ms(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1e3
}

/// The edge and its site.
pub(super) fn site(look: &Look, edge: &Edge, granted: &Granted, signed_in: SignedIn) -> Site {
    let cameras = || look.cameras.iter().filter(|looked| granted.allows(looked.name()));
    let identity = edge.credentials.identity();
    let stores: Vec<u64> =
        cameras().filter_map(|looked| looked.store.as_ref()).map(|store| store.disk_bytes).collect();
    Site {
        edge_start: utc_ms(edge.started_utc),
        now_utc_ms: utc_ms(look.at_utc),
        site: identity.site.to_string(),
        edge: identity.name.to_string(),
        version: SOFTWARE,
        uptime_ms: look.at.saturating_since(edge.started).as_millis() as u64,
        grpc_port: edge.listens.tls.map(|address| address.port()),
        socket: edge.listens.socket.as_ref().map(|path| path.display().to_string()),
        signed_in,
        ready: look.health(edge),
        cameras: cameras().count(),
        cameras_connected: cameras().filter(|looked| looked.camera.info.connected).count(),
        applications: seen(look, granted).count(),
        log_bytes: cameras().map(|looked| looked.camera.info.log_bytes).sum(),
        store_bytes: (!stores.is_empty()).then(|| stores.iter().sum()),
        channels: channels(cameras()),
        certificates: certificates(look, granted),
    }
}

/// Cameras with the contracts on them. `watched`: cameras whose pictures the caller may see.
pub(super) fn cameras(look: &Look, edge: &Edge, granted: &Granted, watched: Option<&Granted>) -> Cameras {
    let cameras = look.cameras.iter().filter(|looked| granted.allows(looked.name()));
    let may_watch = |looked: &Looked| watched.is_some_and(|watched| watched.allows(looked.name()));
    Cameras {
        edge_start: utc_ms(edge.started_utc),
        now_utc_ms: utc_ms(look.at_utc),
        cameras: cameras.map(|looked| camera(look, looked, may_watch(looked))).collect(),
    }
}

/// The last replies of applications to a camera's frames.
pub(super) fn replies(last: Vec<LastReply>, edge: &Edge) -> Replies {
    let now = monotonic_now();
    let reply = |reply: LastReply| Reply {
        application: reply.application,
        epoch: reply.frame.epoch.0,
        sequence: reply.frame.sequence.0,
        since_ms: ms(now.saturating_since(reply.at)),
        width: reply.size.0,
        height: reply.size.1,
        found: reply.found,
        detections: reply.detections.into_iter().map(found).collect(),
    };
    Replies {
        edge_start: utc_ms(edge.started_utc),
        now_utc_ms: utc_ms(wall_now()),
        replies: last.into_iter().map(reply).collect(),
    }
}

/// A detected object.
pub(super) fn found(detection: Detection) -> Found {
    let Detection { xyxy, score, class_id, class_name, tracker_id, .. } = detection;
    Found { xyxy, score, class_id, class_name, tracker_id }
}

/// Subscriptions and groups. `who`: the caller.
pub(super) fn applications(look: &Look, edge: &Edge, granted: &Granted, who: &Bearer) -> Applications {
    let groups = look.groups.iter().filter(|report| sees_groups_of(who, &report.key.owner));
    Applications {
        edge_start: utc_ms(edge.started_utc),
        now_utc_ms: utc_ms(look.at_utc),
        applications: seen(look, granted).map(|account| application(account, granted)).collect(),
        groups: groups.map(|report| group(look, report)).collect(),
    }
}

/// Subscriptions of applications that read a camera that the caller may see.
fn seen<'a>(look: &'a Look, granted: &'a Granted) -> impl Iterator<Item = &'a AccountNow> {
    let applications = look.subscriptions.iter().filter(|account| !account.asked.looks_on);
    applications.filter(|account| {
        look.cameras
            .iter()
            .any(|looked| granted.allows(looked.name()) && account.asked.cameras.matches(looked.name()))
    })
}

fn channels<'a>(cameras: impl Iterator<Item = &'a Looked>) -> Vec<Channel> {
    let mut channels = BTreeMap::<&str, Channel>::new();
    for looked in cameras {
        let Some(share) = &looked.camera.info.share else { continue };
        let channel = channels.entry(&share.channel).or_insert_with(|| Channel {
            name: share.channel.clone(),
            bits_per_second: share.carries.map(|rate| rate.0),
            cameras: Vec::new(),
        });
        let name = looked.name().to_string();
        channel.cameras.push(ChannelCamera { name, share_frame_bytes: share_frame_bytes(looked) });
    }
    channels.into_values().collect()
}

fn share_frame_bytes(looked: &Looked) -> Option<u64> {
    match looked.camera.info.share.as_ref()?.share? {
        Share::Free => None,
        Share::Cap { frame_bytes_max, .. } => Some(frame_bytes_max.into()),
        Share::Shed { .. } => Some(0),
    }
}

/// The certificates of the edge, its authority, and the hosts of cameras that the caller may see.
fn certificates(look: &Look, granted: &Granted) -> Vec<EndingCertificate> {
    let is_told = |ending: &&Ending| {
        ending.cameras.as_ref().is_none_or(|cameras| cameras.iter().any(|camera| granted.allows(camera)))
    };
    let of = |ending: &Ending| EndingCertificate { of: ending.of.clone(), ends_utc_ms: utc_ms(ending.ends) };
    look.certificates.iter().filter(is_told).map(of).collect()
}

fn camera(look: &Look, looked: &Looked, may_watch: bool) -> Camera {
    let info = &looked.camera.info;
    let (status, counters) = (&info.status, &info.counters);
    let is_data = looked.camera.newest.as_ref().is_some_and(|newest| !newest.meta.encoding.is_picture());
    let name = looked.name();
    Camera {
        name: name.to_string(),
        derived_from: info
            .derived
            .iter()
            .flat_map(|(deriving, _)| deriving.of.iter().map(ToString::to_string))
            .collect(),
        publishers: info.derived.as_ref().map(|(_, publishers)| *publishers),
        connected: info.connected,
        identity: info.identity.clone(),
        source: info.source.as_ref().map(|known| source(known, look.at)),
        width: status.width,
        height: status.height,
        frames_per_second: status.frames_per_second,
        received_frames_per_second: looked.received_frames_per_second,
        newest: looked.camera.newest.as_ref().map(newest),
        published_bits_per_second: info.traffic.map(|traffic| traffic.published.0),
        crossed_bits_per_second: info.traffic.map(|traffic| traffic.crossed.0),
        link_bits_per_second: info.feasibility.link_rate.map(|rate| rate.0),
        round_trip_ms: info.clock.map(|clock| ms(clock.round_trip_time)),
        clock_error_ms: info.clock.map(|clock| ms(clock.error)),
        channel: info.share.as_ref().map(|share| share.channel.clone()),
        share_frame_bytes: share_frame_bytes(looked),
        frames: Frames {
            published: status.published,
            refused: status.refused,
            received: counters.received,
            late: counters.late,
            cancelled: counters.cancelled,
            refused_at_edge: counters.refused,
            not_decoded: counters.not_decoded,
            link_bytes: counters.bytes,
        },
        log_bytes: info.log_bytes,
        edge_store: looked.store.as_ref().map(|store| Store {
            bytes: store.disk_bytes,
            lost: store.lost,
            degraded: store.degraded.as_ref().map(ToString::to_string).unwrap_or_default(),
        }),
        camera_store: info.disk.as_ref().map(|disk| Store {
            bytes: disk.bytes,
            lost: disk.lost,
            degraded: disk.degraded.clone(),
        }),
        contracts: contracts(look, name),
        picture: (may_watch && !is_data).then(|| format!("/api/v1/cameras/{name}/picture")),
    }
}

fn source(known: &SourceStanding, now: Instant) -> Source {
    Source {
        state: known.state.name(),
        reason: known.reason.clone(),
        lasts_ms: known.lasts(now).map(ms),
        retry_ms: known.retry_in(now).map(ms),
    }
}

fn newest(frame: &NewestFrame) -> Newest {
    let meta = &frame.meta;
    Newest {
        epoch: meta.id.epoch.0,
        sequence: meta.id.sequence.0,
        captured_utc_ms: utc_ms(meta.captured),
        age_ms: frame.age.map(ms),
        bytes: frame.bytes,
        rung: meta.rung.as_str().into(),
        encoding: meta.encoding.name(),
        width: meta.width,
        height: meta.height,
        accuracy: frame.quality.expected_accuracy,
    }
}

/// The contracts of applications on a camera, also those that ask for nothing.
fn contracts(look: &Look, camera: &CameraName) -> Vec<Contract> {
    let readers = look.subscriptions.iter().filter(|account| !account.asked.looks_on);
    readers.filter_map(|account| Some(contract(account, account.cameras.get(camera)?))).collect()
}

fn contract(account: &AccountNow, given: &GivenNow) -> Contract {
    let asks = &account.contract;
    let (state, reason, since) = match &given.state {
        Some((state, reason, since)) => (Some(state.name()), reason.clone(), Some(utc_ms(*since))),
        None => (None, String::new(), None),
    };
    Contract {
        subscription: account.id.0,
        application: account.asked.application.clone(),
        group: account.asked.group.clone(),
        state,
        reason,
        since_utc_ms: since,
        latency_bound_ms: asks.latency_bound.map(ms),
        latency_p50_ms: given.ages.map(|ages| ms(ages.p50)),
        latency_p95_ms: given.ages.map(|ages| ms(ages.p95)),
        latency_at: match given.ages {
            Some(ages) if ages.at_application => "application",
            _ => "edge",
        },
        on_time_share: given.ages.and_then(|ages| ages.on_time_share),
        on_time_share_wanted: asks.on_time_share,
        accuracy_floor: asks.accuracy_floor,
        accuracy: given.accuracy,
        min_fps: asks.min_fps,
        priority: asks.priority,
        on_infeasible: match asks.on_infeasible {
            OnInfeasible::Degrade => "degrade",
            OnInfeasible::Skip => "skip",
            OnInfeasible::Stop => "stop",
        },
        frames_per_second: given.frames_per_second,
        delivered: given.delivered,
        skipped: skipped(&given.skipped),
    }
}

/// Skipped frames by reason. Reasons with a count of zero are left out.
pub(super) fn skipped(counts: &SkipCounts) -> BTreeMap<&'static str, u64> {
    counts.iter().filter(|(_, count)| *count > 0).map(|(reason, count)| (reason.name(), count)).collect()
}

fn application(account: &AccountNow, granted: &Granted) -> Application {
    let told = || account.cameras.iter().filter(|(camera, _)| granted.allows(camera));
    Application {
        subscription: account.id.0,
        application: account.asked.application.clone(),
        group: account.asked.group.clone(),
        pattern: account.asked.cameras.to_string(),
        deliver: deliver(account.asked.deliver),
        began_utc_ms: utc_ms(account.began),
        frames_per_second: told().map(|(_, given)| given.frames_per_second).sum(),
        cameras: told()
            .map(|(camera, given)| OnCamera {
                camera: camera.to_string(),
                contract: contract(account, given),
            })
            .collect(),
    }
}

fn deliver(deliver: Deliver) -> &'static str {
    match deliver {
        Deliver::Newest => "newest",
        Deliver::Every => "every",
    }
}

fn group(look: &Look, report: &GroupReport) -> Group {
    let GroupReport { key, asks, standing } = report;
    let asleep = standing.is_none();
    let standing = standing.clone().unwrap_or_default();
    let account = &standing.account;
    Group {
        name: key.name.to_string(),
        owner: key.owner.to_string(),
        pattern: asks.cameras.to_string(),
        deliver: deliver(asks.options.deliver),
        survives: standing.survives || (asleep && asks.options.keeps_place()),
        degraded: standing.degraded.clone().unwrap_or_default(),
        asleep,
        members: standing
            .members
            .iter()
            .map(|(_, application, open, account)| Member {
                application: application.clone(),
                given: account.given,
                done: account.done,
                failed: account.failed,
                open: *open,
            })
            .collect(),
        lanes: standing
            .lanes
            .iter()
            .map(|(camera, last, open)| Lane {
                camera: camera.to_string(),
                open: *open,
                lag: lag(look.newest(camera), *last),
            })
            .collect(),
        given: account.given,
        done: account.done,
        dead: account.dead,
        lost: account.lost.values().sum(),
        open: standing.open,
    }
}
