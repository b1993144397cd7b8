//! Writes an MCAP file with images, their times and cameras, and the gaps between them.
//!
//! | topic | schema | what |
//! | --- | --- | --- |
//! | `/CAMERA` | `foxglove.CompressedImage`, protobuf | a frame. The message's sequence is that of the frame; the channel's metadata has the epoch |
//! | `/CAMERA/data` | none; the channel's metadata says the content type | a data record, byte for byte |
//! | `/CAMERA/records` | `mez.Record`, JSON | about the data record of the same time: its ID, its content type, and the frame that it was made of |
//! | `/CAMERA/gaps` | `mez.Gap`, JSON | the number of missing frames before the frame of the same time, by reason |
//! | `/CAMERA/annotations` | `foxglove.ImageAnnotations`, JSON | detections in a frame, in the pixels of the image in the file |
//! | `/CAMERA/replies` | `mez.Reply`, JSON | an application's result for a frame, in published pixels |
//! | `/CAMERA/contracts` | `mez.ContractState`, JSON | the new state of an application's contract |
//! | `/CAMERA/source` | `mez.SourceState`, JSON | the new state of the camera's source |
//!
//! The metadata record `mez` at the end summarises the export.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufWriter;

use mcap::records::{MessageHeader, Metadata};
use mcap::{McapError, WriteOptions, Writer};
use mez_core::data::{ContentType, DataRecord};
use mez_core::frame::{Epoch, FrameMeta, SkipCounts};
use mez_core::name::CameraName;
use mez_core::units::Timestamp;
use prost::Message;
use prost::bytes::Bytes;
use serde_json::json;

use super::said::{Due, Said};
use super::{ExportSummary, mcap_said as said};
use crate::notes::NotedReply;

/// The protobuf descriptor of the messages. The file contains it for its readers.
const IMAGE_SCHEMA: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/foxglove.CompressedImage.bin"));
const IMAGE_SCHEMA_NAME: &str = "foxglove.CompressedImage";
const GAP_SCHEMA_NAME: &str = "mez.Gap";
/// The most content types with a channel of their own.
const DATA_CHANNELS_MAX: usize = 256;

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

/// An MCAP file in progress.
pub(super) struct Mcap {
    camera: CameraName,
    writer: Writer<BufWriter<File>>,
    image_schema: u16,
    gap_schema: u16,
    gaps: u16,
    /// The channel of the current epoch.
    images: Option<(Epoch, u16)>,
    message: Vec<u8>,
    /// The channels of data records, by content type without parameters.
    data: BTreeMap<String, u16>,
    /// The channels of other messages, by topic. Each is created with its first message.
    said: BTreeMap<&'static str, u16>,
}

impl Mcap {
    pub(super) fn start(camera: &CameraName, file: File) -> Result<Self, McapError> {
        let options = WriteOptions::new().library(concat!("mez ", env!("CARGO_PKG_VERSION")));
        let mut writer = options.create(BufWriter::new(file))?;
        let image_schema = writer.add_schema(IMAGE_SCHEMA_NAME, "protobuf", IMAGE_SCHEMA)?;
        let gap = serde_json::to_vec(&gap_schema()).unwrap_or_default();
        let gap_schema = writer.add_schema(GAP_SCHEMA_NAME, "jsonschema", &gap)?;
        let gaps = gaps_channel(&mut writer, gap_schema, camera)?;
        Ok(Self {
            camera: camera.clone(),
            writer,
            image_schema,
            gap_schema,
            gaps,
            images: None,
            data: BTreeMap::new(),
            message: Vec::new(),
            said: BTreeMap::new(),
        })
    }

    /// Switches to another camera or stream.
    pub(super) fn turn_to(&mut self, camera: &CameraName) -> Result<(), McapError> {
        self.gaps = gaps_channel(&mut self.writer, self.gap_schema, camera)?;
        self.camera = camera.clone();
        self.images = None;
        self.data.clear();
        self.said.clear();
        Ok(())
    }

