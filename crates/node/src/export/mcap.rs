//! Writes an MCAP file: each image with its time and camera, and each gap at its place.
//!
//! | topic | schema | what |
//! | --- | --- | --- |
//! | `/CAMERA` | `foxglove.CompressedImage`, protobuf | a frame. The message's sequence is the frame's, and the channel says its epoch |
//! | `/CAMERA/gaps` | `mez.Gap`, JSON | frames that are missing before the frame of the same time, by reason |
//!
//! The metadata record `mez` at the end summarises the export.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufWriter;

use mcap::records::{MessageHeader, Metadata};
use mcap::{McapError, WriteOptions, Writer};
use mez_core::frame::{Epoch, FrameMeta, SkipCounts};
use mez_core::name::CameraName;
use mez_core::units::Timestamp;
use prost::Message;
use prost::bytes::Bytes;
use serde_json::json;

use super::ExportSummary;

/// The protobuf descriptor of the messages, which the file carries for its readers.
const IMAGE_SCHEMA: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/foxglove.CompressedImage.bin"));
const IMAGE_SCHEMA_NAME: &str = "foxglove.CompressedImage";
const GAP_SCHEMA_NAME: &str = "mez.Gap";

/// `proto/foxglove/CompressedImage.proto`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct CompressedImage {
    #[prost(message, optional, tag = "1")]
    pub(super) timestamp: Option<Time>,
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) data: Bytes,
    #[prost(string, tag = "3")]
    pub(super) format: String,
    #[prost(string, tag = "4")]
    pub(super) frame_id: String,
}

/// `google.protobuf.Timestamp`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Time {
    #[prost(int64, tag = "1")]
    pub(super) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(super) nanos: i32,
}

impl Time {
    fn of(time: Timestamp) -> Self {
        let nanos = time.as_nanos();
        Self { seconds: (nanos / 1_000_000_000) as i64, nanos: (nanos % 1_000_000_000) as i32 }
    }
}

/// A file that is being made.
pub(super) struct Mcap {
    camera: CameraName,
    writer: Writer<BufWriter<File>>,
    image_schema: u16,
    gaps: u16,
    /// The channel of the epoch at hand.
    images: Option<(Epoch, u16)>,
    message: Vec<u8>,
}

impl Mcap {
    pub(super) fn start(camera: &CameraName, file: File) -> Result<Self, McapError> {
        let options = WriteOptions::new().library(concat!("mez ", env!("CARGO_PKG_VERSION")));
        let mut writer = options.create(BufWriter::new(file))?;
        let image_schema = writer.add_schema(IMAGE_SCHEMA_NAME, "protobuf", IMAGE_SCHEMA)?;
        let gap = serde_json::to_vec(&gap_schema()).unwrap_or_default();
        let gap = writer.add_schema(GAP_SCHEMA_NAME, "jsonschema", &gap)?;
        let metadata = BTreeMap::from([("camera".into(), camera.to_string())]);
        let gaps = writer.add_channel(gap, &format!("/{camera}/gaps"), "json", &metadata)?;
        Ok(Self { camera: camera.clone(), writer, image_schema, gaps, images: None, message: Vec::new() })
    }

    /// Adds an image. Its `format` is `jpeg` or `png`.
    pub(super) fn add(&mut self, meta: &FrameMeta, format: &str, image: Bytes) -> Result<(), McapError> {
        let channel_id = self.channel(meta.id.epoch)?;
        let image = CompressedImage {
            timestamp: Some(Time::of(meta.captured)),
            data: image,
            format: format.into(),
            frame_id: self.camera.to_string(),
        };
        self.message.clear();
        self.message.reserve(image.encoded_len());
        image.encode_raw(&mut self.message);
        self.writer.write_to_known_channel(&header(channel_id, meta), &self.message)
    }

    /// States a gap right before a frame.
    pub(super) fn add_gap(&mut self, before: &FrameMeta, missing: &SkipCounts) -> Result<(), McapError> {
        let reasons: BTreeMap<&str, u64> =
            missing.iter().map(|(reason, count)| (reason.name(), count)).collect();
        let gap = json!({
            "epoch": before.id.epoch.0,
            "before_sequence": before.id.sequence.0,
            "frames": missing.total(),
            "reasons": reasons,
        });
        self.writer.write_to_known_channel(&header(self.gaps, before), gap.to_string().as_bytes())
    }

    pub(super) fn finish(mut self, summary: &ExportSummary) -> Result<File, McapError> {
        let mut metadata = summary.fields();
        metadata.insert("camera".into(), self.camera.to_string());
        self.writer.write_metadata(&Metadata { name: "mez".into(), metadata })?;
        self.writer.finish()?;
        self.writer.into_inner().into_inner().map_err(|error| McapError::Io(error.into_error()))
    }

    fn channel(&mut self, epoch: Epoch) -> Result<u16, McapError> {
        if let Some((of, channel)) = self.images
            && of == epoch
        {
            return Ok(channel);
        }
        let metadata = BTreeMap::from([
            ("camera".into(), self.camera.to_string()),
            ("epoch".into(), epoch.0.to_string()),
        ]);
        let topic = format!("/{}", self.camera);
        let channel = self.writer.add_channel(self.image_schema, &topic, "protobuf", &metadata)?;
        self.images = Some((epoch, channel));
        Ok(channel)
    }
}

fn header(channel_id: u16, meta: &FrameMeta) -> MessageHeader {
    let time = meta.captured.as_nanos();
    // The format has 32 bits for it.
    let sequence = meta.id.sequence.0 as u32;
    MessageHeader { channel_id, sequence, log_time: time, publish_time: time }
}

fn gap_schema() -> serde_json::Value {
    let count = json!({"type": "integer", "minimum": 0});
    json!({
        "title": GAP_SCHEMA_NAME,
        "description": "Frames of a camera that are missing before a frame",
        "type": "object",
        "properties": {
            "epoch": count,
            "before_sequence": count,
            "frames": count,
            "reasons": {"type": "object", "additionalProperties": count},
        },
    })
}
