//! The row of one camera in `mez cameras`.

use mez_core::contract::ContractState;
use mez_core::source::SourceState;
use mez_core::units::{Instant, Timestamp};
use mez_node::client::{CameraSummary, ChannelStanding, ContractStanding, LogOnDisk};
use serde_json::{Value, json};

use crate::columns::{Column, NOTHING, cells};
use crate::text::{bytes, for_people, milliseconds, rate};

/// A camera, as reported by the edge at time `now`.
pub(crate) struct Row {
    pub(crate) camera: CameraSummary,
    pub(crate) now: Timestamp,
    /// The same time by the monotonic clock.
    pub(crate) monotonic: Instant,
}

/// The columns of `mez cameras`.
pub(crate) const COLUMNS: &[Column<Row>] = &[
    Column {
        name: "camera",
        head: "CAMERA",
        about: "The camera's name",
        rank: 0,
        cell: |row| row.camera.camera.to_string(),
    },
    Column {
        name: "made-of",
        head: "MADE OF",
        about: "For a derived stream: its sources, and how many programs publish it",
        rank: 2,
        cell: made_of,
    },
    Column {
        name: "state",
        head: "STATE",
        about: "connected: it has sent something within the last 750 ms (1.75 s if nobody wants its frames); absent: it has not",
        rank: 1,
        cell: |row| if row.camera.connected { "connected".into() } else { "absent".into() },
    },
    Column {
        name: "source",
        head: "SOURCE",
        about: "State of its source (live, stalled, lost or ended), and for how long",
        rank: 2,
        cell: source,
    },
    Column {
        name: "fps",
        head: "PUBLISHES",
        about: "Frames published per second, subscribed or not",
        rank: 3,
        cell: |row| match row.camera.connected {
            true => format!("{:.1} fps", row.camera.frames_per_second),
            false => NOTHING.into(),
        },
    },
    Column {
        name: "size",
        head: "SIZE",
        about: "Width and height of the newest published frame",
        rank: 9,
        cell: |row| cells::size(row.camera.width, row.camera.height),
    },
    Column {
        name: "newest",
        head: "NEWEST HERE",
        about: "Time since the capture of the newest frame at the edge",
        rank: 8,
        cell: |row| {
            let ago = |at| format!("{} ago", milliseconds(row.now.saturating_since(at)));
            row.camera.newest.map_or(NOTHING.into(), |(_, at)| ago(at))
        },
    },
    Column {
        name: "received",
        head: "RECEIVED",
        about: "Frames that arrived in time, since the edge's start",
        rank: 14,
        cell: |row| row.camera.frames_received.to_string(),
    },
    Column {
        name: "late",
        head: "LATE",
        about: "Frames that arrived after a newer one, since the edge's start",
        rank: 13,
        cell: |row| row.camera.frames_late.to_string(),
    },
    Column {
        name: "link",
        head: "LINK",
        about: "Rate of the payload that crosses its link, over 5 s",
        rank: 4,
        cell: |row| cells::crossed(row.camera.traffic),
    },
    Column {
        name: "share",
        head: "OF PUBLISHED",
        about: "Share of the published bytes that crosses the link, over 5 s",
        rank: 5,
        cell: |row| cells::share(row.camera.traffic),
    },
    Column {
        name: "link-bytes",
        head: "CROSSED",
        about: "Payload bytes that crossed its link, since the edge's start",
        rank: 15,
        cell: |row| bytes(row.camera.link_bytes),
    },
    Column {
        name: "carries",
        head: "CARRIES",
        about: "Rate that the link can carry, as measured with frames",
        rank: 10,
        cell: |row| row.camera.link_bits_per_second.map_or(NOTHING.into(), rate),
    },
    Column {
        name: "on-time",
        head: "ON TIME",
        about: "Share of the last 500 frames that was on time, and the share that its policy had predicted",
        rank: 11,
        cell: on_time,
    },
    Column {
        name: "channel",
        head: "CHANNEL",
        about: "The declared channel that it shares, the channel's rate, and the largest mean frame size",
        rank: 16,
        cell: |row| row.camera.channel.as_ref().map_or(NOTHING.into(), channel),
    },
    Column {
        name: "log",
        head: "LOG",
        about: "Size of its log in the edge's memory",
        rank: 19,
        cell: |row| bytes(row.camera.edge_log_bytes),
    },
    Column {
        name: "camera-disk",
        head: "CAMERA'S DISK",
        about: "Size of its log on its own disk, or that this log is degraded",
        rank: 18,
        cell: |row| row.camera.camera_disk.as_ref().map_or(NOTHING.into(), disk),
    },
    Column {
        name: "edge-disk",
        head: "EDGE'S DISK",
        about: "Size of its log on the edge's disk, or that this log is degraded",
        rank: 17,
        cell: |row| row.camera.edge_disk.as_ref().map_or(NOTHING.into(), disk),
    },
    Column {
        name: "rtt",
        head: "RTT",
        about: "Round-trip time between edge and camera",
        rank: 12,
        cell: |row| row.camera.clock.map_or(NOTHING.into(), |clock| milliseconds(clock.round_trip_time)),
    },
    Column {
        name: "subscribers",
        head: "SUBSCRIBERS",
        about: "Number of subscriptions that want its frames",
        rank: 6,
        cell: |row| row.camera.subscriptions.to_string(),
    },
    Column {
        name: "contracts",
        head: "CONTRACTS",
        about: "Number of contracts in each state",
        rank: 7,
        cell: contracts,
    },
];