    /// Adds an image, whose `format` is `jpeg` or `png`, or a data record (`data`).
    pub(super) fn add(&mut self, meta: &FrameMeta, format: &str, image: Bytes) -> Result<(), McapError> {
        if !meta.encoding.is_picture() {
            return self.add_data(meta, &image);
        }
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

    /// Adds a data record, byte for byte, and a message that describes it.
    fn add_data(&mut self, meta: &FrameMeta, payload: &Bytes) -> Result<(), McapError> {
        // Records that cannot be decoded were left out by the reader.
        let Ok(record) = DataRecord::decode(payload) else { return Ok(()) };
        let mut told = json!({
            "epoch": meta.id.epoch.0,
            "sequence": meta.id.sequence.0,
            "content_type": record.content_type.as_str(),
        });
        if let Some(of) = &record.of {
            told["of_camera"] = of.camera.as_str().into();
            told["of_epoch"] = of.frame.epoch.0.into();
            told["of_sequence"] = of.frame.sequence.0.into();
            told["of_captured_ns"] = of.captured.as_nanos().into();
        }
        self.say(&said::RECORDS, meta.id.sequence.0 as u32, (meta.captured, meta.captured), &told)?;
        let channel_id = self.data_channel(&record.content_type)?;
        self.writer.write_to_known_channel(&header(channel_id, meta), &record.body)
    }

    /// The channel of a content type. Beyond [`DATA_CHANNELS_MAX`] all types share one channel,
    /// because a file has at most 65,535 channels, and publishers choose the content types.
    fn data_channel(&mut self, content_type: &ContentType) -> Result<u16, McapError> {
        const OTHERS: &str = "application/octet-stream";
        let essence = content_type.essence();
        let is_known = self.data.contains_key(essence) || self.data.len() < DATA_CHANNELS_MAX;
        let essence = if is_known { essence } else { OTHERS };
        if let Some(channel) = self.data.get(essence) {
            return Ok(*channel);
        }
        let metadata = BTreeMap::from([
            ("camera".into(), self.camera.to_string()),
            ("content_type".into(), essence.into()),
        ]);
        let encoding = if essence == "application/json" { "json" } else { essence };
        // No schema: a content type describes the format of the bytes, but not their fields.
        let channel = self.writer.add_channel(0, &format!("/{}/data", self.camera), encoding, &metadata)?;
        self.data.insert(essence.into(), channel);
        Ok(channel)
    }

    /// Adds a message about the gap before a frame.
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

    /// Adds the notes that come before a frame, or after the last one.
    pub(super) fn add_due(&mut self, due: &Due) -> Result<(), McapError> {
        due.replies.iter().try_for_each(|reply| self.add_reply(reply))?;
        due.contracts.iter().try_for_each(|contract| {
            let times = (contract.noted, contract.noted);
            self.say(&said::CONTRACTS, 0, times, &contract.to_json())
        })?;
        due.sources.iter().try_for_each(|source| {
            let times = (source.noted, source.noted);
            self.say(&said::SOURCE, 0, times, &source.to_json())
        })
    }

    /// Adds the replies to the frame that was added last.
    pub(super) fn add_said(
        &mut self,
        meta: &FrameMeta,
        replies: &[Said<NotedReply>],
    ) -> Result<(), McapError> {
        replies.iter().try_for_each(|reply| self.add_reply(reply))?;
        match said::annotations(meta, replies) {
            Some(drawn) => {
                let times = (meta.captured, meta.captured);
                self.say(&said::ANNOTATIONS, meta.id.sequence.0 as u32, times, &drawn)
            }
            None => Ok(()),
        }
    }

    fn add_reply(&mut self, reply: &Said<NotedReply>) -> Result<(), McapError> {
        let captured = reply.what.captured.unwrap_or(reply.noted);
        let sequence = reply.what.frame.sequence.0 as u32;
        self.say(&said::REPLIES, sequence, (captured, reply.noted), &reply.to_json())
    }

    fn say(
        &mut self,
        topic: &said::Topic,
        sequence: u32,
        (log_time, publish_time): (Timestamp, Timestamp),
        value: &serde_json::Value,
    ) -> Result<(), McapError> {
        let channel_id = match self.said.get(topic.name) {
            Some(channel) => *channel,
            None => {
                let schema = serde_json::to_vec(&(topic.schema)()).unwrap_or_default();
                let schema = self.writer.add_schema(topic.schema_name, "jsonschema", &schema)?;
                let metadata = BTreeMap::from([("camera".into(), self.camera.to_string())]);
                let name = format!("/{}/{}", self.camera, topic.name);
                let channel = self.writer.add_channel(schema, &name, "json", &metadata)?;
                self.said.insert(topic.name, channel);
                channel
            }
        };
        let (log_time, publish_time) = (log_time.as_nanos(), publish_time.as_nanos());
        let header = MessageHeader { channel_id, sequence, log_time, publish_time };
        self.writer.write_to_known_channel(&header, value.to_string().as_bytes())
    }

    /// Writes the metadata and completes the file.
    pub(super) fn finish(mut self, camera: &CameraName, summary: &ExportSummary) -> Result<File, McapError> {
        let mut metadata = summary.fields();
        metadata.insert("camera".into(), camera.to_string());
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

fn gaps_channel(
    writer: &mut Writer<BufWriter<File>>,
    schema: u16,
    camera: &CameraName,
) -> Result<u16, McapError> {
    let metadata = BTreeMap::from([("camera".into(), camera.to_string())]);
    writer.add_channel(schema, &format!("/{camera}/gaps"), "json", &metadata)
}

fn header(channel_id: u16, meta: &FrameMeta) -> MessageHeader {
    let time = meta.captured.as_nanos();
    // The format's sequence has only 32 bits.
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