/// The sources of a derived stream, and the number of its publishers.
fn made_of(row: &Row) -> String {
    let of: Vec<&str> = row.camera.derived_from.iter().map(|source| source.as_str()).collect();
    let Some((first, publishers)) = of.first().zip(row.camera.publishers) else { return NOTHING.into() };
    let others = if of.len() > 1 { format!(" and {} more", of.len() - 1) } else { String::new() };
    let by = if publishers == 1 { "1 program".into() } else { format!("{publishers} programs") };
    format!("{first}{others}, by {by}")
}

/// The state of the source, and its duration unless the source is live.
fn source(row: &Row) -> String {
    let Some(source) = &row.camera.source else { return NOTHING.into() };
    let lasts = source.lasts(row.monotonic).filter(|_| source.state != SourceState::Live);
    lasts.map_or(source.state.name().into(), |lasts| format!("{} {}", source.state.name(), for_people(lasts)))
}

/// The share of frames on time, and the share that the camera's policy predicted.
fn on_time(row: &Row) -> String {
    match (row.camera.observed_on_time_share, row.camera.predicted_on_time_share) {
        (Some(observed), Some(predicted)) => {
            format!("{:.1} % ({:.1} predicted)", observed * 1e2, predicted * 1e2)
        }
        _ => NOTHING.into(),
    }
}

/// The number of contracts in each state, best state first.
fn contracts(row: &Row) -> String {
    let count = |state| row.camera.contracts.iter().filter(|known| known.state == state).count();
    let parts: Vec<String> = ContractState::ALL
        .into_iter()
        .rev()
        .map(|state| (state, count(state)))
        .filter(|(_, count)| *count > 0)
        .map(|(state, count)| format!("{count} {}", state.name()))
        .collect();
    if parts.is_empty() { NOTHING.into() } else { parts.join(", ") }
}

/// A channel, its rate, and the camera's share of it.
fn channel(channel: &ChannelStanding) -> String {
    let mut text = channel.name.clone();
    if let Some(carries) = channel.bits_per_second {
        text += &format!(" {}", rate(carries));
    }
    match channel.frame_bytes {
        None => text,
        Some(0) => text + ", no room",
        Some(most) => text + &format!(", {} a frame", bytes(most)),
    }
}

fn disk(disk: &LogOnDisk) -> String {
    if disk.degraded.is_some() { "degraded".into() } else { bytes(disk.bytes) }
}

/// Sentences about sources without frames, degraded logs, and contracts that are not kept.
pub(crate) fn notes(camera: &CameraSummary, now: Instant) -> Vec<String> {
    let name = &camera.camera;
    let source = camera.source.as_ref().and_then(|source| Some((source.sentence()?, source.retry_in(now))));
    let source = source.map(|(sentence, retry)| match retry {
        Some(retry) => format!("{name}: {sentence}; next try in {}", for_people(retry)),
        None => format!("{name}: {sentence}"),
    });
    let disks = [(&camera.camera_disk, "camera's"), (&camera.edge_disk, "edge's")];
    let degraded = disks.into_iter().filter_map(|(disk, whose)| {
        let why = disk.as_ref()?.degraded.as_ref()?;
        Some(format!("{name}: the log on the {whose} disk is degraded: {why}"))
    });
    let broken = camera.contracts.iter().filter(|known| known.state != ContractState::Ok);
    let broken = broken.map(|ContractStanding { subscription, application, state, reason, .. }| {
        format!("{name}: subscription {subscription} ({application}) {}: {reason}", state.name())
    });
    source.into_iter().chain(degraded).chain(broken).collect()
}

/// A camera as JSON, with the field names of `mez.CameraInfo` in Python.
pub(crate) fn to_json(camera: &CameraSummary, now: Instant) -> Value {
    let ms = |time: std::time::Duration| time.as_secs_f64() * 1e3;
    let disk = |disk: &Option<LogOnDisk>| {
        disk.as_ref().map(|disk| json!({"bytes": disk.bytes, "lost": disk.lost, "degraded": disk.degraded}))
    };
    let contract = |known: &ContractStanding| {
        json!({
            "subscription": known.subscription,
            "application": known.application,
            "state": known.state.name(),
            "reason": known.reason,
        })
    };
    json!({
        "camera": camera.camera.as_str(),
        "connected": camera.connected,
        "source": camera.source.as_ref().map(|source| json!({
            "state": source.state.name(),
            "reason": source.reason,
            "lasts_s": source.lasts(now).map(|lasts| lasts.as_secs_f64()),
            "retry_in_s": source.retry_in(now).map(|retry| retry.as_secs_f64()),
        })),
        "identity": camera.identity,
        "derived_from": camera.derived_from.iter().map(|source| source.as_str()).collect::<Vec<_>>(),
        "publishers": camera.publishers,
        "subscriptions": camera.subscriptions,
        "newest": camera.newest.map(|(id, _)| [id.epoch.0, id.sequence.0]),
        "newest_captured_ns": camera.newest.map(|(_, at)| at.as_nanos()),
        "oldest_captured_ns": camera.oldest.map(Timestamp::as_nanos),
        "edge_log_bytes": camera.edge_log_bytes,
        "published": camera.published,
        "refused": camera.refused,
        "width": camera.width,
        "height": camera.height,
        "frames_per_second": camera.frames_per_second,
        "camera_log_bytes": camera.camera_log_bytes,
        "frames_received": camera.frames_received,
        "frames_late": camera.frames_late,
        "frames_cancelled": camera.frames_cancelled,
        "frames_refused": camera.frames_refused,
        "link_bytes": camera.link_bytes,
        "published_bytes": camera.published_bytes,
        "published_bits_per_second": camera.traffic.map(|traffic| traffic.published),
        "crossed_bits_per_second": camera.traffic.map(|traffic| traffic.crossed),
        "crossed_share": camera.traffic.and_then(|traffic| traffic.share()),
        "clock_offset_ns": camera.clock.map(|clock| clock.ahead_ns),
        "clock_error_ms": camera.clock.map(|clock| ms(clock.error)),
        "round_trip_time_ms": camera.clock.map(|clock| ms(clock.round_trip_time)),
        "link_bits_per_second": camera.link_bits_per_second,
        "predicted_on_time_share": camera.predicted_on_time_share,
        "observed_on_time_share": camera.observed_on_time_share,
        "channel": camera.channel.as_ref().map(|channel| channel.name.as_str()),
        "channel_bits_per_second": camera.channel.as_ref().and_then(|channel| channel.bits_per_second),
        "share_frame_bytes": camera.channel.as_ref().and_then(|channel| channel.frame_bytes),
        "edge_disk": disk(&camera.edge_disk),
        "camera_disk": disk(&camera.camera_disk),
        "contracts": camera.contracts.iter().map(contract).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mez_core::source::SourceStanding;
    use mez_node::client::Traffic;

    use super::*;
    use crate::columns::Table;

    /// A day after the host's start.
    const NOW: Instant = Instant::from_nanos(86_400 * 1_000_000_000);

    fn summary(camera: &str, source: Option<SourceStanding>) -> CameraSummary {
        CameraSummary {
            camera: camera.parse().unwrap(),
            connected: true,
            identity: format!("camera/{camera}"),
            subscriptions: 0,
            newest: None,
            oldest: None,
            edge_log_bytes: 0,
            published: 0,
            refused: 0,
            width: 640,
            height: 480,
            frames_per_second: 0.0,
            camera_log_bytes: 0,
            frames_received: 0,
            frames_late: 0,
            frames_cancelled: 0,
            frames_refused: 0,
            link_bytes: 0,
            published_bytes: 0,
            traffic: None,
            clock: None,
            edge_disk: None,
            camera_disk: None,
            link_bits_per_second: None,
            predicted_on_time_share: None,
            observed_on_time_share: None,
            channel: None,
            source,
            contracts: Vec::new(),
            derived_from: Vec::new(),
            publishers: None,
        }
    }

    /// A source in this state for `lasts_s`, with the next attempt in `retry_s`.
    fn standing(state: SourceState, reason: &str, lasts_s: u64, retry_s: Option<u64>) -> SourceStanding {
        let since = Some(Instant::from_nanos(NOW.as_nanos() - lasts_s * 1_000_000_000));
        let retry = retry_s.map(|retry| NOW + Duration::from_secs(retry));
        SourceStanding { state, reason: reason.into(), since, retry }
    }

    /// Cameras whose source is live, stalled, lost with a retry, lost for good, or ended, and one whose source has not begun.
    fn cameras() -> Vec<CameraSummary> {
        let (live, stalled) = (SourceState::Live, SourceState::Stalled);
        let (lost, ended) = (SourceState::Lost, SourceState::Ended);
        let absent = CameraSummary {
            connected: false,
            ..summary("yard/pulled", Some(standing(lost, "the camera gives no frames", 7_200, None)))
        };
        vec![
            CameraSummary {
                frames_per_second: 15.0,
                ..summary("dock/live", Some(standing(live, "", 9, None)))
            },
            summary(
                "dock/stalled",
                Some(standing(stalled, "no frames any more; it gave 15.0 per second", 12, None)),
            ),
            summary("dock/retried", Some(standing(lost, "connection refused", 250, Some(4)))),
            absent,
            CameraSummary { connected: false, ..summary("yard/over", Some(standing(ended, "", 3, None))) },
            summary("yard/new", None),
        ]
    }

    fn rows(cameras: Vec<CameraSummary>) -> Vec<Row> {
        let now = Timestamp::from_nanos(1_700_000_000_000_000_000);
        cameras.into_iter().map(|camera| Row { camera, now, monotonic: NOW }).collect()
    }

    fn table(columns: &[&str], cameras: Vec<CameraSummary>) -> Vec<String> {
        let mut table = Table::new(COLUMNS, columns.iter().map(|name| (*name).to_owned()).collect());
        table.lines(&rows(cameras), None).0
    }

    /// The table has the state of each source and its duration, and no frame rate for absent cameras.
    #[test]
    fn the_table_says_which_source_gives_no_frames() {
        let lines = table(&["camera", "state", "source", "fps"], cameras());
        assert_eq!(
            lines,
            [
                "CAMERA        STATE      SOURCE        PUBLISHES",
                "dock/live     connected  live          15.0 fps",
                "dock/stalled  connected  stalled 12 s  0.0 fps",
                "dock/retried  connected  lost 4 min    0.0 fps",
                "yard/pulled   absent     lost 2 h      -",
                "yard/over     absent     ended 3 s     -",
                "yard/new      connected  -             0.0 fps",
            ]
        );
    }

    #[test]
    fn a_derived_stream_says_what_it_is_made_of() {
        let derived = |of: &[&str], publishers| CameraSummary {
            derived_from: of.iter().map(|source| source.parse().unwrap()).collect(),
            publishers: Some(publishers),
            ..summary("dock/cam1/faces", None)
        };
        let told = [derived(&["dock/cam1"], 1), derived(&["dock/cam1", "dock/cam2"], 3), summary("a", None)];
        let lines = table(&["made-of"], told.to_vec());
        assert_eq!(lines, ["MADE OF", "dock/cam1, by 1 program", "dock/cam1 and 1 more, by 3 programs", "-"]);
        let json = to_json(&told[1], NOW);
        assert_eq!((&json["publishers"], &json["derived_from"][1]), (&json!(3), &json!("dock/cam2")));
    }

    /// Below the table: the reason, and the next attempt. Nothing about live sources.
    #[test]
    fn a_sentence_says_why_a_source_gives_no_frames() {
        let said: Vec<String> = cameras().iter().flat_map(|camera| notes(camera, NOW)).collect();
        assert_eq!(
            said,
            [
                "dock/stalled: the camera's source has stalled: no frames any more; it gave 15.0 per second",
                "dock/retried: the camera's source is lost: connection refused; next try in 4 s",
                "yard/pulled: the camera's source is lost: the camera gives no frames",
                "yard/over: the camera's source has ended",
            ]
        );
    }

    #[test]
    fn programs_read_the_state_of_a_source() {
        let told: Vec<Value> =
            cameras().iter().map(|camera| to_json(camera, NOW)["source"].clone()).collect();
        let source = |state: &str, reason: &str, lasts_s: f64, retry_in_s: Option<f64>| json!({"state": state, "reason": reason, "lasts_s": lasts_s, "retry_in_s": retry_in_s});
        let expected = [
            source("live", "", 9.0, None),
            source("stalled", "no frames any more; it gave 15.0 per second", 12.0, None),
            source("lost", "connection refused", 250.0, Some(4.0)),
            source("lost", "the camera gives no frames", 7_200.0, None),
            source("ended", "", 3.0, None),
            Value::Null,
        ];
        assert_eq!(told, expected);
    }

    /// The table has the rate on the link, and its share of the published rate. While the past is fetched, the share exceeds 100 %.
    #[test]
    fn the_table_says_what_crosses_the_link() {
        let with = |name, traffic| CameraSummary { traffic, ..summary(name, None) };
        let of = |published, crossed| Some(Traffic { published, crossed });
        let cameras = vec![
            with("a/video", of(9_600_000.0, 374_400.0)),
            with("b/originals", of(9_600_000.0, 9_600_000.0)),
            with("c/past", of(1_000_000.0, 2_500_000.0)),
            with("d/unwanted", of(9_600_000.0, 0.0)),
            with("e/silent", of(0.0, 0.0)),
            with("f/absent", None),
        ];
        let told = to_json(&cameras[0], NOW);
        assert_eq!(told["crossed_share"], json!(0.039));
        assert_eq!(
            (&told["crossed_bits_per_second"], &told["published_bits_per_second"]),
            (&json!(374_400.0), &json!(9_600_000.0))
        );
        assert_eq!(
            table(&["camera", "link", "share"], cameras),
            [
                "CAMERA       LINK        OF PUBLISHED",
                "a/video      374 kbit/s  3.9 %",
                "b/originals  9.6 Mbit/s  100 %",
                "c/past       2.5 Mbit/s  250 %",
                "d/unwanted   0 kbit/s    0.0 %",
                "e/silent     0 kbit/s    -",
                "f/absent     -           -",
            ]
        );
    }
}
